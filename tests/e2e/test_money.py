"""Every attempt is paid for, by whoever was counted on; what nobody counted or priced is said to be so."""

from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import counted, used
from doubles.listing_engine import ListingEngine, gathering, merging
from doubles.rawclient import Answer, call
from doubles.routed import routed
from doubles.script import DONE, Step, compact, event, frame, full, piece, sse_head, stop, stream
from doubles.settings import AUTH, KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, EMBEDDINGS, S0, ask

DEAR = {"input": 3, "output": 15, "cached_input": 0.3, "cache_write": 3.75}
CHEAP = {"input": 1, "output": 2}
USD = 1_000_000_000
FAILED = {"error": {"message": "cut off", "type": "server_error", "code": 500}, "usage": counted(100, 10)}
FAILED_COST = 100 * 3_000 + 10 * 15_000


def priced(*urls: str, path: Path, limits: Any = None, prices: Any = (DEAR, CHEAP)) -> dict[str, Any]:
    """`routed` with prices, a key and a ledger."""
    config = routed(*urls, usage={"store": "sqlite", "path": str(path / "usage.db")})
    config["keys"] = [{"name": "team-a", "key": KEY, "limits": limits or {}}]
    for candidate, price in zip(config["models"]["m-small"]["candidates"], prices, strict=False):
        candidate["price"] = price
    return config


async def rows(gateway: InProcessGateway) -> dict[str, dict[str, Any]]:
    """The ledger, by upstream."""
    return {one["upstream"]: one for one in (await call(gateway.admin_port, "GET", "/admin/usage")).json()}


def told(answer: Answer) -> int:
    """Nano-dollars by the header."""
    text = answer.header("x-sluice-cost-usd")
    assert text is not None
    return round(float(text) * USD)


WASTED: dict[str, tuple[dict[str, Any], list[Step]]] = {
    "an error in a 200": (C0, [full(compact(FAILED))]),
    "an error with a status": (C0, [full(compact(FAILED), 500)]),
    "no text": (C0, [full(b'{"x":"\xff","usage":' + compact(counted(100, 10)) + b"}")]),
    "an error instead of a stream": (S0, [full(compact(FAILED))]),
    "an error as a stream's first event": (S0, [sse_head(), frame(event(FAILED))]),
    "a stream that begins and fails in one piece": (
        S0,
        [sse_head(), frame(piece("po") + event(FAILED))],
    ),
}


@pytest.mark.parametrize("name", WASTED)
async def test_a_failed_attempt_that_was_counted_is_paid_for(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, name: str
) -> None:
    gateway = await start_gateway(priced(upstream.url, other.url, path=tmp_path))
    body, wasted = WASTED[name]
    upstream.reply(wasted)
    answer = await ask(gateway.port, body, [AUTH])
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    good = 5 * 1_000 + 2 * 2_000  # as the double counts an ordinary answer
    if body is C0:
        assert told(answer) == FAILED_COST + good
    await gateway.counted("sluice_requests_total", 1)
    ledger = await rows(gateway)
    assert (ledger["a"]["requests"], ledger["a"]["input"], ledger["a"]["output"]) == (0, 100, 10)
    assert (ledger["b"]["requests"], ledger["b"]["input"], ledger["b"]["output"]) == (1, 5, 2)
    metrics = await gateway.metrics()
    assert round(metrics.value("sluice_cost_usd_total", upstream="a") * USD) == FAILED_COST
    assert round(metrics.value("sluice_cost_usd_total", upstream="b") * USD) == good
    assert metrics.value("sluice_tokens_total", upstream="a", type="input") == 100


