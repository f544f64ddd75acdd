"""Dollars a day: reserved at the door, spent to the nano-dollar, and remembered over a restart."""

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import OTHER, FrozenClock, asked, limited, used, used_stream
from doubles.rawclient import RawClient
from doubles.script import NEVER, frame, piece, sse_head
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0
from doubles.waiting import eventually

from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageUnavailable

PRICE = {
    "input": 1000,
    "output": 2000,
    "cached_input": 100,
}  # a tenth of a cent an input token, two of output
PING = {**C0, "max_tokens": 100}  # at most 0.2 USD and its input
USD = 1_000_000_000


async def spent(gateway: InProcessGateway) -> int:
    """Nano-dollars of team-a, as the metrics tell."""
    value = (await gateway.metrics()).value("sluice_cost_usd_total", key="team-a", model="m-small")
    return round(value * USD)


def refused(answer: Any) -> bool:
    """Whether this is the refusal of a spent budget, whole and honest."""
    if answer.status == 200:
        return False
    assert answer.status == 429
    assert (answer.error["type"], answer.error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert answer.header("x-should-retry") == "false"
    assert answer.header("retry-after") is None
    assert answer.header("retry-after-ms") is None
    return True


async def test_a_spent_budget_is_refused_and_no_retry_is_asked_for(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}, price=PRICE))
    upstream.always(used(200, 150))  # half a dollar
    assert [refused(await asked(gateway.port)) for _ in range(4)] == [False, False, True, True]
    assert await spent(gateway) == USD
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as sdk:
        with pytest.raises(openai.RateLimitError, match="12 h 54 min") as raised:
            await sdk.chat.completions.create(**C0)
    assert raised.value.code == "insufficient_quota"
    await gateway.counted("sluice_limit_rejections_total", 3, key="team-a", limit="usd_per_day")
    assert len(upstream.calls) == 2


async def test_the_next_day_begins_anew(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": "0.9"}, price=PRICE))
    upstream.always(used(0, 450))
    assert not refused(await asked(gateway.port, PING))
    assert refused(await asked(gateway.port, PING))
    clock.passes(12 * 3600 + 53 * 60)
    assert refused(await asked(gateway.port, PING))
    clock.passes(60)
    assert not refused(await asked(gateway.port, PING))
    assert refused(await asked(gateway.port, PING))


async def test_a_small_budget_refuses_no_call_for_a_guess(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Without a cap 256 tokens of output are expected: 0.512 USD, more than the whole budget."""
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": "0.1"}, price=PRICE))
    assert not refused(await asked(gateway.port))


async def test_a_thousand_calls_at_the_edge_overspend_nothing(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Each call costs what it reserved at most, so the budget holds to the nano-dollar."""
    limits = {"upstream": {"max_concurrency": 1000}}
    config = limited(upstream.url, {"usd_per_day": "2.5"}, price=PRICE, **limits)
    gateway = await start_gateway(config)
    upstream.always(used(1, 100))
    many = asyncio.Semaphore(100)

    async def one() -> bool:
        async with many:
            return refused(await asked(gateway.port, PING))

    outcomes = await asyncio.gather(*(one() for _ in range(1000)))
    passed = outcomes.count(False)
    assert passed == len(upstream.calls)
    assert await spent(gateway) == passed * 201_000_000
    assert 2_500_000_000 - 2 * 250_000_000 < passed * 201_000_000 <= 2_500_000_000


async def test_what_a_call_reserves_nobody_else_gets(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": "0.4", "rpm": 10}, price=PRICE))
    upstream.reply([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, PING, [AUTH])
        await upstream.received(1)
        answer = await asked(gateway.port, PING)
        assert refused(answer)
        # All or nothing: what the budget refuses is no request of the minute either.
        assert answer.header("x-ratelimit-remaining-requests") == "9"
        assert not refused(await asked(gateway.port, {**C0, "max_tokens": 10}))


@pytest.mark.parametrize("body", [PING, {**PING, "stream": True}], ids=["whole", "stream"])
async def test_what_was_not_spent_comes_back(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": "0.25"}, price=PRICE))
    upstream.reply(*[replies.error(500)] * 3)
    for _ in range(3):
        assert (await asked(gateway.port, body)).status == 502
    assert await spent(gateway) == 0
    assert (await asked(gateway.port, body)).status == 200


async def test_who_leaves_a_stream_pays_for_what_has_passed(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 5}, price=PRICE))
    upstream.reply([sse_head(), *[frame(piece("word"))] * 50, NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, {**S0, "max_tokens": 1000}, [AUTH])
    answer = await client.head()
    while answer.body.count(b"data:") < 50:
        await client.chunk(answer)
    await client.close()
    await gateway.outcome("client_gone")
    # 50 tokens of output are 0.1 USD; the input is a few tenths of a cent more.
    assert 100_000_000 < await spent(gateway) < 120_000_000


async def test_a_whole_answer_tells_its_exact_cost(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    price = {"input": "0.28", "output": "0.42", "cached_input": "0.028"}
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}, price=price))
    upstream.always(used(1001, 7, prompt_tokens_details={"cached_tokens": 1000}))
    answer = await asked(gateway.port)
    # 1 x 0.28 + 1000 x 0.028 + 7 x 0.42 millionths are 31.22.
    assert answer.header("x-sluice-cost-usd") == "0.00003122"
    upstream.always(used(1, 0, prompt_tokens_details={"cached_tokens": 1}))
    assert (await asked(gateway.port)).header("x-sluice-cost-usd") == "0.000000028"
    stream = await asked(gateway.port, S0)
    assert stream.header("x-sluice-cost-usd") is None
    other = await asked(gateway.port, key=OTHER)  # no budget, and told all the same
    assert other.header("x-sluice-cost-usd") == "0.000000028"


async def test_streams_are_spent_too(clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}, price=PRICE))
    upstream.always(used_stream(200, 150))
    assert [refused(await asked(gateway.port, S0)) for _ in range(3)] == [False, False, True]
    assert await spent(gateway) == USD


