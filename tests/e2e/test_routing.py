"""Routes end to end: who is called, what the client is told of it, and what is counted."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import call as raw_call
from doubles.routed import routed
from doubles.script import NEVER, full
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask

from gateway.assembly.gateway import Gateway
from gateway.config.load import load
from gateway.config.model import Config


def config(
    *urls: str, route: str = "priority", candidates: tuple[Mapping[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    """As `routed`, with this route, these fields of the candidates, and `model` fields of the model."""
    model = more.pop("model", {})
    made = routed(*urls, **more)
    small = made["models"]["m-small"]
    small["route"] = route
    small.update(model)
    for one, fields in zip(small["candidates"], candidates, strict=False):
        one.update(fields)
    return made


def price(input: float, output: float) -> dict[str, Any]:
    """The fields of a candidate with this price."""
    return {"price": {"input": input, "output": output}}


DEAR, CHEAP, FREE = price(3, 15), price(0.28, 0.42), price(0, 0)
TOOLS = {**C0, "tools": [{"type": "function", "function": {"name": "f"}}]}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_route_10_the_cheapest_is_called_wherever_it_stands(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, body: Any
) -> None:
    gateway = await start_gateway(config(upstream.url, other.url, route="cheapest", candidates=(DEAR, CHEAP)))
    answer = await ask(gateway.port, body)
    assert answer.status == 200
    assert answer.header("x-sluice-upstream") == "b"
    assert (answer.header("x-sluice-routing") or "").startswith("cheapest; est_usd=0.0")
    assert not upstream.calls
    await gateway.counted("sluice_routing_decisions_total", 1, model="m-small", upstream="b", reason="cheapest")


async def test_cost_07_zero_is_a_price_and_an_unknown_one_is_not_zero(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream.url, other.url, route="cheapest", candidates=({}, DEAR)))
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
    gateway = await start_gateway(config(upstream.url, other.url, route="cheapest", candidates=(DEAR, FREE)))
    answer = await ask(gateway.port, C0)
    assert answer.header("x-sluice-upstream") == "b"
    assert answer.header("x-sluice-routing") == "cheapest; est_usd=0"


async def test_a_cheap_one_that_fails_is_replaced_by_the_next_cheapest_and_left_alone(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    async with FaultUpstream() as third:
        gateway = await start_gateway(
            config(
                upstream.url,
                other.url,
                third.url,
                route="cheapest",
                candidates=(DEAR, CHEAP, FREE),
                retry={"budget": 1.0},
                upstream={"breaker": {"failures": 3}},
            )
        )
        third.always(replies.error(500))
        for _ in range(6):
            assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
        assert (len(upstream.calls), len(other.calls), len(third.calls)) == (0, 6, 3)
        await gateway.counted("sluice_routing_decisions_total", 3, upstream="b", reason="cheapest")


async def test_weights_are_shares(upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(
        config(upstream.url, other.url, route="weighted", candidates=({"weight": 0}, {"weight": 2}))
    )
    for _ in range(5):
        answer = await ask(gateway.port, C0)
        assert answer.header("x-sluice-routing") == "weighted"
    assert (len(upstream.calls), len(other.calls)) == (0, 5)


async def test_idle_replicas_share_and_a_busy_one_is_spared(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream.url, other.url, route="least_loaded"))
    for _ in range(4):
        await ask(gateway.port, C0)
    assert (len(upstream.calls), len(other.calls)) == (2, 2)
    upstream.always([NEVER])
    held = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(2)]
    await upstream.holding(1)
    for _ in range(4):
        assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_conversation_stays_with_its_replica(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(config(upstream.url, other.url, route="least_loaded"))
    served: dict[int, set[str | None]] = {number: set() for number in range(4)}
    told = Counter[str | None]()
    for turn in range(3):
        for number, names in served.items():
            messages = [{"role": "user", "content": f"{number} " + "word " * 200}]
            for one in range(turn):
                messages += [
                    {"role": "assistant", "content": "a"},
                    {"role": "user", "content": f"and {one}?"},
                ]
            answer = await ask(gateway.port, {"model": "m-small", "messages": messages})
            names.add(answer.header("x-sluice-upstream"))
            told[answer.header("x-sluice-routing")] += 1
    assert all(len(names) == 1 for names in served.values())
    assert len(upstream.calls) == len(other.calls) == 6
    assert told == {"least_loaded": 4, "affinity": 8}


async def test_calls_go_where_they_can_be_served(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    able = ({"capabilities": []}, {"capabilities": ["tools"], "max_output": 100})
    gateway = await start_gateway(config(upstream.url, other.url, candidates=able))
    assert (await ask(gateway.port, TOOLS)).header("x-sluice-upstream") == "b"
    assert (await ask(gateway.port, {**C0, "max_tokens": 101})).header("x-sluice-upstream") == "a"
    refused = await ask(gateway.port, {**C0, "response_format": {"type": "json_schema", "json_schema": {}}})
    assert refused.status == 400
    error = json.loads(refused.body)["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "response_format")
    assert "`json_schema`" in error["message"]
    assert len(upstream.calls) + len(other.calls) == 2


def keyed(made: dict[str, Any], usd: float) -> dict[str, Any]:
    """With a key that may spend so much a day."""
    return {**made, "keys": [{"name": "team-a", "key": KEY, "limits": {"usd_per_day": usd}}]}


async def test_a_budget_that_is_spent_leaves_what_is_free(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    """The answers of the doubles have 5 tokens in and 2 out: 12 dollars a million are 84 micro-dollars."""
    made = config(upstream.url, other.url, candidates=(price(12, 12), FREE))
    gateway = await start_gateway(keyed(made, 0.0002))
    names = []
    for _ in range(5):
        answer = await raw_call(gateway.port, "POST", "/v1/chat/completions", {**C0, "max_tokens": 2}, headers=[AUTH])
        assert answer.status == 200
        names.append(answer.header("x-sluice-upstream"))
    assert names[0] == "a"
    assert names[-1] == "b"
    assert names == sorted(names)
    assert answer.header("x-sluice-routing") == "priority; budget"
    assert len(upstream.calls) * 84 <= 200


async def test_a_budget_that_is_spent_reaches_no_fallback(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = keyed(config(upstream.url, fallbacks=(other.url,), candidates=(FREE,)), 0.001)
    made["models"]["m-x"]["candidates"][0].update(price(1000, 1000))
    gateway = await start_gateway(made)
    upstream.always(replies.error(500))
    answer = await ask(gateway.port, {**C0, "max_tokens": 2}, headers=[AUTH])
    assert answer.status == 502
    assert other.calls == []


async def test_a_fallback_that_alone_can_do_it_and_is_too_dear_is_a_matter_of_money(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    unable = ({**FREE, "capabilities": []},)
    made = keyed(config(upstream.url, fallbacks=(other.url,), candidates=unable), 0.001)
    made["models"]["m-x"]["candidates"][0].update(price(1000, 1000))
    gateway = await start_gateway(made)
    answer = await ask(gateway.port, {**TOOLS, "max_tokens": 2}, headers=[AUTH])
    assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
    assert upstream.calls == other.calls == []


async def test_the_own_engine_is_full_so_the_call_goes_on_after_the_bound(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    made = config(upstream.url, other.url, candidates=(FREE, DEAR), model={"spill_after": "50ms"})
    made["upstreams"]["a"]["max_concurrency"] = 1
    gateway = await start_gateway(made)
    upstream.always([NEVER])
    held = asyncio.create_task(ask(gateway.port, C0))
    await upstream.holding(1)
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    assert answer.header("x-sluice-routing") == "spill; waited=0.1s"
    assert float(answer.header("x-sluice-queue-ms") or 0) >= 50
    await gateway.counted("sluice_routing_decisions_total", 1, upstream="b", reason="spill")
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    await gateway.counted("sluice_upstream_inflight", 0)


VLLM = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"


async def test_what_an_engine_says_is_shown_and_nobody_else_is_asked(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    upstream.has_metrics = True
    upstream.always([full(VLLM, content_type="text/plain")])
    made = config(upstream.url, other.url, route="least_loaded")
    made["upstreams"]["a"]["kind"] = "vllm"
    gateway = await start_gateway(made)
    shown: dict[str, Any] = {}
    async with asyncio.timeout(5):
        while shown.get("a", {}).get("engine") is None:
            shown = json.loads((await raw_call(gateway.admin_port, "GET", "/admin/upstreams")).body)
    assert shown["a"]["engine"] == {"running": 3, "waiting": 1, "kv": 0.5}
    assert shown["b"]["engine"] is None
    assert [call.target for call in upstream.calls] == ["/metrics"]
    assert other.calls == []


async def test_an_engine_that_no_route_needs_any_more_is_left_alone_after_a_reload(
    upstream: FaultUpstream, other: FaultUpstream, tmp_path: Path
) -> None:
    upstream.has_metrics = True
    upstream.always([full(VLLM, content_type="text/plain")])
    made = config(upstream.url, other.url, route="least_loaded")
    made["upstreams"]["a"] |= {"kind": "vllm", "max_concurrency": 64}
    plain = {
        **made,
        "models": {**made["models"], "m-small": {**made["models"]["m-small"], "route": "priority"}},
    }
    gateway = Gateway(loaded(made, tmp_path))
    await gateway.start()
    try:
        engines = gateway._pipeline.engines
        await upstream.received(1)
        await gateway.reload(loaded({**made, "retry": {"attempts": 3}}, tmp_path))
        assert gateway._pipeline.engines is engines
        await gateway.reload(loaded(plain, tmp_path))
        assert gateway._pipeline.engines.sources == {}
        async with asyncio.timeout(5):
            await asyncio.wait(engines._tasks)
    finally:
        await gateway.close()


def loaded(made: dict[str, Any], folder: Path) -> Config:
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    read = load(file, {}).config
    assert read is not None
    return read