async def test_the_keys_dollars_and_tokens_pay_for_it_too(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    limits = {"tpm": 1000, "usd_per_day": 1}
    gateway = await start_gateway(priced(upstream.url, other.url, path=tmp_path, limits=limits))
    upstream.reply([full(compact(FAILED))])
    await ask(gateway.port, {**C0, "max_tokens": 5}, [AUTH])
    account = gateway._gateway._accounts.of["team-a"]
    assert account.spent_today == FAILED_COST + 9_000
    after = await ask(gateway.port, {**C0, "max_tokens": 5}, [AUTH])
    assert int(after.header("x-ratelimit-remaining-tokens") or 0) < 1000 - 110 - 7


async def test_an_attempt_that_nobody_counted_costs_nothing(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(priced(upstream.url, other.url, path=tmp_path))
    upstream.reply(replies.error(500))
    assert told(await ask(gateway.port, C0, [AUTH])) == 9_000
    assert list(await rows(gateway)) == ["b"]


async def test_where_all_fail_what_was_counted_is_paid_for(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(priced(upstream.url, path=tmp_path))
    upstream.always([full(compact(FAILED))])
    answer = await ask(gateway.port, C0, [AUTH])
    assert (answer.status, answer.header("x-sluice-attempts")) == (502, "2")
    (only,) = (await rows(gateway)).values()
    assert (only["requests"], only["input"], only["cost_usd"]) == (1, 200, "0.0009")


async def test_without_usage_it_is_estimated_and_says_so(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(priced(upstream.url, path=tmp_path))
    body = compact({"choices": [{"message": {"content": "x" * 300}, "finish_reason": "stop"}]})
    upstream.reply([full(body)], stream(piece("po"), stop(), DONE))
    answer = await ask(gateway.port, C0, [AUTH])
    assert answer.header("x-sluice-usage") == "estimated"
    await ask(gateway.port, S0, [AUTH])
    await gateway.counted("sluice_requests_total", 2)
    ledger = (await rows(gateway))["a"]
    assert (ledger["requests"], ledger["estimated"], ledger["unpriced"]) == (2, 2, 0)
    assert ledger["output"] >= len(body) // 4
    assert 0 < told(answer) < round(float(ledger["cost_usd"]) * USD)
    metrics = await gateway.metrics()
    assert metrics.value("sluice_usage_estimated_attempts_total", model="m-small", upstream="a") == 2
    counts = await ask(gateway.port, C0, [AUTH])
    assert counts.header("x-sluice-usage") is None


async def test_what_has_no_price_is_counted_and_never_free(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(priced(upstream.url, other.url, path=tmp_path, prices=(None, CHEAP)))
    upstream.reply([full(compact(FAILED))])
    answer = await ask(gateway.port, C0, [AUTH])
    assert answer.header("x-sluice-cost-usd") is None, "a part of it is not known"
    again = await ask(gateway.port, C0, [AUTH])
    assert (again.header("x-sluice-upstream"), again.header("x-sluice-cost-usd")) == ("a", None)
    await gateway.counted("sluice_unpriced_attempts_total", 2, model="m-small", upstream="a")
    ledger = await rows(gateway)
    assert (ledger["a"]["requests"], ledger["a"]["unpriced"], ledger["a"]["cost_usd"]) == (1, 2, "0")
    assert (ledger["b"]["requests"], ledger["b"]["unpriced"], ledger["b"]["cost_usd"]) == (1, 0, "0.000009")


async def test_every_dialect_is_billed(upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path) -> None:
    gateway = await start_gateway(priced(upstream.url, path=tmp_path))
    anthropic = {"input_tokens": 50, "output_tokens": 10, "cache_read_input_tokens": 1000}
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    written = {**anthropic, "cache_creation_input_tokens": 200}
    upstream.reply([full(compact({"choices": [choice], "usage": written}))])
    answer = await ask(gateway.port, C0, [AUTH])
    assert told(answer) == 50 * 3_000 + 1000 * 300 + 200 * 3_750 + 10 * 15_000
    row = (await rows(gateway))["a"]
    assert (row["input"], row["cached_input"], row["cache_write"]) == (1250, 1000, 200)


async def test_a_discarded_batch_is_paid_by_its_callers(
    upstream: FaultUpstream, engine: ListingEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = merging(upstream.url, usage={"store": "sqlite", "path": str(tmp_path / "usage.db")})
    config["models"]["m-embed"]["candidates"][0]["price"] = CHEAP
    batch = await gathering(["aaa", "bbbbbb", "ccc"], engine, start_gateway, config)
    one = {"object": "embedding", "index": 0, "embedding": [1.0]}
    lacking = {"object": "list", "data": [one], "usage": {"prompt_tokens": 1001, "total_tokens": 1001}}
    upstream.reply([full(compact(lacking))])
    answers = await batch.ends()
    alone = [len("aaa") // 3 + 1, len("bbbbbb") // 3 + 1, len("ccc") // 3 + 1]
    assert sum(told(answer) for answer in answers) == (1001 + sum(alone)) * 1_000
    assert min(told(answer) for answer in answers) > 1_000_00
    first = len("first") // 3 + 1
    everything = first + 1001 + sum(alone)
    await batch.gateway.counted("sluice_tokens_total", everything, model="m-embed", type="input")


async def test_parts_of_a_list_that_is_not_answered_whole_are_paid_for(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = priced(upstream.url, path=tmp_path, prices=(CHEAP,))
    config["upstreams"]["a"] |= {"max_inputs": 1, "max_concurrency": 1}
    gateway = await start_gateway(config)
    upstream.reply(replies.embeddings(1), replies.error(400))
    body = {"model": "m-small", "input": ["x", "y"]}
    answer = await ask(gateway.port, body, [AUTH], EMBEDDINGS)
    assert answer.status == 400
    row = (await rows(gateway))["a"]
    assert (row["requests"], row["input"], row["cost_usd"]) == (1, 1, "0.000001")


async def test_a_whole_answer_of_many_attempts_teaches_only_from_the_last(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start_gateway(priced(upstream.url, other.url, path=tmp_path, limits={"tpm": 10**6}))
    upstream.reply([full(compact(FAILED))])
    other.reply(used(5, 2))
    await ask(gateway.port, C0, [AUTH])
    await gateway.counted("sluice_token_estimate_ratio_count", 1, model="m-small")


async def machine(admin_port: int) -> Any:
    """What is shown of the upstream's machine; None where nothing is."""
    return (await call(admin_port, "GET", "/admin/upstreams")).json()["local"].get("machine")


async def test_a_machine_paid_by_the_hour_shows_what_a_token_costs(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"kind": "vllm", "gpu_hour_usd": 2.5}))
    upstream.reply(used(900, 100))
    answer = await ask(gateway.port, C0)
    await gateway.counted("sluice_requests_total", 1)
    shown = await machine(gateway.admin_port)
    assert shown["gpu_hour_usd"] == "2.5"
    assert shown["done"]["tokens"] == shown["done"]["best_minute"] == 1000
    # 2.5 USD are 60 minutes, of which one did a thousand tokens.
    assert shown["usd_per_million_tokens"]["best_minute"] == "41.666666667"
    assert shown["usd_per_million_tokens"]["next"] == "0"
    assert answer.header("x-sluice-cost-usd") == "0", "keys are charged what the config says"


async def test_without_its_price_nothing_of_a_machine_is_shown(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    assert await machine((await start_gateway(settings(upstream.url))).admin_port) is None


async def test_several_workers_are_one_machine(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, upstream={"gpu_hour_usd": 2.5}, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        for _ in range(12):  # each on a connection of its own
            assert (await ask(gateway.port, C0)).status == 200
        shown = await machine(gateway.admin_port)
        assert shown["done"]["tokens"] == 12 * 7
        assert shown["usd_per_million_tokens"]["next"] == "0"
