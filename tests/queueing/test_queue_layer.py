"""Waiting for a permit, in virtual time."""

import asyncio
from collections.abc import Awaitable
from itertools import pairwise
from typing import cast

import pytest
from doubles.virtual_time import run, virtual
from kit.calls import make_call
from kit.pipeline_scene import PipelineScene

from gateway.core.call import Call, Candidate, Reply, TokenEstimate, TokenUsage
from gateway.core.caller import BATCH, INTERACTIVE, Caller, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, REQUEST_TOO_LARGE, ErrorKind, Rejection
from gateway.core.stream import EventStream
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import UpstreamQueue

Task = asyncio.Task[Reply | Rejection]

STREAM = cast(EventStream, object())
LOCAL = Candidate("local", "up", b'"up"')


class Scene(PipelineScene):
    """A queue layer before one upstream that answers on demand, or after `hold` seconds."""

    def __init__(
        self, permits: int = 1, max_queue: int = 100, pace: Pace | None = None, hold: float | None = None
    ) -> None:
        super().__init__(permits=permits, max_queue=max_queue, pace=pace)
        self.queue = self.queues["local"]
        self.handle = self.queue_layer(self.upstream)
        self.hold = hold
        self.sent: list[tuple[str, float]] = []  # key, and seconds since the beginning
        self.answers: list[asyncio.Future[None]] = []

    async def upstream(self, call: Call) -> Reply | Rejection:
        assert call.caller is not None
        self.sent.append((call.caller.name, self.loop.time() - self.started))
        answer: asyncio.Future[None] = self.loop.create_future()
        self.answers.append(answer)
        if self.hold is not None:
            self.loop.call_later(self.hold, answer.set_result, None)
        await answer
        call.usage.tokens = TokenUsage(5, 5)
        return Reply(200, stream=STREAM) if call.request.stream else Reply(200, b"{}")

    def call(
        self,
        key: str = "a",
        stream: bool = False,
        tokens: int | None = 10,
        patience: float | None = None,
        priority: Priority = INTERACTIVE,
        upstream: str = "local",
    ) -> Call:
        call = make_call(now=self.loop.time())
        call.caller, call.routing.candidate = Caller(key, None), Candidate(upstream, "up", b'"up"')
        call.request.stream, call.priority = stream, priority
        call.usage.estimate = None if tokens is None else TokenEstimate(tokens // 2, tokens - tokens // 2, False)
        if patience is not None:
            call.timing.deadline = self.loop.time() + patience
        return call

    async def served(self, call: Call, after: Awaitable[object] | None = None) -> Reply | Rejection:
        """Handle the call as the server does; `after` is how long the client takes to read the answer."""
        try:
            reply = await self.handle(call)
            if after is not None:
                await after
            return reply
        finally:
            call.lease.settle(call, self.loop.time())

    async def start(self, call: Call, after: Awaitable[object] | None = None) -> Task:
        """Start the call and run until it blocks."""
        task = asyncio.create_task(self.served(call, after))
        await self.settled()
        return task

    def empty(self) -> bool:
        """Whether no call waits or holds a permit, and no timer is left."""
        return self.idle() and not self.timers()


@virtual
async def test_with_a_free_permit_a_call_passes_and_leaves_nothing_behind():
    scene = Scene(hold=2.0)
    call = scene.call()
    assert isinstance(await scene.served(call), Reply)
    assert call.timing.queue_s == 0.0
    assert scene.waits == [0.0]
    assert scene.empty()


@virtual
async def test_a_call_that_passes_at_once_creates_neither_future_nor_timer():
    scene = Scene()
    call = scene.call(stream=True, patience=60.0)
    begun = scene.handle(call)
    assert asyncio.iscoroutine(begun)
    begun.send(None)
    assert scene.timers() == []
    begun.close()
    call.lease.settle(call, scene.loop.time())
    assert scene.empty()


@virtual
async def test_further_calls_wait_for_a_permit():
    scene = Scene(permits=2, hold=2.0)
    calls = [scene.call() for _ in range(5)]
    await asyncio.gather(*map(scene.served, calls))
    assert [at for _, at in scene.sent] == [0, 0, 2, 2, 4]
    assert [call.timing.queue_s for call in calls] == [0, 0, 2, 2, 4]
    assert scene.waits == [0, 0, 2, 2, 4]
    assert scene.empty()


@virtual
async def test_the_gauges_show_calls_in_flight_and_waiting():
    scene = Scene(permits=2)
    tasks = [await scene.start(scene.call()) for _ in range(5)]
    assert (scene.queue_layer.in_flight(), scene.queue_layer.depth()) == ({"local": 2}, {"local": 3})
    await cancelled(*tasks)
    assert scene.empty()


@virtual
async def test_the_higher_class_and_the_lighter_key_go_first():
    scene = Scene(hold=1.0)
    calls = [
        scene.call("x", tokens=100),
        scene.call("c", priority=BATCH),
        scene.call("x"),
        scene.call("b"),
    ]
    await asyncio.gather(*map(scene.served, calls))
    assert [key for key, _ in scene.sent] == ["x", "b", "x", "c"]


@virtual
async def test_the_permit_of_a_complete_answer_does_not_wait_for_a_slow_client():
    scene = Scene(hold=1.0)
    slow = scene.loop.create_future()
    first = await scene.start(scene.call(), after=slow)
    await scene.served(scene.call())
    assert [at for _, at in scene.sent] == [0, 1]
    assert not first.done()
    slow.set_result(None)
    await first
    assert scene.empty()


@virtual
async def test_the_permit_of_a_stream_is_held_to_its_last_byte():
    scene = Scene(hold=1.0)
    first = await scene.start(scene.call(stream=True), after=asyncio.sleep(9.0))
    await scene.served(scene.call(stream=True))
    assert [at for _, at in scene.sent] == [0, 10]
    await first
    assert scene.empty()


async def fails(stream: bool) -> None:
    scene = Scene()
    first = await scene.start(scene.call(stream=stream))
    second = await scene.start(scene.call())
    scene.answers[0].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await first
    await scene.settled()
    scene.answers[1].set_result(None)
    await second
    assert scene.empty()


@virtual
async def test_a_failure_returns_the_permit():
    for stream in (False, True):
        await fails(stream)


@virtual
async def test_the_real_tokens_are_charged():
    scene = Scene(hold=0.0)
    await scene.served(scene.call(tokens=1000))
    used = scene.queue.token_counter.of("a") / scene.queue.token_counter.weight(scene.loop.time())
    assert used == pytest.approx(10)


@virtual
async def test_an_abandoned_stream_is_charged_for_what_had_passed():
    scene = Scene()
    call = scene.call(tokens=1000, stream=True)
    task = await scene.start(call)
    call.usage.generated = 20
    await cancelled(task)
    used = scene.queue.token_counter.of("a") / scene.queue.token_counter.weight(scene.loop.time())
    assert used == pytest.approx(520)


@virtual
async def test_a_call_without_an_estimate_counts_as_one_token():
    scene = Scene()
    task = await scene.start(scene.call(tokens=None))
    assert scene.queue.token_counter.of("a") / scene.queue.token_counter.weight(scene.loop.time()) == pytest.approx(1)
    await cancelled(task)


# Rejections.


@virtual
async def test_a_full_room_rejects():
    scene = Scene(max_queue=0)
    going = await scene.start(scene.call())
    assert kind_of(await scene.served(scene.call())) is QUEUE_FULL
    await cancelled(going)
    assert scene.empty()


@virtual
async def test_an_evicted_call_is_rejected():
    scene = Scene(max_queue=2, hold=5.0)
    going, stays, gives_way = [await scene.start(scene.call()) for _ in range(3)]
    other = await scene.start(scene.call("b"))
    assert kind_of(await gives_way) is QUEUE_FULL
    await asyncio.gather(going, stays, other)
    assert sorted(key for key, _ in scene.sent) == ["a", "a", "b"]
    assert scene.empty()


@virtual
async def test_a_wait_that_outlasts_the_caller_is_rejected_at_once():
    scene = Scene(hold=4.0)
    await scene.served(scene.call())
    going = await scene.start(scene.call())
    rejection = await scene.served(scene.call(patience=3.0))
    assert kind_of(rejection) is DEADLINE_IN_QUEUE
    assert rejection.retry_after == 4.0
    await going
    assert scene.empty()


@virtual
async def test_a_deadline_that_passes_in_the_queue_ends_the_wait():
    scene = Scene()
    going = await scene.start(scene.call())
    call = scene.call(patience=3.0)
    rejection = await scene.served(call)
    assert kind_of(rejection) is DEADLINE_IN_QUEUE
    assert call.timing.queue_s == pytest.approx(3.0)
    assert scene.waits == [0.0, pytest.approx(3.0)]
    assert scene.queue_layer.depth() == {"local": 0}
    await cancelled(going)
    assert scene.empty()


@virtual
async def test_a_call_that_went_in_time_is_not_ended_by_its_deadline():
    scene = Scene()
    going = await scene.start(scene.call())
    waits = await scene.start(scene.call(patience=3.0))
    await scene.at(2.0)
    scene.answers[0].set_result(None)
    await going
    await scene.settled()
    assert scene.timers() == []
    await scene.at(4.0)
    scene.answers[1].set_result(None)
    assert isinstance(await waits, Reply)


@virtual
async def test_a_call_larger_than_the_rate_is_rejected_at_once():
    scene = Scene(pace=Pace(None, 600))
    for input_tokens, output, capped in [(601, 0, False), (300, 301, True)]:
        call = scene.call()
        call.usage.estimate = TokenEstimate(input_tokens, output, capped)
        assert kind_of(await scene.served(call)) is REQUEST_TOO_LARGE
    assert scene.empty()


@virtual
async def test_an_uncapped_estimate_makes_no_call_larger_than_the_rate():
    scene = Scene(pace=Pace(None, 600), hold=1.0)
    for call in (scene.call(), scene.call()):
        call.usage.estimate = TokenEstimate(300, 5000, False)
        assert isinstance(await scene.served(call), Reply)
    assert [at for _, at in scene.sent] == [0.0, 60.5]  # the first call used the whole minute
    assert not any([*scene.queue_layer.depth().values(), *scene.queue_layer.in_flight().values()])


# Leaving.


@virtual
async def test_a_call_that_leaves_while_waiting_takes_no_permit():
    scene = Scene(max_queue=1, hold=5.0)
    going = await scene.start(scene.call())
    left = await scene.start(scene.call())
    await cancelled(left)
    assert scene.queue_layer.depth() == {"local": 0}
    stays = await scene.start(scene.call("b"))
    await asyncio.gather(going, stays)
    assert [key for key, _ in scene.sent] == ["a", "b"]
    assert scene.empty()


@pytest.mark.parametrize("first", ["grant", "cancel"])
def test_rate_09_a_permit_that_meets_a_cancellation_goes_to_the_next(first: str):
    async def scenario() -> None:
        scene = Scene()
        over = scene.call("x", stream=True)
        going = await scene.start(over, after=scene.loop.create_future())
        left, stays = [await scene.start(scene.call(key)) for key in "ab"]
        scene.answers[0].set_result(None)
        await scene.settled()
        steps = [lambda: over.lease.settle(over, scene.loop.time()), left.cancel]
        for step in steps if first == "grant" else reversed(steps):
            step()
        assert not left.done()  # its task has not run in between
        with pytest.raises(asyncio.CancelledError):
            await left
        await scene.settled()
        assert [key for key, _ in scene.sent] == ["x", "b"]
        assert scene.queue_layer.in_flight() == {"local": 1}
        assert scene.queue.token_counter.of("a") == 0.0
        await cancelled(going, stays)
        assert scene.empty()

    run(scenario())


@virtual
async def test_rate_09_cancelled_waiters_use_no_turns_of_the_pace():
    scene = Scene(permits=50, pace=Pace(60, None), hold=0.0)
    tasks = [await scene.start(scene.call(str(number))) for number in range(50)]
    await scene.at(0.5)
    await cancelled(*tasks[1:40:2])
    await asyncio.gather(*(task for task in tasks if not task.cancelled()))
    times = [at for _, at in scene.sent]
    assert len(times) == 30
    assert all(1 - 1e-5 <= later - earlier < 1.01 for earlier, later in pairwise(times))
    assert scene.empty()


# Pacing.


@virtual
async def test_paced_calls_wait_and_do_not_fail():
    scene = Scene(permits=10, pace=Pace(120, None), hold=0.1)
    calls = [scene.call() for _ in range(5)]
    await asyncio.gather(*map(scene.served, calls))
    assert [at for _, at in scene.sent] == pytest.approx([0, 0, 0.5, 1, 1.5], abs=0.01)
    assert [call.timing.queue_s for call in calls] == pytest.approx([0, 0, 0.5, 1, 1.5], abs=0.01)
    assert scene.empty()


@virtual
async def test_a_permit_returned_while_the_pace_holds_is_used_in_time():
    scene = Scene(permits=1, pace=Pace(60, None), hold=0.1)
    await asyncio.gather(scene.served(scene.call()), scene.served(scene.call()))
    assert [at for _, at in scene.sent] == pytest.approx([0, 1], abs=0.01)
    assert scene.empty()


@virtual
async def test_a_call_held_behind_an_evicted_call_goes_at_once():
    scene = Scene(permits=2, max_queue=2, pace=Pace(None, 600))
    scene.queues["other"] = UpstreamQueue("other", 1)
    going = [await scene.start(scene.call(tokens=300)), await scene.start(scene.call(upstream="other"))]
    large, small = (
        await scene.start(scene.call("l", tokens=400)),
        await scene.start(scene.call("s", tokens=1)),
    )
    await scene.at(40.0)
    assert scene.queue_layer.depth() == {"local": 2, "other": 0}
    newcomer = await scene.start(scene.call("n", upstream="other"))
    assert kind_of(await large) is QUEUE_FULL
    assert scene.sent[-1] == ("s", 40.0)
    await cancelled(*going, small, newcomer)
    assert scene.empty()


@virtual
async def test_a_paced_queue_has_one_timer():
    scene = Scene(permits=10, pace=Pace(60, None))
    tasks = [await scene.start(scene.call()) for _ in range(5)]
    assert len(scene.timers()) == 1
    await cancelled(*tasks)
    assert scene.empty()


@virtual
async def test_rate_07_a_large_call_neither_starves_nor_blocks_for_long():
    scene = Scene(permits=50, pace=Pace(None, 60), hold=0.0)
    tasks = [await scene.start(scene.call("a", tokens=20)), await scene.start(scene.call("a", tokens=60))]
    for number in range(40):
        await scene.at(1 + number / 2)
        tasks.append(await scene.start(scene.call("a", tokens=1)))
    await asyncio.gather(*tasks)
    times = [at for _, at in scene.sent]
    assert times == sorted(times)
    assert times[1] <= 121.0  # two windows


@virtual
async def test_an_advertised_quota_holds_calls_and_a_better_quota_releases_them():
    scene = Scene(permits=10, pace=Pace(6000, None), hold=0.0)
    word = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}
    scene.queue_layer.learn(LOCAL, word)
    first = await scene.start(scene.call())
    await scene.at(5.0)
    assert scene.sent == []
    scene.queue_layer.learn(LOCAL, {**word, "x-ratelimit-remaining-requests": "1"})
    await first
    await scene.served(scene.call())
    assert [at for _, at in scene.sent] == pytest.approx([5.0, 25.0], abs=0.01)
    assert scene.empty()


@virtual
async def test_an_upstream_without_a_rate_has_nothing_to_learn():
    scene = Scene(hold=0.0)
    scene.queue_layer.learn(LOCAL, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"})
    await scene.served(scene.call())
    assert scene.sent == [("a", 0.0)]


def kind_of(reply: Reply | Rejection) -> ErrorKind:
    assert isinstance(reply, Rejection)
    return reply.kind


async def cancelled(*tasks: Task) -> None:
    """Cancel the tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
