"""The gathering of calls, in virtual time: when batches leave, and that nothing is left behind."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest
from doubles.virtual_time import run

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF, MergeMode
from gateway.batching.layer import BatchingLayer, BatchMetrics, BatchPolicy
from gateway.batching.profile import BatchProfile
from gateway.core.call import CHAT, EMBEDDINGS, Call, Caller, Candidate, Credentials, Reply, Route
from gateway.core.errors import QUEUE_FULL, STATUS, UPSTREAM_RATE_LIMITED, Rejection, UpstreamFailure
from gateway.queueing.layer import QueueLayer
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom

CANDIDATE = Candidate("local", "up", b'"up"')
ROUTE = Route("m", b'"m"', (CANDIDATE,))
Task = asyncio.Task[Reply | Rejection]
Cost = Callable[[int], float]


class Scene:
    """Batching before a queue before an upstream that takes `cost(items)` seconds for a call."""

    def __init__(
        self,
        policy: Any = "eager",
        *,
        max_size: int = 32,
        max_tokens: int = 16384,
        max_wait: float = 0.0,
        max_inflight: int = 1,
        permits: int = 100,
        ways: tuple[MergeMode, ...] = (LOCKSTEP, GREEDY),
        pace: Pace | None = None,
        cost: Cost = lambda items: 1.0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.cost = cost
        self.sent: list[tuple[float, list[Any]]] = []  # seconds since the beginning, items
        self.waits: list[tuple[str, float]] = []
        self.sizes: list[int] = []
        self.wasted = 0
        self.fails: list[Exception] = []  # the next calls, by themselves
        bounds = BatchLimits(policy, max_size, max_tokens, max_wait, max_inflight, 2048)
        ways = ways if policy == "eager" else (GREEDY,)
        terms = BatchPolicy(bounds, ways, 64, 64, lambda: True, ("x-tenant",))
        counts = BatchMetrics(
            lambda model, endpoint: self.sizes.append,
            lambda model, release: lambda seconds: self.waits.append((release, seconds)),
            self._waste,
        )
        self.batching = BatchingLayer(lambda call: terms, counts, self.loop.time)
        self.line = UpstreamQueue("local", permits, pace)
        room = WaitingRoom(10_000)
        ignore = {"local": lambda seconds: None}
        self.queue = QueueLayer(room, {"local": self.line}, self.loop.time, ignore, lambda call: None)
        self.handle = self.batching(self.queue(self.upstream))

    def _waste(self, model: str, tokens: int) -> None:
        self.wasted += tokens

    async def upstream(self, call: Call) -> Reply | Rejection:
        if call.batch is not None:
            call.batch.materialise(call)
        call.attempts += 1
        call.sent_at = self.loop.time()
        asked = json.loads(call.body)
        items = listed(asked)
        self.sent.append((call.sent_at - self.began, items))
        await asyncio.sleep(self.cost(len(items)))
        call.answered_at = self.loop.time()
        if self.fails:
            raise self.fails.pop(0)
        return Reply(200, answer(call.endpoint, items))

    def call(self, given: Any, caller: str = "a", endpoint: str = EMBEDDINGS, **more: Any) -> Call:
        now = self.loop.time()
        call = Call(endpoint, "id", Credentials(None, None, None), now)
        call.ready_at = now
        call.model, call.route, call.candidate, call.caller = "m", ROUTE, CANDIDATE, Caller(caller, None)
        payload: dict[str, Any] = {"input": given}
        if endpoint == CHAT:
            payload = {"messages": [{"role": "user", "content": given}], "max_tokens": 1}
        call.body = json.dumps({"model": "m", **payload, **more}).encode()
        return call

    def start(self, given: Any, **more: Any) -> Task:
        return asyncio.create_task(self.served(self.call(given, **more)))

    async def served(self, call: Call) -> Reply | Rejection:
        try:
            return await self.handle(call)
        finally:
            call.lease.settle(call, self.loop.time())

    async def at(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self.began + seconds - self.loop.time()))
        await settled()

    async def rest(self) -> bool:
        """No group, batch, permit, waiter or timer is left, after a second in which nobody has come back."""
        await asyncio.sleep(1)
        await settled()
        timers = [one for one in self.loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
        held = [*self.queue.depth().values(), *self.queue.in_flight().values()]
        return not (self.batching._groups or self.batching._tasks or timers or any(held))

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
            {"index": at, "embedding": [len(str(one))], "of": one} for at, one in enumerate(items)
        ]
        return json.dumps({"model": "up", "data": data, "usage": {"prompt_tokens": len(items)}}).encode()
    choices = [{"index": at, "message": {"content": one[-1]["content"]}} for at, one in enumerate(items)]
    return json.dumps({"model": "up", "choices": choices}).encode()


def given(reply: Reply | Rejection) -> Any:
    """Whose answer it is."""
    assert isinstance(reply, Reply)
    (one,) = json.loads(reply.body)["data"]
    return one["of"]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test, on a loop whose time jumps."""

    def runs() -> None:
        run(test())

    return runs


