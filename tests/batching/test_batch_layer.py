"""The batching layer in virtual time: when batches leave, and that nothing is left behind."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from doubles.virtual_time import virtual
from kit.calls import make_call
from kit.pipeline_scene import PipelineScene

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF, MergeMode
from gateway.batching.layer import BatchingLayer, BatchMetrics, BatchPolicy
from gateway.batching.profile import BatchProfile
from gateway.core.call import Call, Candidate, Reply, Route
from gateway.core.caller import Caller
from gateway.core.errors import QUEUE_FULL, STATUS, UPSTREAM_RATE_LIMITED, Rejection, UpstreamFailure
from gateway.queueing.pacing import Pace
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.embeddings import EMBEDDINGS

CANDIDATE = Candidate("local", "up", b'"up"')
ROUTE = Route("m", b'"m"', (CANDIDATE,))
Task = asyncio.Task[Reply | Rejection]
Cost = Callable[[int], float]


class Scene(PipelineScene):
    """The batching layer above a queue and an upstream that takes `cost(items)` seconds for a call."""

    def __init__(
        self,
        policy: Any = "eager",
        *,
        max_size: int = 32,
        max_tokens: int = 16384,
        max_wait: float = 0.0,
        max_inflight: int = 1,
        permits: int = 100,
        modes: tuple[MergeMode, ...] = (LOCKSTEP, GREEDY),
        pace: Pace | None = None,
        cost: Cost = lambda items: 1.0,
    ) -> None:
        super().__init__(permits=permits, max_queue=10_000, pace=pace)
        self.cost = cost
        self.sent: list[tuple[float, list[Any]]] = []  # seconds since the start, items
        self.released: list[tuple[str, float]] = []  # flush reason and wait of each call
        self.sizes: list[int] = []
        self.wasted = 0
        self.fails: list[Exception] = []  # raised by the next calls
        limits = BatchLimits(policy, max_size, max_tokens, max_wait, max_inflight, 2048)
        modes = modes if policy == "eager" else (GREEDY,)
        policy = BatchPolicy(limits, modes, 64, 64, lambda: True, ("x-tenant",))
        counts = BatchMetrics(
            lambda model, endpoint: self.sizes.append,
            lambda model, release: lambda seconds: self.released.append((release, seconds)),
            self._waste,
        )
        self.batching = BatchingLayer(lambda call: policy, counts, self.loop.time)
        self.handle = self.batching(self.queue_layer(self.upstream))

    def _waste(self, model: str, tokens: int) -> None:
        self.wasted += tokens

    async def upstream(self, call: Call) -> Reply | Rejection:
        if call.batch is not None:
            call.batch.materialise(call)
        call.attempts += 1
        call.timing.sent_at = self.loop.time()
        asked = json.loads(call.request.body)
        items = listed(asked)
        self.sent.append((call.timing.sent_at - self.started, items))
        await asyncio.sleep(self.cost(len(items)))
        call.timing.answered_at = self.loop.time()
        if self.fails:
            raise self.fails.pop(0)
        return Reply(200, answer(call.request.endpoint, items))

    def call(self, given: Any, caller: str = "a", endpoint: str = EMBEDDINGS, **more: Any) -> Call:
        now = self.loop.time()
        call = make_call(endpoint, now)
        call.timing.ready_at = now
        call.request.model, call.routing.route, call.routing.candidate, call.caller = (
            "m",
            ROUTE,
            CANDIDATE,
            Caller(caller, None),
        )
        payload: dict[str, Any] = {"input": given}
        if endpoint == CHAT:
            payload = {"messages": [{"role": "user", "content": given}], "max_tokens": 1}
        call.request.body = json.dumps({"model": "m", **payload, **more}).encode()
        return call

    def start(self, given: Any, **more: Any) -> Task:
        return asyncio.create_task(self.served(self.call(given, **more)))

    async def rest(self) -> bool:
        """Whether no group, batch, permit, waiter or timer is left after an idle second."""
        await asyncio.sleep(1)
        await self.settled()
        return self.idle() and not (self.batching._groups or self.batching._tasks or self.timers())

    def times(self) -> list[float]:
        return [pytest.approx(at, abs=0.01) for at, _ in self.sent]


def listed(asked: dict[str, Any]) -> list[Any]:
    payload = asked.get("input", asked.get("messages"))
    if isinstance(payload, str) or (payload and isinstance(payload[0], dict)):
        return [payload]
    return list(payload)


def answer(endpoint: str, items: list[Any]) -> bytes:
    if endpoint == EMBEDDINGS:
        data: list[dict[str, Any]] = [
            {"index": at, "embedding": [len(str(item))], "of": item} for at, item in enumerate(items)
        ]
        return json.dumps({"model": "up", "data": data, "usage": {"prompt_tokens": len(items)}}).encode()
    choices = [{"index": at, "message": {"content": item[-1]["content"]}} for at, item in enumerate(items)]
    return json.dumps({"model": "up", "choices": choices}).encode()


def given(reply: Reply | Rejection) -> Any:
    """The item that the reply answers."""
    assert isinstance(reply, Reply)
    (item,) = json.loads(reply.body)["data"]
    return item["of"]


async def all_own(tasks: Iterable[tuple[str, Task]]) -> None:
    for name, task in tasks:
        assert given(await task) == name


def named(scene: Scene, count: int, prefix: str = "t") -> list[tuple[str, Task]]:
    return [(f"{prefix}{number}", scene.start(f"{prefix}{number}")) for number in range(count)]


# When calls leave.


@virtual
async def test_a_lone_call_goes_at_once_and_leaves_nothing_behind():
    scene = Scene(max_wait=0.05, max_inflight=2)
    assert given(await scene.start("a")) == "a"
    assert scene.sent == [(0.0, ["a"])]
    assert scene.released == [("idle", 0.0)]
    assert await scene.rest()


@virtual
async def test_calls_that_arrive_meanwhile_leave_when_the_slot_is_free():
    scene = Scene()
    first = scene.start("first")
    await scene.at(0.5)
    tasks = named(scene, 5)
    await all_own([("first", first), *tasks])
    assert scene.sent == [(0.0, ["first"]), (pytest.approx(1.0), [f"t{n}" for n in range(5)])]
    assert scene.released[1:] == [("slot", pytest.approx(0.5))] * 5
    assert scene.sizes == [1, 5]
    assert await scene.rest()


@virtual
async def test_eager_holds_no_call_longer_than_max_wait():
    scene = Scene(max_wait=0.05)
    first = scene.start("first")
    await scene.at(0.1)
    second = scene.start("second")
    await scene.at(0.12)
    third = scene.start("third")
    await all_own([("first", first), ("second", second), ("third", third)])
    assert scene.sent == [(0.0, ["first"]), (pytest.approx(0.15), ["second", "third"])]
    assert [release for release, _ in scene.released] == ["idle", "window", "window"]
    assert await scene.rest()


@virtual
async def test_a_window_holds_a_lone_call_and_ends():
    scene = Scene("window", max_wait=0.05)
    call = scene.call("a")
    assert given(await scene.served(call)) == "a"
    assert scene.times() == [0.05]
    assert (call.batch_size, call.timing.queue_s) == (0, pytest.approx(0.05))
    assert await scene.rest()


@virtual
async def test_a_full_batch_waits_for_nothing():
    scene = Scene("window", max_wait=10.0, max_size=3)
    await all_own(named(scene, 7))
    assert [len(items) for _, items in scene.sent] == [3, 3, 1]
    assert scene.times() == [0.0, 0.0, 10.0]
    assert [release for release, _ in scene.released] == ["size"] * 6 + ["window"]
    assert await scene.rest()


@virtual
async def test_batch_14_a_large_call_bypasses_and_no_call_waits_for_it():
    scene = Scene("window", max_wait=0.05, max_tokens=1000, cost=lambda items: 1.0)
    large = scene.start("x" * 4 * 900)
    small = named(scene, 20)
    await all_own(small)
    assert scene.loop.time() - scene.started < 1.1
    await large
    assert sorted(len(items) for _, items in scene.sent) == [1, 20]
    assert await scene.rest()


@virtual
async def test_calls_join_a_batch_that_waits_for_its_permit():
    scene = Scene("window", max_wait=0.05, permits=1)
    busy = scene.start("busy", user="u")
    await scene.at(0.1)
    early = named(scene, 2, "early")
    await scene.at(0.5)  # their batch has started, and waits for the permit
    late = named(scene, 3, "late")
    await all_own([("busy", busy), *early, *late])
    assert scene.times() == [0.05, 1.05]
    assert scene.sent[1][1] == ["early0", "early1", "late0", "late1", "late2"]
    assert await scene.rest()


@virtual
async def test_a_call_without_time_for_the_batch_bypasses_and_is_in_time():
    scene = Scene(cost=lambda items: 0.5 + 0.5 * items)
    await all_own(named(scene, 1))
    busy = scene.start("busy" * 9)
    await scene.settled()
    tasks = named(scene, 2)
    call = scene.call("hurried")
    call.timing.deadline = scene.loop.time() + 1.1
    hurried = asyncio.create_task(scene.served(call))
    assert given(await hurried) == "hurried"
    assert scene.loop.time() <= call.timing.deadline
    assert call.batch_size == 0
    assert given(await busy) == "busy" * 9
    await all_own(tasks)
    assert await scene.rest()


# Leaving, failing, ending.


@virtual
async def test_a_batch_whose_members_went_with_another_ends_silently():
    scene = Scene("window", max_wait=0.05, max_size=2, permits=1)
    busy = scene.start("busy", user="u")
    await scene.at(0.06)
    tasks = named(scene, 4)  # two batches, and both wait for the permit
    await scene.at(0.2)
    for _, task in tasks[:2]:
        task.cancel()
    await scene.settled()
    await all_own([("busy", busy), *tasks[2:]])
    await scene.settled()
    assert [len(items) for _, items in scene.sent] == [1, 2]
    assert await scene.rest()


@virtual
async def test_the_tokens_of_a_member_that_left_are_counted_as_wasted():
    scene = Scene("window", max_wait=0.05)
    tasks = named(scene, 3)
    await scene.at(0.1)
    tasks[0][1].cancel()
    await all_own(tasks[1:])
    assert scene.wasted == 1
    assert await scene.rest()


@virtual
async def test_when_all_members_leave_the_call_is_cancelled():
    scene = Scene("window", max_wait=0.05, cost=lambda items: 1000.0)
    tasks = named(scene, 3)
    await scene.at(0.1)
    assert scene.queue_layer.in_flight() == {"local": 1}
    for _, task in tasks:
        task.cancel()
    await scene.settled()
    assert await scene.rest()


@virtual
async def test_close_cancels_every_batch():
    scene = Scene("window", max_wait=0.05, cost=lambda items: 1000.0)
    tasks = named(scene, 3)
    await scene.at(0.1)
    await scene.batching.close()
    ended = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
    assert await scene.rest()


@virtual
async def test_a_rejection_by_the_queue_reaches_all_members():
    scene = Scene("window", max_wait=0.05)
    refusal = Rejection(QUEUE_FULL, "full")

    async def reject(call: Call) -> Reply | Rejection:
        return refusal

    scene.handle = scene.batching(reject)
    assert [await task for _, task in named(scene, 3)] == [refusal] * 3
    assert scene.sizes == [3]
    assert await scene.rest()


@virtual
async def test_an_overload_halves_the_batches_and_they_grow_again():
    scene = Scene("window", max_wait=0.05, max_size=8)
    scene.fails = [UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)]
    ended = await asyncio.gather(*(task for _, task in named(scene, 8)), return_exceptions=True)
    assert all(isinstance(end, UpstreamFailure) for end in ended)
    sizes = []
    for _ in range(6):
        before = len(scene.sent)
        await all_own(named(scene, 8))
        sizes.append(max(len(items) for _, items in scene.sent[before:]))
    assert sizes[0] in (4, 5)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 8
    assert await scene.rest()


@virtual
async def test_a_batch_that_gives_up_between_attempts_has_a_duration_of_zero():
    """Counted from zero, it would seem to have been sent before the last cut."""
    scene = Scene("window", max_wait=0.05, max_size=16)

    async def gives_up(call: Call) -> Reply | Rejection:
        assert call.batch is not None
        call.batch.materialise(call)
        call.timing.sent_at = 0.0  # as the retry layer leaves it
        raise UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)

    scene.handle = scene.batching(gives_up)
    for calls in (16, 8, 4):
        scene.sizes.clear()
        outcome = await asyncio.gather(*(task for _, task in named(scene, calls)), return_exceptions=True)
        assert all(isinstance(end, UpstreamFailure) for end in outcome)
        assert scene.sizes == [calls]
        await asyncio.sleep(1.0)
    assert await scene.rest()
    (profile,) = scene.batching.profiles.values()
    assert profile.tuner.view()["size"] == 2


class RecordingProfile(BatchProfile):
    """Records which calls were served."""

    def __init__(self) -> None:
        super().__init__("local", BatchLimits("eager", 32, 16384, 0.0, 1, 2048), (LOCKSTEP, GREEDY))
        self.served: list[bool] = []

    def done(self, now: float, seconds: float = 0.0, *, served: bool = True) -> None:
        self.served.append(served)
        super().done(now, seconds, served=served)


@virtual
async def test_the_experiment_learns_which_calls_were_served():
    """Otherwise a mode in which all calls fail at once would seem the fastest."""
    scene, profile = Scene(), RecordingProfile()
    scene.batching.profiles["m", EMBEDDINGS, 0, "local"] = profile
    scene.fails = [UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)]
    first = scene.start("first")
    await scene.settled()
    tasks = named(scene, 3)
    await scene.settled()
    tasks[0][1].cancel()
    with pytest.raises(UpstreamFailure):
        await first
    await all_own(tasks[1:])
    assert profile.served == [False, False, True, True]
    assert profile.load == 0
    assert await scene.rest()


# Throughput.


@virtual
async def test_an_upstream_of_60_requests_a_minute_takes_600_calls_in_one():
    scene = Scene("window", max_wait=0.05, pace=Pace(60, None), cost=lambda items: 0.1)
    await all_own(named(scene, 600))
    assert scene.loop.time() - scene.started < 60
    assert len(scene.sent) <= 60
    assert await scene.rest()


@virtual
async def test_a_rate_of_60_a_minute_also_serves_600_calls_spread_over_a_minute():
    scene = Scene("window", max_wait=0.05, pace=Pace(60, None), cost=lambda items: 0.1)
    tasks = []
    for number in range(600):
        await scene.at(number / 10)
        tasks.append((f"t{number}", scene.start(f"t{number}")))
    await all_own(tasks)
    assert scene.loop.time() - scene.started < 63
    assert len(scene.sent) <= 63
    assert await scene.rest()


async def loops(scene: Scene, callers: int, seconds: float, **more: Any) -> int:
    """Closed loop: callers return as soon as they are answered. Returns the number of answers."""
    answered = 0

    async def caller(number: int) -> None:
        nonlocal answered
        while scene.loop.time() - scene.started < seconds:
            await scene.served(scene.call(f"c{number}", f"k{number}", **more))
            answered += 1

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return answered


@virtual
async def test_merging_pays_if_calls_are_expensive_and_items_cheap():
    """20 ms a call and 0.5 ms an item, four at a time, 64 callers: 195 a second without merging."""
    cost: Cost = lambda items: 0.02 + 0.0005 * items  # noqa: E731
    scene = Scene(permits=4, max_inflight=4, max_size=64, cost=cost)
    answered = await loops(scene, 64, 10.0)
    assert answered / 10 > 5 * 4 / cost(1)
    await scene.at(60)
    assert await scene.rest()


@virtual
async def test_generation_is_merged_only_where_that_pays():
    merged = {}
    for name, cost in {"pays": lambda n: 0.02 + 0.001 * n, "does not": lambda n: 0.02 * n}.items():
        scene = Scene(permits=2, max_inflight=2, modes=(OFF, LOCKSTEP, GREEDY), cost=cost)
        await loops(scene, 16, 30.0, endpoint=CHAT)
        late = [len(items) for at, items in scene.sent if at > 20]
        merged[name] = sum(late) / len(late)
        assert await scene.rest()
    assert merged["pays"] > 4
    assert merged["does not"] < 1.2


@virtual
async def test_a_window_merges_generation_even_if_that_is_slower():
    scene = Scene(permits=2, max_inflight=2, policy="window", max_wait=0.05, cost=lambda n: 0.02 * n)
    await loops(scene, 16, 10.0, endpoint=CHAT)
    late = [len(items) for at, items in scene.sent if at > 5]
    assert sum(late) / len(late) > 4
    assert await scene.rest()
