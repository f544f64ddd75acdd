"""A queue whose engine has a KV ledger: who goes, who waits for room, and what a refusal of the engine means."""

import asyncio
import math
from collections.abc import Callable

import pytest
from doubles.virtual_time import virtual
from kit.calls import make_call, make_route
from kit.pipeline_scene import PipelineScene

from gateway.admission.engine_admission import PAUSE_S, EngineAdmission, EngineLoad
from gateway.core.call import Call, Reply
from gateway.core.errors import STATUS, UPSTREAM_UNAVAILABLE, Rejection, UpstreamFailure
from gateway.core.tokens import TokenEstimate, TokenUsage
from gateway.queueing.spill_timer import MOVED

CAPACITY = 1000


def engine_full() -> UpstreamFailure:
    return UpstreamFailure(UPSTREAM_UNAVAILABLE, "full", cause=STATUS, status=503, engine_full=True)


class Scene(PipelineScene):
    """An engine of 1000 tokens; each call takes a second. `refuses` counts how many it refuses first."""

    def __init__(self, capacity: int | None = CAPACITY, upstreams: tuple[str, ...] = ("local",)) -> None:
        super().__init__(upstreams, permits=64)
        self.admission = EngineAdmission()
        self.queue = self.queues["local"]
        self.queue.admission = self.admission
        self.running: list[Call] = []
        self.order: list[str] = []
        self.refuses = 0
        self.fails: Callable[[], BaseException] | None = None
        self.handle = self.queue_layer(self.answer)
        self.read(capacity=capacity)

    def read(self, *, capacity: int | None = CAPACITY, running: int = 0, kv: float = 0.0, preempted: int = 0) -> None:
        load = EngineLoad(running, 0, kv, preempted, capacity, 1)
        self.admission.read(load, self.queue.in_flight, self.queue.waiting > 0, self.loop.time())
        self.queue_layer.grant_next("local")

    async def answer(self, call: Call) -> Reply | Rejection:
        self.order.append(call.request.id)
        if self.refuses:
            self.refuses -= 1
            raise engine_full()
        self.running.append(call)
        try:
            await asyncio.sleep(1.0)
            if self.fails is not None:
                raise self.fails()
        finally:
            self.running.remove(call)
        call.usage.tokens = TokenUsage(0, 100)
        call.timing.answered_at = self.loop.time()
        return Reply(200, b"{}")

    def start(self, name: str = "x", prompt: int = 100, cap: int = 100) -> "asyncio.Task[Reply | Rejection]":
        call = make_call(
            now=self.loop.time(),
            request_id=name,
            route=make_route(),
            estimate=TokenEstimate(prompt, cap, True),
            body=b"{}",
        )
        return self.loop.create_task(self.served(call))

    def empty(self) -> bool:
        return self.idle() and not len(self.admission.ledger) and self.admission.ledger.tokens(self.loop.time()) == 0


@virtual
async def test_calls_wait_for_room_in_the_cache_although_permits_are_free():
    scene = Scene()
    tasks = [scene.start(str(number)) for number in range(8)]
    await scene.settled()
    assert len(scene.running) == 4  # 4 * 201 tokens, and a fifth would need more than 950
    assert scene.queue.free > 0
    await asyncio.gather(*tasks)
    assert scene.order == [str(number) for number in range(8)]
    assert scene.empty()


@virtual
async def test_a_call_that_does_not_fit_is_not_overtaken():
    scene = Scene()
    first, large = scene.start("first", 500, 100), scene.start("large", 500, 100)
    small = scene.start("small", 1, 1)
    await scene.settled()
    assert [call.request.id for call in scene.running] == ["first"]
    await asyncio.gather(first, large, small)
    assert scene.order == ["first", "large", "small"]


@virtual
async def test_without_a_known_cache_only_the_limit_counts():
    scene = Scene(capacity=None)
    tasks = [scene.start() for _ in range(80)]
    await scene.settled()
    assert len(scene.running) == 64
    await asyncio.gather(*tasks)
    assert scene.empty()