async def all_own(tasks: Iterable[tuple[str, Task]]) -> None:
    for name, task in tasks:
        assert given(await task) == name


def named(scene: Scene, count: int, prefix: str = "t") -> list[tuple[str, Task]]:
    return [(f"{prefix}{number}", scene.start(f"{prefix}{number}")) for number in range(count)]


# When they leave.


@virtual
async def test_one_alone_goes_at_once_and_leaves_nothing():
    scene = Scene(max_wait=0.05, max_inflight=2)
    assert given(await scene.start("a")) == "a"
    assert scene.sent == [(0.0, ["a"])]
    assert scene.waits == [("idle", 0.0)]
    assert await scene.rest()


@virtual
async def test_what_arrives_meanwhile_leaves_when_the_slot_is_free():
    scene = Scene()
    first = scene.start("first")
    await scene.at(0.5)
    tasks = named(scene, 5)
    await all_own([("first", first), *tasks])
    assert scene.sent == [(0.0, ["first"]), (pytest.approx(1.0), [f"t{n}" for n in range(5)])]
    assert scene.waits[1:] == [("slot", pytest.approx(0.5))] * 5
    assert scene.sizes == [1, 5]
    assert await scene.rest()


@virtual
async def test_eager_holds_nobody_longer_than_max_wait():
    scene = Scene(max_wait=0.05)
    first = scene.start("first")
    await scene.at(0.1)
    second = scene.start("second")
    await scene.at(0.12)
    third = scene.start("third")
    await all_own([("first", first), ("second", second), ("third", third)])
    assert scene.sent == [(0.0, ["first"]), (pytest.approx(0.15), ["second", "third"])]
    assert [release for release, _ in scene.waits] == ["idle", "window", "window"]
    assert await scene.rest()


@virtual
async def test_a_window_is_kept_by_one_alone_and_ends():
    scene = Scene("window", max_wait=0.05)
    call = scene.call("a")
    assert given(await scene.served(call)) == "a"
    assert scene.times() == [0.05]
    assert (call.batch_size, call.queue_s) == (0, pytest.approx(0.05))
    assert await scene.rest()


@virtual
async def test_a_full_batch_waits_for_nothing():
    scene = Scene("window", max_wait=10.0, max_size=3)
    await all_own(named(scene, 7))
    assert [len(items) for _, items in scene.sent] == [3, 3, 1]
    assert scene.times() == [0.0, 0.0, 10.0]
    assert [release for release, _ in scene.waits] == ["size"] * 6 + ["window"]
    assert await scene.rest()


@virtual
async def test_batch_14_a_large_one_goes_by_itself_and_nobody_waits_for_it():
    scene = Scene("window", max_wait=0.05, max_tokens=1000, cost=lambda items: 1.0)
    large = scene.start("x" * 4 * 900)
    small = named(scene, 20)
    await all_own(small)
    assert scene.loop.time() - scene.began < 1.1
    await large
    assert sorted(len(items) for _, items in scene.sent) == [1, 20]
    assert await scene.rest()