async def test_a_budget_needs_a_price_and_says_where(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}))
    answer = await asked(gateway.port)
    assert answer.status == 403
    assert (answer.error["type"], answer.error["code"]) == ("permission_error", "model_not_allowed")
    assert "models.m-small.candidates[0].price" in answer.error["message"]
    assert answer.header("x-should-retry") == "false"
    assert upstream.calls == []
    free = await asked(gateway.port, key=OTHER)
    assert free.status == 200
    assert free.header("x-sluice-cost-usd") is None


async def test_an_engine_of_ones_own_costs_nothing(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 1}, upstream={"kind": "vllm"}))
    answer = await asked(gateway.port)
    assert answer.status == 200
    assert answer.header("x-sluice-cost-usd") == "0"


@pytest.mark.parametrize("how", ["drained", "killed"])
async def test_a_budget_survives_a_restart(upstream: FaultUpstream, tmp_path: Path, how: str) -> None:
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    config = limited(upstream.url, {"usd_per_day": 1}, price=PRICE, usage=usage)
    upstream.always(used(200, 150))
    with GatewayProcess(config, tmp_path) as gateway:
        assert not refused(await asked(gateway.port, PING))
        if how == "killed":
            await written(tmp_path / "usage.db", USD // 2)
            gateway.process.kill()
            gateway.process.wait(10)
    with GatewayProcess(config, tmp_path) as gateway:
        assert not refused(await asked(gateway.port, PING))
        assert refused(await asked(gateway.port, PING))
        assert not refused(await asked(gateway.port, PING, key=OTHER))


async def written(file: Path, nano_usd: int) -> None:
    """Waits until the file has it: sums are written about once a second."""

    def there() -> bool:
        with closing(sqlite3.connect(file)) as opened:
            return opened.execute("SELECT sum(nano_usd) FROM usage").fetchone() == (nano_usd,)

    await eventually(there, "the ledger is written")


@pytest.mark.parametrize(("limits", "starts"), [({"usd_per_day": 1}, False), ({"rpm": 10}, True)])
async def test_a_locked_ledger_ends_the_start_only_where_a_budget_needs_it(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    starts: bool,
) -> None:
    impatient = partial(SqliteUsageStore, lock_timeout=0.01)
    monkeypatch.setattr("gateway.assembly.accounts.SqliteUsageStore", impatient)
    path = tmp_path / "usage.db"
    config = limited(upstream.url, limits, price=PRICE, usage={"store": "sqlite", "path": str(path)})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        if starts:
            assert (await asked((await start_gateway(config)).port)).status == 200
        else:
            with pytest.raises(UsageUnavailable, match="database is locked"):
                await start_gateway(config)