@virtual
async def test_a_reading_that_shows_room_lets_calls_go():
    scene = Scene()
    scene.read(running=50, kv=0.9)
    tasks = [scene.start() for _ in range(2)]
    await scene.settled()
    assert len(scene.running) == 1  # a lone call always goes
    scene.read(running=1, kv=0.2)
    await scene.settled()
    assert len(scene.running) == 2
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("how", ["fails", "is cancelled", "is cancelled while it waits"])
@virtual
async def test_nothing_stays_in_the_ledger_of_a_call_that(how: str):
    scene = Scene()
    if how == "fails":
        scene.fails = lambda: UpstreamFailure(UPSTREAM_UNAVAILABLE, "died", cause="reset")
    tasks = [scene.start() for _ in range(8)]
    await scene.settled()
    if how == "is cancelled":
        for task in tasks[:4]:
            task.cancel()
    elif how == "is cancelled while it waits":
        for task in tasks[4:]:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert scene.empty()


@virtual
async def test_a_refused_call_keeps_its_place_and_goes_when_the_engine_has_room():
    scene = Scene()
    scene.refuses = 1
    first, second = scene.start("first"), scene.start("second")
    await scene.settled()
    third = scene.start("third")
    await scene.at(PAUSE_S - 0.01)
    assert (len(scene.running), scene.queue.waiting) == (0, 3)
    replies = await asyncio.gather(first, second, third)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert scene.order == ["first", "first", "second", "third"]
    assert scene.empty()


@virtual
async def test_an_engine_that_refuses_on_is_asked_ten_times_a_second_and_then_no_more():
    scene = Scene()
    scene.refuses = 10**6
    scene.queue.total_s = 2.0
    reply = await scene.start()
    assert isinstance(reply, Rejection)
    assert reply.kind.code == "deadline_in_queue"
    assert len(scene.order) <= 2.0 / PAUSE_S + 1
    assert scene.empty()


@virtual
async def test_a_refused_call_spills_over_at_once():
    scene = Scene(upstreams=("local", "paid"))
    scene.refuses = 1
    scene.queue_layer.spills = lambda call, now: True
    call = make_call(now=scene.loop.time(), route=make_route(), estimate=TokenEstimate(1, 1, True), max_wait_s=5.0)
    assert await scene.served(call) is MOVED
    assert scene.empty()


@virtual
async def test_the_same_503_of_an_upstream_without_a_ledger_is_a_failure():
    scene = Scene()
    scene.queue.admission = None
    scene.refuses = 1
    with pytest.raises(UpstreamFailure):
        await scene.start()
    assert scene.idle()


@virtual
async def test_a_refusal_lowers_the_limit_to_what_the_engine_had():
    scene = Scene(capacity=None)
    tasks = [scene.start() for _ in range(10)]
    await scene.settled()
    scene.refuses = 1
    tasks.append(scene.start())
    await scene.settled()
    assert scene.admission.limit.value == 10
    await asyncio.gather(*tasks)


@virtual
async def test_a_queue_is_full_for_a_call_that_does_not_fit():
    scene = Scene()
    task = scene.start("x", 700, 100)
    await scene.settled()
    now = scene.loop.time()
    assert scene.queue.full(now, TokenEstimate(100, 100, True), "a", "up")
    assert not scene.queue.full(now, TokenEstimate(10, 10, True), "a", "up")
    await task


@virtual
async def test_the_expected_wait_counts_what_the_cache_holds_and_not_the_permits():
    scene = Scene()
    await scene.start()
    tasks = [scene.start(str(number)) for number in range(12)]
    await scene.settled()
    waiter = next(iter(next(iter(scene.queue.models["up"].keys.values())).interactive.waiters))
    wait = scene.queue.expected_wait(waiter, scene.loop.time())
    assert wait is not None
    assert 1.0 < wait < 4.0
    assert math.isclose(scene.queue.drain_time(4, 0.0) or 0.0, 1.0, rel_tol=0.2)
    await asyncio.gather(*tasks)


def test_only_the_gateways_share_of_an_engine_is_given_out_by_each_of_its_workers():
    admission = EngineAdmission(workers=4)
    admission.read(EngineLoad(0, 0, 0.5, 0, 8000, 16), 0, False, 0.0)
    assert (admission.ledger.capacity, admission.engine_tokens) == (2000, 4000)
    tokens = admission.kv_tokens(0.0)
    assert tokens is not None
    assert (tokens.capacity, tokens.engine) == (8000, 4000)
