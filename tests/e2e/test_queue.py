"""The waiting room: who finds no slot waits, in fair order, no longer than is of use, and is not lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import OTHER, FrozenClock, asked, limited
from doubles.rawclient import Answer, RawClient
from doubles.script import NEVER, Script, Until, full
from doubles.settings import settings
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask

ONE_SLOT = {"max_concurrency": 1}
BATCH = ("x-sluice-priority", "batch")


class Slot:
    """An upstream with one slot whose answers come when a test says so, and the order of those who got it."""

    def __init__(self, upstream: FaultUpstream) -> None:
        self.upstream = upstream
        self._turns: list[asyncio.Event] = []
        upstream.always(self._answer)

    def _answer(self, call: Call) -> Script:
        self._turns.append(asyncio.Event())
        return [Until(self._turns[-1]), *replies.ordinary(call)]

    async def drain(self, calls: int) -> None:
        """Answers so many calls, one after the other."""
        done = sum(turn.is_set() for turn in self._turns)
        for number in range(done + 1, done + calls + 1):
            await self.upstream.received(number)
            self._turns[-1].set()

    def order(self) -> list[str]:
        """The `user` of each call, in the order in which the upstream saw them."""
        return [call.json()["user"] for call in self.upstream.calls]


@pytest.fixture
def slot(upstream: FaultUpstream) -> Slot:
    return Slot(upstream)


def named(user: str, **more: Any) -> dict[str, Any]:
    return {**C0, "user": user, **more}


async def waits(gateway: InProcessGateway, depth: int, *asking: Any) -> "asyncio.Task[Answer]":
    """Starts this call, and sees it wait as the last of so many."""
    task = asyncio.create_task(asked(gateway.port, *asking))
    await gateway.counted("sluice_upstream_queue_depth", depth, upstream="local")
    return task


async def test_three_calls_and_one_slot_go_in_order(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    gateway = await start_gateway(limited(upstream.url, {}, upstream=ONE_SLOT))
    first = asyncio.create_task(asked(gateway.port, named("1")))
    await upstream.received(1)
    second = await waits(gateway, 1, named("2"))
    third = await waits(gateway, 2, named("3"))
    assert (await gateway.metrics()).value("sluice_upstream_inflight", upstream="local") == 1
    await slot.drain(3)
    answers = [await one for one in (first, second, third)]
    assert [one.status for one in answers] == [200, 200, 200]
    assert slot.order() == ["1", "2", "3"]
    assert upstream.most_in_flight == 1
    assert [float(one.header("x-sluice-queue-ms") or 0) > 0 for one in answers] == [False, True, True]
    metrics = await gateway.metrics()
    assert metrics.value("sluice_upstream_queue_depth") == 0
    assert metrics.value("sluice_upstream_queue_wait_seconds_count", upstream="local") == 3
    assert metrics.value("sluice_upstream_queue_wait_seconds_sum", upstream="local") > 0


async def test_batch_goes_behind_interactive_and_nobody_raises_himself(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    config = limited(upstream.url, {}, upstream=ONE_SLOT)
    config["keys"][1]["priority"] = "batch"
    gateway = await start_gateway(config)
    tasks = [asyncio.create_task(asked(gateway.port, named("first")))]
    await upstream.received(1)
    tasks.append(await waits(gateway, 1, named("lowered"), [BATCH]))
    raised = [("x-sluice-priority", "interactive")]
    tasks.append(await waits(gateway, 2, named("not raised"), raised, CHAT, OTHER))
    tasks.append(await waits(gateway, 3, named("interactive")))
    await slot.drain(4)
    assert {(await one).status for one in tasks} == {200}
    assert slot.order()[:2] == ["first", "interactive"]
    assert set(slot.order()[2:]) == {"lowered", "not raised"}


async def test_a_key_that_floods_waits_for_itself(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    gateway = await start_gateway(limited(upstream.url, {}, upstream=ONE_SLOT))
    tasks = [asyncio.create_task(asked(gateway.port, named("flood")))]
    await upstream.received(1)
    for number in range(20):
        tasks.append(await waits(gateway, number + 1, named("flood")))
    tasks.append(await waits(gateway, 21, named("other"), (), CHAT, OTHER))
    await slot.drain(22)
    assert {(await one).status for one in tasks} == {200}
    assert slot.order().index("other") <= 2


async def test_a_full_room_refuses_and_says_when(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    config = limited(upstream.url, {}, upstream=ONE_SLOT, server={"max_queue": 1})
    gateway = await start_gateway(config)
    first = asyncio.create_task(asked(gateway.port, named("1")))
    await upstream.received(1)
    second = await waits(gateway, 1, named("2"))
    refused = await asked(gateway.port, named("3"))
    assert refused.status == 503
    assert (refused.error["type"], refused.error["code"]) == ("overloaded_error", "queue_full")
    ms = int(refused.header("retry-after-ms") or 0)
    assert ms > 0
    assert refused.header("retry-after") == str(-(-ms // 1000))
    await slot.drain(2)
    assert [(await one).status for one in (first, second)] == [200, 200]
    await gateway.counted("sluice_requests_total", 1, outcome="shed", status="503")


async def test_in_a_full_room_a_flood_gives_way_to_another_key(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    config = limited(upstream.url, {}, upstream=ONE_SLOT, server={"max_queue": 3})
    gateway = await start_gateway(config)
    first = asyncio.create_task(asked(gateway.port, named("flood 0")))
    await upstream.received(1)
    flood = [await waits(gateway, number, named(f"flood {number}")) for number in (1, 2, 3)]
    other = asyncio.create_task(asked(gateway.port, named("other"), (), CHAT, OTHER))
    newest = await flood.pop()
    assert (newest.status, newest.error["code"]) == (503, "queue_full")
    await slot.drain(4)
    assert {(await one).status for one in (first, *flood, other)} == {200}


def patient(seconds: str) -> list[tuple[str, str]]:
    """What the SDK sends along of its own time-out."""
    return [("x-stainless-read-timeout", seconds)]


async def test_who_would_wait_longer_than_it_will_is_refused_at_the_door(
    monkeypatch: pytest.MonkeyPatch, upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    clock = FrozenClock(monkeypatch)
    gateway = await start_gateway(limited(upstream.url, {}, upstream=ONE_SLOT))
    lasting = asyncio.create_task(asked(gateway.port, named("1")))
    await upstream.received(1)
    clock.passes(100)  # so long calls last, as the gateway learns here
    await slot.drain(1)
    assert (await lasting).status == 200
    tasks = [asyncio.create_task(asked(gateway.port, named("2")))]
    await upstream.received(2)
    refused = await asked(gateway.port, named("3"), patient("90"))
    assert refused.status == 503
    assert (refused.error["type"], refused.error["code"]) == ("overloaded_error", "deadline_in_queue")
    assert refused.header("retry-after") == "100"
    assert (await gateway.metrics()).value("sluice_upstream_queue_depth") == 0
    tasks.append(await waits(gateway, 1, named("4"), patient("210")))  # to wait, and to be answered
    await slot.drain(2)
    assert {(await one).status for one in tasks} == {200}
    assert slot.order() == ["1", "2", "4"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_who_waits_too_long_is_told_then(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot, stream: bool
) -> None:
    gateway = await start_gateway(limited(upstream.url, {}, upstream=ONE_SLOT))
    first = asyncio.create_task(asked(gateway.port, named("1")))
    await upstream.received(1)
    late = await asked(gateway.port, named("2", stream=stream), patient("0.05"))
    assert (late.status, late.error["code"]) == (503, "deadline_in_queue")
    assert int(late.header("retry-after-ms") or 0) > 0
    await slot.drain(1)
    assert (await first).status == 200
    assert slot.order() == ["1"]
    assert (await gateway.metrics()).value("sluice_upstream_queue_depth") == 0


async def test_who_leaves_the_queue_frees_the_place_and_is_never_sent(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    config = settings(upstream.url, upstream=ONE_SLOT, server={"max_queue": 1})
    gateway = await start_gateway(config)
    first = asyncio.create_task(ask(gateway.port, named("1")))
    await upstream.received(1)
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, named("gone"))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await client.close()
    await gateway.counted("sluice_upstream_queue_depth", 0)
    second = asyncio.create_task(ask(gateway.port, named("2")))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    await slot.drain(2)
    assert {(await one).status for one in (first, second)} == {200}
    assert slot.order() == ["1", "2"]


async def test_a_stream_that_waits_has_heartbeats(
    upstream: FaultUpstream, start_gateway: StartGateway, slot: Slot
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream=ONE_SLOT, server={"heartbeat": "50ms"}))
    first = asyncio.create_task(ask(gateway.port, named("1")))
    await upstream.received(1)
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, {**S0, "user": "2"})
        answer = await client.head()
        assert answer.status == 200
        await client.chunk(answer)
        await client.chunk(answer)
        assert answer.body == b": keep-alive\n\n" * 2
        assert len(upstream.calls) == 1
        await slot.drain(2)
        await client.rest(answer)
    assert contents(answer.body) == "pong"
    assert (await first).status == 200


async def test_a_slow_reader_of_a_whole_answer_holds_no_slot(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream=ONE_SLOT))
    upstream.reply([full(b'{"x":"' + b"y" * 8_000_000 + b'"}')])
    async with await RawClient.open(gateway.port, receive_buffer=16_384) as slow:
        await slow.request("POST", CHAT, C0)
        await slow.head()
        assert (await ask(gateway.port, C0)).status == 200
        assert (await gateway.metrics()).value("sluice_requests_total") == 1  # the slow one is not over


async def wait(gateway: GatewayProcess, depth: int) -> None:
    """Until so many calls wait in this process."""
    async with asyncio.timeout(10):
        while (await asyncio.to_thread(gateway.metrics)).value("sluice_upstream_queue_depth") != depth:
            await asyncio.sleep(0.01)


async def test_a_drain_answers_those_who_wait(upstream: FaultUpstream, tmp_path: Path, slot: Slot) -> None:
    with GatewayProcess(settings(upstream.url, upstream=ONE_SLOT), tmp_path) as gateway:
        tasks = [asyncio.create_task(ask(gateway.port, named(str(number)))) for number in range(4)]
        await upstream.received(1)
        await wait(gateway, 3)
        gateway.terminate()
        await slot.drain(4)
        assert {(await one).status for one in tasks} == {200}
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0


async def test_a_drain_that_runs_out_of_time_tells_those_who_wait(upstream: FaultUpstream, tmp_path: Path) -> None:
    upstream.always([NEVER])
    config = settings(upstream.url, upstream=ONE_SLOT, server={"drain": {"timeout": "300ms"}})
    with GatewayProcess(config, tmp_path) as gateway:
        tasks = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(3)]
        await upstream.received(1)
        await wait(gateway, 2)
        gateway.terminate()
        answers = await asyncio.gather(*tasks)
        assert {(one.status, one.error["code"]) for one in answers} == {(503, "draining")}
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
    assert len(upstream.calls) == 1