@virtual
async def test_others_join_while_a_batch_waits_for_its_permit():
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
async def test_who_has_no_time_for_the_batch_goes_alone_and_in_time():
    scene = Scene(cost=lambda items: 0.5 + 0.5 * items)
    await all_own(named(scene, 1))
    busy = scene.start("busy" * 9)
    await settled()
    tasks = named(scene, 2)
    call = scene.call("hurried")
    call.deadline = scene.loop.time() + 1.1
    hurried = asyncio.create_task(scene.served(call))
    assert given(await hurried) == "hurried"
    assert scene.loop.time() <= call.deadline
    assert call.batch_size == 0
    assert given(await busy) == "busy" * 9
    await all_own(tasks)
    assert await scene.rest()


# Leaving, failing, ending.


@virtual
async def test_a_batch_whose_members_went_with_others_ends_without_a_word():
    scene = Scene("window", max_wait=0.05, max_size=2, permits=1)
    busy = scene.start("busy", user="u")
    await scene.at(0.06)
    tasks = named(scene, 4)  # two batches, and both wait for the permit
    await scene.at(0.2)
    for _, task in tasks[:2]:
        task.cancel()
    await settled()
    await all_own([("busy", busy), *tasks[2:]])
    await settled()
    assert [len(items) for _, items in scene.sent] == [1, 2]
    assert await scene.rest()


@virtual
async def test_who_left_costs_what_was_thrown_away():
    scene = Scene("window", max_wait=0.05)
    tasks = named(scene, 3)
    await scene.at(0.1)
    tasks[0][1].cancel()
    await all_own(tasks[1:])
    assert scene.wasted == 1
    assert await scene.rest()


@virtual
async def test_when_all_leave_the_call_ends():
    scene = Scene("window", max_wait=0.05, cost=lambda items: 1000.0)
    tasks = named(scene, 3)
    await scene.at(0.1)
    assert scene.queue.in_flight() == {"local": 1}
    for _, task in tasks:
        task.cancel()
    await settled()
    assert await scene.rest()


@virtual
async def test_close_ends_all():
    scene = Scene("window", max_wait=0.05, cost=lambda items: 1000.0)
    tasks = named(scene, 3)
    await scene.at(0.1)
    await scene.batching.close()
    ended = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    assert await scene.rest()


@virtual
async def test_a_refusal_of_the_queue_is_told_to_all():
    scene = Scene("window", max_wait=0.05)
    refusal = Rejection(QUEUE_FULL, "full")

    async def refuse(call: Call) -> Reply | Rejection:
        return refusal

    scene.handle = scene.batching(refuse)
    assert [await task for _, task in named(scene, 3)] == [refusal] * 3
    assert scene.sizes == [3]
    assert await scene.rest()


@virtual
async def test_a_busy_upstream_halves_the_batches_and_they_grow_again():
    scene = Scene("window", max_wait=0.05, max_size=8)
    scene.fails = [UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)]
    ended = await asyncio.gather(*(task for _, task in named(scene, 8)), return_exceptions=True)
    assert all(isinstance(one, UpstreamFailure) for one in ended)
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
async def test_a_batch_that_gave_up_in_a_pause_has_taken_no_time_of_an_upstream():
    """Reckoned from zero it would seem to have been sent before the bounds were last cut."""
    scene = Scene("window", max_wait=0.05, max_size=16)

    async def gives_up(call: Call) -> Reply | Rejection:
        assert call.batch is not None
        call.batch.materialise(call)
        call.sent_at = 0.0  # as the layer of attempts leaves it
        raise UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)

    scene.handle = scene.batching(gives_up)
    for calls in (16, 8, 4):
        scene.sizes.clear()
        told = await asyncio.gather(*(task for _, task in named(scene, calls)), return_exceptions=True)
        assert all(isinstance(one, UpstreamFailure) for one in told)
        assert scene.sizes == [calls]
        await asyncio.sleep(1.0)
    assert await scene.rest()
    (kind,) = scene.batching.kinds.values()
    assert kind.tuning.view()["size"] == 2


