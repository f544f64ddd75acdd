"""An upstream that states a rate: calls wait below it and do not fail. And what workers share of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, Metrics, StartGateway
from doubles.limited import FrozenClock, asked, limited, used
from doubles.rawclient import RawClient
from doubles.script import NEVER, Until
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask


async def test_calls_beyond_a_seconds_worth_wait_and_do_not_fail(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"rate": {"rpm": 1200}}))
    tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(22)]
    await gateway.counted("sluice_requests_total", 20, outcome="ok")
    await gateway.counted("sluice_upstream_queue_depth", 2)
    for sent in (20, 21, 22):
        await upstream.received(sent)
        assert len(upstream.calls) == sent
        clock.passes(0.05)
    answers = await asyncio.gather(*tasks)
    assert {one.status for one in answers} == {200}
    assert sorted(float(one.header("x-sluice-queue-ms") or 0) for one in answers)[19:] == [0, 50, 100]


async def test_tokens_are_paced_for_everybody(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Also where no key has a limit that would have needed an estimate."""
    gateway = await start_gateway(settings(upstream.url, upstream={"rate": {"tpm": 600_000}}))
    # 10,000 are a second's worth: the meter is half a tenth of a second in debt afterwards.
    assert (await ask(gateway.port, {**C0, "max_tokens": 10_500})).status == 200
    second = asyncio.create_task(ask(gateway.port, {**C0, "max_tokens": 10}))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    assert len(upstream.calls) == 1
    clock.passes(0.06)
    assert (await second).status == 200


async def test_a_call_larger_than_its_minute_is_refused(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 10**6}, upstream={"rate": {"tpm": 1000}}))
    answer = await asked(gateway.port, {**C0, "max_tokens": 1001})
    assert (answer.status, answer.error["code"]) == (429, "request_too_large")
    assert answer.header("x-should-retry") == "false"
    assert upstream.calls == []


@pytest.mark.parametrize("unit", ["requests", "tokens"])
async def test_what_the_upstream_says_is_left_holds_the_next_call(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, unit: str
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"rate": {"rpm": 600_000}}))
    left = [(f"x-ratelimit-remaining-{unit}", "0"), (f"x-ratelimit-reset-{unit}", "50ms")]
    upstream.reply(replies.chat(headers=left))
    assert (await ask(gateway.port, C0)).status == 200
    second = asyncio.create_task(ask(gateway.port, C0))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    assert len(upstream.calls) == 1
    clock.passes(0.05)
    answer = await second
    assert answer.status == 200
    assert float(answer.header("x-sluice-queue-ms") or 0) == 50


async def test_who_leaves_while_the_pace_holds_him_is_never_sent(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"rate": {"rpm": 600}}))
    upstream.always(used(1, 1))
    for _ in range(10):
        assert (await ask(gateway.port, {**C0, "user": "first"})).status == 200
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, {**C0, "user": "gone"})
    await gateway.counted("sluice_upstream_queue_depth", 1)
    last = asyncio.create_task(ask(gateway.port, {**C0, "user": "last"}))
    await gateway.counted("sluice_upstream_queue_depth", 2)
    await client.close()
    await gateway.counted("sluice_upstream_queue_depth", 1)
    clock.passes(0.1)
    assert (await last).status == 200
    assert [call.json()["user"] for call in upstream.calls] == ["first"] * 10 + ["last"]


async def shows(gateway: GatewayProcess, true: Callable[[Metrics], bool]) -> None:
    """Waits until the process's metrics do."""
    async with asyncio.timeout(10):
        while not true(await asyncio.to_thread(gateway.metrics)):
            await asyncio.sleep(0.01)


async def test_workers_share_the_slots_of_an_upstream(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    config = settings(upstream.url, upstream={"max_concurrency": 3}, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        # So many connections that the kernel gives some to each worker.
        tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(30)]
        await shows(gateway, lambda seen: seen.value("sluice_upstream_queue_depth") == 27)
        assert (await asyncio.to_thread(gateway.metrics)).value("sluice_upstream_inflight") == 3
        await upstream.holding(3)
        go_on.set()
        assert {one.status for one in await asyncio.gather(*tasks)} == {200}
    assert upstream.most_in_flight == 3


async def test_workers_share_the_waiting_room(upstream: FaultUpstream, tmp_path: Path) -> None:
    upstream.always([NEVER])
    server: dict[str, Any] = {"workers": 2, "max_queue": 3, "drain": {"timeout": "10ms"}}
    config = settings(upstream.url, upstream={"max_concurrency": 2}, server=server)
    with GatewayProcess(config, tmp_path) as gateway:
        tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(30)]
        await shows(gateway, lambda seen: seen.value("sluice_requests_total", outcome="shed") == 25)
        metrics = await asyncio.to_thread(gateway.metrics)
        assert (metrics.value("sluice_upstream_inflight"), metrics.value("sluice_upstream_queue_depth")) == (
            2,
            3,
        )
        gateway.terminate()
        codes = sorted(one.error["code"] for one in await asyncio.gather(*tasks))
        assert codes == ["draining"] * 5 + ["queue_full"] * 25
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