class Told(BatchProfile):
    """Notes which calls were served."""

    def __init__(self) -> None:
        super().__init__("local", BatchLimits("eager", 32, 16384, 0.0, 1, 2048), (LOCKSTEP, GREEDY))
        self.served: list[bool] = []

    def gone(self, now: float, *, served: bool = True) -> None:
        self.served.append(served)
        super().gone(now, served=served)


@virtual
async def test_which_calls_were_served_is_told_for_the_trial_of_ways():
    """Else a way on which all fail at once would be taken for the fastest."""
    scene, told = Scene(), Told()
    scene.batching.kinds["m", EMBEDDINGS, 0, "local"] = told
    scene.fails = [UpstreamFailure(UPSTREAM_RATE_LIMITED, "busy", cause=STATUS, status=429)]
    first = scene.start("first")
    await settled()
    tasks = named(scene, 3)
    await settled()
    tasks[0][1].cancel()
    with pytest.raises(UpstreamFailure):
        await first
    await all_own(tasks[1:])
    assert told.served == [False, False, True, True]
    assert told.load == 0
    assert await scene.rest()


# What it is for.


@virtual
async def test_an_upstream_of_60_requests_a_minute_takes_600_calls_in_one():
    scene = Scene("window", max_wait=0.05, pace=Pace(60, None), cost=lambda items: 0.1)
    await all_own(named(scene, 600))
    assert scene.loop.time() - scene.began < 60
    assert len(scene.sent) <= 60
    assert await scene.rest()


@virtual
async def test_600_calls_that_come_over_a_minute_too():
    scene = Scene("window", max_wait=0.05, pace=Pace(60, None), cost=lambda items: 0.1)
    tasks = []
    for number in range(600):
        await scene.at(number / 10)
        tasks.append((f"t{number}", scene.start(f"t{number}")))
    await all_own(tasks)
    assert scene.loop.time() - scene.began < 63
    assert len(scene.sent) <= 63
    assert await scene.rest()


async def loops(scene: Scene, callers: int, seconds: float, **more: Any) -> int:
    """Callers that ask again as soon as they are answered; how many answers there were."""
    answered = 0

    async def caller(number: int) -> None:
        nonlocal answered
        while scene.loop.time() - scene.began < seconds:
            await scene.served(scene.call(f"c{number}", f"k{number}", **more))
            answered += 1

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return answered


@virtual
async def test_calls_that_cost_much_and_items_that_cost_little():
    """20 ms a call and 0.5 ms an item, four at a time, 64 callers: direct would be 195 a second."""
    cost: Cost = lambda items: 0.02 + 0.0005 * items  # noqa: E731
    scene = Scene(permits=4, max_inflight=4, max_size=64, cost=cost)
    answered = await loops(scene, 64, 10.0)
    assert answered / 10 > 5 * 4 / cost(1)
    await scene.at(60)
    assert await scene.rest()


@virtual
async def test_generation_is_merged_where_that_pays_and_not_where_it_does_not():
    merged = {}
    for name, cost in {"pays": lambda n: 0.02 + 0.001 * n, "does not": lambda n: 0.02 * n}.items():
        scene = Scene(permits=2, max_inflight=2, ways=(OFF, LOCKSTEP, GREEDY), cost=cost)
        await loops(scene, 16, 30.0, endpoint=CHAT)
        late = [len(items) for at, items in scene.sent if at > 20]
        merged[name] = sum(late) / len(late)
        assert await scene.rest()
    assert merged["pays"] > 4
    assert merged["does not"] < 1.2


@virtual
async def test_a_window_merges_generation_whether_it_is_faster_or_not():
    scene = Scene(permits=2, max_inflight=2, policy="window", max_wait=0.05, cost=lambda n: 0.02 * n)
    await loops(scene, 16, 10.0, endpoint=CHAT)
    late = [len(items) for at, items in scene.sent if at > 5]
    assert sum(late) / len(late) > 4
    assert await scene.rest()
