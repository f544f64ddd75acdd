"""Attempts in virtual time: which upstreams they call when, what they pay, what they leave behind."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from doubles.virtual_time import run, virtual
from kit.calls import make_call
from kit.pipeline_scene import PipelineScene
from tenacity import AsyncRetrying

from gateway.cache.accounting import CacheMetrics
from gateway.cache.layer import CacheLayer
from gateway.cache.lookup import CachePolicy
from gateway.cache.single_flight import Flights
from gateway.cache.store import CacheEntry, CacheHit
from gateway.core.call import Call, Candidate, Reply, Route, TokenEstimate
from gateway.core.caller import Caller
from gateway.core.errors import (
    CONNECT,
    CONTEXT_LENGTH_EXCEEDED,
    DEADLINE_IN_QUEUE,
    FIRST_BYTE,
    QUEUE_FULL,
    REQUEST_SUSPENDED,
    RESET,
    STATUS,
    UPSTREAM_ERROR,
    UPSTREAM_PATH_UNKNOWN,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Cause,
    Rejection,
    UpstreamFailure,
    upstream_status,
)
from gateway.core.stream import EventStream
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CLOSED, OPEN, CircuitBreaker
from gateway.resilience.layer import attempts
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers
from gateway.telemetry.metrics import Metrics
from gateway.usage.call_usage import NOTHING, spent
from gateway.wire.openai.embeddings import EMBEDDINGS

STREAM: EventStream = object()  # type: ignore[assignment]
OK: dict[str, Any] = {}
"""An answer that is an answer."""


def failed(cause: Cause = CONNECT, status: int | None = None, **advice: Any) -> UpstreamFailure:
    kind = UPSTREAM_ERROR if status is None else upstream_status(status)
    return UpstreamFailure(kind, "no", cause=cause, status=status, **advice)


def status(number: int, **advice: Any) -> UpstreamFailure:
    return failed(STATUS, number, **advice)


OVERFLOW = UpstreamFailure(CONTEXT_LENGTH_EXCEEDED, "too long", cause=STATUS, status=400)


class Scene(PipelineScene):
    """A model `m` with candidates at `upstreams`, and what each of them says to which call."""

    def __init__(
        self,
        *upstreams: str,
        tries: int = 2,
        base: float = 0.0,
        longest: float = 2.0,
        share: float = 0.1,
        total: float = 600.0,
        permits: int = 64,
        room: int = 100,
        failures: int = 5,
        breaker: Callable[..., CircuitBreaker] = CircuitBreaker,
        seed: int = 1,
    ) -> None:
        super().__init__("abcd", permits=permits, max_queue=room, total_s=total)
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.sent: list[tuple[str, float]] = []
        self.says: dict[str, Callable[[], object]] = {}
        self.takes = dict.fromkeys("abcd", 0.0)
        self.candidates = {name: Candidate(name, "up", b'"up"') for name in "abcd"}
        self.route = Route("m", b'"m"', tuple(self.candidates[name] for name in upstreams))
        rng = Random(seed)
        self.health = {
            name: UpstreamHealth(UpstreamBreakers(lambda: breaker(failures, 5.0, 60.0, rng)), RetryBudget(share), total)
            for name in "abcd"
        }
        counts = RetryMetrics(self._attempts, self._count("retry"), self._count("fallback"))
        self.attempt = AttemptRunner(
            self.health, RetryPolicy(tries, base, longest), counts, self.loop.time, asyncio.sleep, rng
        )
        self.handle = attempts(self.attempt)(self.queue_layer(self.forward))

    def _attempts(self, upstream: str, verdict: str) -> Callable[[float], None]:
        count = self._count("attempt")
        return lambda calls: count(upstream, verdict)

    def _count(self, what: str) -> Callable[[str, str], None]:
        def count(one: str, other: str) -> None:
            self.counted[what, one, other] += 1

        return count

    def falls_back(self, *upstreams: str) -> None:
        self.route.fallbacks = tuple(Route(f"f-{name}", b'"f"', (self.candidates[name],)) for name in upstreams)

    def always(self, upstream: str, answer: object, takes: float = 0.0) -> None:
        """What this upstream says to all calls, after so many seconds; healthy ones need no entry."""
        self.says[upstream] = lambda: answer
        self.takes[upstream] = takes

    def script(self, upstream: str, *answers: object) -> None:
        """What it says one after the other."""
        self.says[upstream] = iter(answers).__next__

    async def forward(self, call: Call) -> Reply | Rejection:
        assert call.routing.candidate is not None
        upstream = call.routing.candidate.upstream
        call.attempts += 1
        call.timing.sent_at = self.loop.time()
        self.sent.append((upstream, call.timing.sent_at - self.started))
        if self.takes[upstream]:
            await asyncio.sleep(self.takes[upstream])
        said = self.says[upstream]() if upstream in self.says else OK
        if isinstance(said, UpstreamFailure):
            try:
                raise said
            finally:
                del said  # its traceback holds this frame
        call.timing.answered_at = self.loop.time()
        return Reply(200, stream=STREAM) if call.request.stream else Reply(200, b"{}")

    def call(self, body: bytes = b"{}", patience: float | None = None, sent_before: int | None = None) -> Call:
        call = make_call(now=self.loop.time())
        call.request.body, call.routing.route, call.routing.candidate = body, self.route, self.route.candidates[0]
        if patience is not None:
            call.timing.deadline = call.timing.accepted_at + patience
        if sent_before is not None:
            call.request.headers = {"x-stainless-retry-count": str(sent_before)}
        return call

    async def serve(self, call: Call | None = None) -> Reply | Rejection | UpstreamFailure:
        """The call's life at the edge."""
        call = call or self.call()
        try:
            reply = await self.handle(call)
            call.response.outcome = "ok"
            return reply
        except UpstreamFailure as failure:
            return failure
        except asyncio.CancelledError:
            call.response.outcome = "client_gone"
            raise
        finally:
            call.lease.settle(call, self.loop.time())

    async def many(self, count: int, every: float = 0.0) -> list[Reply | Rejection | UpstreamFailure]:
        """So many calls one after the other, so many seconds apart, none with the body of another."""
        answers = []
        for number in range(count):
            answers.append(await self.serve(self.call(b"%d" % number)))
            await asyncio.sleep(every)
        return answers

    def calls(self, upstream: str) -> int:
        return sum(name == upstream for name, _ in self.sent)

    def state(self, upstream: str) -> int:
        return self.health[upstream].breakers.state(self.loop.time())

    def at_rest(self) -> bool:
        """Nobody holds a permit or waits for one, and no breaker waits for a probe to come back."""
        now = self.loop.time()
        due = (
            breaker.wait(now + 100.0) == 0.0
            for health in self.health.values()
            for breaker in health.breakers.scopes.values()
        )
        return self.idle() and all(due)


def good(answers: list[Reply | Rejection | UpstreamFailure]) -> int:
    return sum(isinstance(answer, Reply) for answer in answers)


@virtual
async def test_a_success_costs_one_call():
    scene = Scene("a", "b")
    assert isinstance(await scene.serve(), Reply)
    assert scene.sent == [("a", 0.0)]
    assert scene.counted == {("attempt", "a", "success"): 1}


@virtual
async def test_route_04_another_candidate_is_called_at_once():
    scene = Scene("a", "b", base=1.0)
    scene.always("a", failed(CONNECT))
    call = scene.call()
    assert isinstance(await scene.serve(call), Reply)
    assert scene.sent == [("a", 0.0), ("b", 0.0)]
    assert call.routing.candidate is scene.candidates["b"]
    assert call.attempts == 2
    assert scene.counted == {
        ("attempt", "a", "retryable"): 1,
        ("attempt", "b", "success"): 1,
        ("retry", "a", "connect"): 1,
    }


@virtual
async def test_the_same_candidate_is_called_after_a_pause_below_the_bound():
    pauses = []
    for seed in range(50):
        scene = Scene("a", base=0.2, seed=seed)
        scene.script("a", failed(CONNECT), OK)
        assert isinstance(await scene.serve(), Reply)
        pauses.append(scene.sent[1][1] - scene.sent[0][1])
    assert all(0.0 <= pause <= 0.2 for pause in pauses)
    assert min(pauses) < 0.05
    assert max(pauses) > 0.15


@virtual
async def test_retry_01_both_at_once_and_then_never_earlier_than_asked():
    scene = Scene("a", "b", tries=4)
    busy = status(429, retry_after=2.0)
    scene.script("a", busy, OK)
    scene.always("b", busy)
    assert isinstance(await scene.serve(), Reply)
    assert [name for name, _ in scene.sent] == ["a", "b", "a"]
    assert [at for _, at in scene.sent] == [0.0, 0.0, pytest.approx(2.0)]
    assert scene.sent[2][1] >= 2.0


@virtual
async def test_retry_02_an_upstream_that_asks_for_longer_than_the_bound_is_not_retried():
    scene = Scene("a", longest=2.0)
    scene.always("a", status(429, retry_after=2.01))
    answer = await scene.serve()
    assert isinstance(answer, UpstreamFailure)
    assert answer.as_rejection().retry_after == 2.01
    assert scene.calls("a") == 1


@pytest.mark.parametrize("number", [400, 404, 413, 422])
def test_retry_10_a_clients_own_mistake_is_one_call(number: int):
    async def scenario() -> None:
        scene = Scene("a", "b")
        scene.falls_back("c")
        scene.always("a", status(number))
        assert isinstance(await scene.serve(), UpstreamFailure)
        assert scene.sent == [("a", 0.0)]
        assert scene.counted == {("attempt", "a", "ignore"): 1}

    run(scenario())


@pytest.mark.parametrize("number", [401, 402, 403])
def test_retry_10_a_closed_account_moves_on_and_does_not_come_back(number: int):
    async def scenario() -> None:
        scene = Scene("a", tries=3)
        scene.always("a", status(number))
        assert isinstance(await scene.serve(), UpstreamFailure)
        assert scene.calls("a") == 1
        scene = Scene("a", "b", tries=3)
        scene.always("a", status(number))
        assert isinstance(await scene.serve(), Reply)
        assert [name for name, _ in scene.sent] == ["a", "b"]

    run(scenario())


@virtual
async def test_retry_07_an_upstream_that_may_still_be_working_is_not_called_twice():
    scene = Scene("a", tries=3)
    scene.always("a", UpstreamFailure(UPSTREAM_TIMEOUT, "late", cause=FIRST_BYTE))
    assert isinstance(await scene.serve(), UpstreamFailure)
    assert scene.calls("a") == 1


@virtual
async def test_x_should_retry_is_obeyed_both_ways():
    scene = Scene("a", tries=3)
    scene.script("a", status(500, should_retry=False))
    assert isinstance(await scene.serve(), UpstreamFailure)
    assert scene.calls("a") == 1
    scene = Scene("a", tries=3)
    scene.script("a", status(400, should_retry=True), OK)
    assert isinstance(await scene.serve(), Reply)
    assert scene.calls("a") == 2


@pytest.mark.parametrize(("sent_before", "calls"), [(0, 3), (1, 2), (2, 1), (9, 1)])
def test_retry_05_the_clients_own_retries_are_counted_in(sent_before: int, calls: int):
    async def scenario() -> None:
        scene = Scene("a", tries=3)
        scene.always("a", status(500))
        await scene.serve(scene.call(sent_before=sent_before))
        assert scene.calls("a") == calls

    run(scenario())


# The loop.


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[AsyncRetrying]:
    """Every loop that tenacity has run."""
    made: list[AsyncRetrying] = []

    class Recorded(AsyncRetrying):
        def begin(self) -> None:
            super().begin()
            made.append(self)

    monkeypatch.setattr("gateway.resilience.retry_loop.AsyncRetrying", Recorded)
    return made


def test_tenacity_runs_the_further_attempts_and_a_success_needs_none(loops: list[AsyncRetrying]):
    async def scenario() -> None:
        scene = Scene("a", tries=4, base=1.0)
        assert isinstance(await scene.serve(), Reply)
        assert loops == []
        scene.script("a", status(500), status(500), status(500), OK)
        assert isinstance(await scene.serve(), Reply)
        (loop,) = loops
        assert loop.statistics["attempt_number"] == 4
        assert loop.statistics["idle_for"] == pytest.approx(scene.loop.time() - scene.started)

    run(scenario())


@virtual
async def test_the_budget_is_asked_last_so_a_call_that_gives_up_pays_nothing():
    scenes = Scene("a", tries=1), Scene("a", tries=9, longest=60.0), Scene("a", tries=9, longest=60.0)
    answers = status(500), status(429, retry_after=61.0), status(429, retry_after=30.0)
    for scene, answer in zip(scenes, answers, strict=True):
        scene.always("a", answer)
        assert isinstance(await scene.serve(scene.call(patience=20.0)), UpstreamFailure)
        assert [scene.health["a"].budget.try_withdraw(scene.loop.time()) for _ in range(4)] == [
            *[True] * 3,
            False,
        ]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_loop_leaves_no_garbage(leaves: bool):
    """What tenacity remembers of the last attempt would hold the call until the next full collection."""

    async def scenario() -> None:
        scene = Scene("a", longest=60.0)
        # Made when it is raised: a failure that the scene held would hold the call by its traceback.
        scene.says["a"] = lambda: status(429, retry_after=10.0) if len(scene.sent) == 1 else OK
        task = asyncio.create_task(scene.serve())
        await asyncio.sleep(5.0)
        assert calls() == before + 1
        if leaves:
            await left(scene, task, 0.0)
        else:
            assert isinstance(await task, Reply)
        del task
        await asyncio.sleep(1.0)
        assert calls() == before

    def calls() -> int:
        return sum(type(one) is Call for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = calls()
        run(scenario())
    finally:
        gc.enable()


# Fallbacks.


@virtual
async def test_retry_05_fallbacks_have_one_call_each():
    scene = Scene("a", "b", tries=2)
    scene.falls_back("c", "d")
    for name in "abcd":
        scene.always(name, status(500))
    answer = await scene.serve()
    assert isinstance(answer, UpstreamFailure)
    assert [name for name, _ in scene.sent] == ["a", "b", "c", "d"]
    assert scene.counted["fallback", "m", "f-c"] == scene.counted["fallback", "m", "f-d"] == 1


@virtual
async def test_retry_05_a_fallback_has_one_call_while_the_breaker_of_the_model_itself_is_open():
    scene = Scene("a", tries=3, share=10.0)
    scene.always("a", failed(CONNECT))
    await scene.many(5)
    assert scene.state("a") == OPEN
    scene.sent.clear()
    scene.falls_back("c", "d")
    scene.always("c", status(500))
    scene.always("d", status(500))
    assert isinstance(await scene.serve(), UpstreamFailure)
    assert [name for name, _ in scene.sent] == ["c", "d"]


@virtual
async def test_a_breaker_that_opens_during_a_pause_leaves_the_fallbacks():
    scene = Scene("a", longest=60.0)
    scene.falls_back("c")
    scene.script("a", status(429, retry_after=2.0), *[status(500, should_retry=False)] * 5)
    paused = asyncio.create_task(scene.serve())
    await asyncio.sleep(0.1)
    await scene.many(5)
    assert scene.state("a") == OPEN
    assert isinstance(await paused, Reply)
    assert scene.sent[-1] == ("c", pytest.approx(2.0, abs=0.01))


@virtual
async def test_the_last_failure_is_raised():
    scene = Scene("a")
    scene.falls_back("c")
    scene.always("a", status(500))
    scene.always("c", status(429))
    answer = await scene.serve()
    assert isinstance(answer, UpstreamFailure)
    assert answer.status == 429


# Overflows.


@virtual
async def test_route_01_an_overflow_is_free_and_wants_a_larger_window():
    scene = Scene("a", "b", "c", tries=1, share=0.0)
    scene.candidates["a"].context_window = scene.candidates["b"].context_window = 4096
    scene.candidates["c"].context_window = 8192
    scene.always("a", OVERFLOW)
    answers = await scene.many(50)
    assert good(answers) == 50
    assert (scene.calls("a"), scene.calls("b"), scene.calls("c")) == (50, 0, 50)
    assert scene.state("a") == CLOSED


@virtual
async def test_route_01_without_a_larger_window_it_is_the_clients():
    scene = Scene("a", "b")
    scene.candidates["a"].context_window = scene.candidates["b"].context_window = 4096
    scene.always("a", OVERFLOW)
    assert await scene.serve() is OVERFLOW
    assert scene.calls("b") == 0


# Budgets.


class NeverOpen(CircuitBreaker):
    """A breaker that has been switched off, so that only the budget is left."""

    def record(self, *_: Any) -> None:
        """Learns nothing."""


@virtual
async def test_the_budget_alone_bounds_the_load_on_a_dead_upstream():
    scene = Scene("a", breaker=NeverOpen)
    scene.always("a", failed(CONNECT))
    await scene.many(100, every=0.02)
    warm = scene.calls("a")
    await scene.many(1000, every=0.02)
    assert (scene.calls("a") - warm) / 1000 <= 1.1
    assert scene.calls("a") - warm > 1050  # it is a share of the calls, not none


@virtual
async def test_the_upstream_that_failed_pays():
    scene = Scene("a", "b", breaker=NeverOpen)
    scene.always("a", failed(CONNECT))
    answers = await scene.many(1000, every=0.02)
    assert scene.calls("a") == 1000
    assert scene.calls("b") == good(answers) <= 0.1 * 1000 + 3


@virtual
async def test_a_clients_retries_deposit_nothing():
    scene = Scene("a", breaker=NeverOpen)
    scene.always("a", failed(CONNECT))
    for _ in range(200):
        await scene.serve(scene.call(sent_before=1))
    assert not any(key[0] == "retry" for key in scene.counted)
    for _ in range(3):
        await scene.serve()
    assert scene.counted["retry", "a", "connect"] == 3
    await scene.serve()
    assert scene.counted["retry", "a", "connect"] == 3


# Breakers.


@virtual
async def test_row_16_one_of_two_that_always_fails_is_found_out_and_costs_next_to_nothing():
    """At 100 calls a second: what the single probes cost, which come ever more rarely."""
    scene = Scene("a", "b")
    scene.always("a", status(500))
    await scene.many(10, every=0.01)
    assert scene.state("a") == OPEN
    before = scene.calls("a")
    answers = await scene.many(6000, every=0.01)
    assert good(answers) / 6000 >= 0.999
    assert scene.calls("a") - before <= 6


@virtual
async def test_row_17_a_lone_dead_upstream_has_one_call_a_second_the_others_hear_when():
    scene = Scene("a")
    scene.always("a", failed(CONNECT))
    await scene.many(5)
    assert scene.state("a") == OPEN
    scene.sent.clear()
    begun = scene.loop.time() - scene.started
    answers = await scene.many(2000, every=0.01)
    refused = [answer for answer in answers if isinstance(answer, Rejection)]
    assert len(refused) == 2000 - scene.calls("a")
    assert scene.calls("a") <= 21
    assert scene.calls("a") >= 19
    assert all(one.kind is UPSTREAM_UNAVAILABLE for one in refused)
    assert all(one.retry_after is not None and 0.0 < one.retry_after <= 1.0 for one in refused)
    assert scene.sent[0][1] >= begun + 0.99


@virtual
async def test_a_lone_upstream_that_is_well_again_is_back_within_a_second_and_takes_every_call():
    scene = Scene("a")
    scene.always("a", failed(CONNECT))
    await scene.many(300, every=0.1)
    scene.always("a", OK)
    await asyncio.sleep(1.0)
    answers = await scene.many(100, every=0.01)
    assert good(answers) == 100
    assert scene.state("a") == CLOSED


@virtual
async def test_a_client_that_obeys_retry_after_is_the_next_probe():
    scene = Scene("a")
    scene.always("a", failed(CONNECT))
    await scene.many(5)
    refused = await scene.serve()
    assert isinstance(refused, Rejection)
    assert refused.retry_after is not None
    scene.always("a", OK)
    await asyncio.sleep(refused.retry_after)
    assert isinstance(await scene.serve(), Reply)


@virtual
async def test_row_17_where_all_are_open_one_of_them_is_tried():
    scene = Scene("a", "b")
    for name in "ab":
        scene.always(name, failed(CONNECT))
    await scene.many(12)
    assert (scene.state("a"), scene.state("b")) == (OPEN, OPEN)
    scene.sent.clear()
    answers = await scene.many(1000, every=0.01)
    assert len(scene.sent) <= 22
    assert {name for name, _ in scene.sent} == {"a", "b"}
    assert sum(isinstance(answer, Rejection) for answer in answers) >= 975


@virtual
async def test_row_18_an_upstream_that_flaps_is_asked_ever_less():
    """It dies whenever it has been well for a moment."""
    scene = Scene("a", "b", seed=3)
    for _ in range(12):
        scene.always("a", failed(CONNECT))
        await scene.many(250, every=0.02)
        scene.always("a", OK)
        await scene.many(250, every=0.02)
    failures = scene.counted["attempt", "a", "retryable"]
    assert failures <= 60  # of 3,000 calls that came while it was dead


@virtual
async def test_row_19_a_cold_upstream_gets_its_calls_back_slowly():
    scene = Scene("a", "b")
    scene.always("a", failed(CONNECT))
    await scene.many(10)
    scene.always("a", OK)
    await asyncio.sleep(6.5)
    await scene.many(1)
    assert scene.state("a") == CLOSED
    scene.sent.clear()
    await scene.many(100, every=0.01)
    first = scene.calls("a")
    assert 2 <= first <= 40
    await asyncio.sleep(20.0)
    scene.sent.clear()
    await scene.many(100, every=0.01)
    assert first < scene.calls("a") < 100
    await asyncio.sleep(10.0)
    scene.sent.clear()
    await scene.many(100, every=0.01)
    assert scene.calls("a") == 100


@virtual
async def test_route_08_busy_is_not_dead():
    for number in (429, 503, 529):
        scene = Scene("a")
        scene.always("a", status(number))
        await scene.many(40)
        assert scene.state("a") == CLOSED
        scene.always("a", OK)
        assert isinstance(await scene.serve(), Reply)


@virtual
async def test_route_05_bad_requests_and_departures_open_nothing():
    scene = Scene("a")
    scene.always("a", status(400))
    await scene.many(40)
    scene.always("a", OK, takes=5.0)
    for _ in range(40):
        await left(scene, asyncio.create_task(scene.serve()), 0.1)
    scene.always("a", OK)
    assert scene.state("a") == CLOSED
    assert isinstance(await scene.serve(), Reply)
    assert scene.counted["attempt", "a", "ignore"] == 80


@virtual
async def test_streams_that_all_break_are_counted_as_failures_and_open_the_breaker():
    scene = Scene("a")
    for number in range(5):
        call = scene.call(b"%d" % number)
        call.request.stream = True
        await scene.handle(call)
        call.response.outcome = "truncated"
        call.lease.settle(call, scene.loop.time())
    assert scene.counted == {("attempt", "a", "retryable"): 5}
    assert scene.state("a") == OPEN


# Deadlines.


@virtual
async def test_a_pause_beyond_the_total_is_not_begun():
    scene = Scene("a", tries=9, longest=60.0, total=5.0)
    scene.always("a", status(429, retry_after=2.0))
    assert isinstance(await scene.serve(), UpstreamFailure)
    assert [round(at, 3) for _, at in scene.sent] == [0.0, 2.0, 4.0]
    assert scene.loop.time() - scene.started < 5.0


@virtual
async def test_a_pause_beyond_the_clients_own_time_is_not_begun():
    scene = Scene("a", tries=9, longest=60.0)
    scene.always("a", status(429, retry_after=2.0))
    assert isinstance(await scene.serve(scene.call(patience=3.0)), UpstreamFailure)
    assert [round(at, 3) for _, at in scene.sent] == [0.0, 2.0]


@virtual
async def test_after_the_deadline_no_other_upstream_is_called():
    scene = Scene("a", "b")
    scene.always("a", status(500), takes=5.0)
    answer = await scene.serve(scene.call(patience=3.0))
    assert isinstance(answer, UpstreamFailure)
    assert answer.status == 500
    assert scene.sent == [("a", 0.0)]
    assert not any(key[0] == "retry" for key in scene.counted)


@virtual
async def test_attempts_pauses_and_queue_share_one_deadline():
    """First attempt 1 s, pause 2 s, then a queue that is longer than the rest."""
    scene = Scene("a", tries=3, longest=60.0, permits=1)
    scene.always("a", status(429, retry_after=2.0), takes=1.0)
    call = asyncio.create_task(scene.serve(scene.call(patience=5.0)))
    await asyncio.sleep(1.5)
    scene.always("a", OK, takes=30.0)
    holder = asyncio.create_task(scene.serve())
    answer = await call
    assert scene.loop.time() - scene.started <= 5.01
    assert isinstance(answer, UpstreamFailure | Rejection)
    await left(scene, holder, 0.1)
    assert scene.at_rest()


@virtual
async def test_row_52_a_call_that_would_wait_too_long_goes_to_another_upstream():
    scene = Scene("a", "b", permits=1)
    scene.always("a", OK, takes=50.0)
    await scene.serve()
    holder = asyncio.create_task(scene.serve())
    await asyncio.sleep(0.1)
    assert isinstance(await scene.serve(scene.call(patience=10.0)), Reply)
    assert [name for name, _ in scene.sent] == ["a", "a", "b"]
    assert not any(key[0] == "retry" for key in scene.counted)
    await left(scene, holder, 0.1)


@virtual
async def test_row_52_a_call_rejected_by_a_full_queue_takes_a_free_slot_elsewhere():
    scene = Scene("a", "b", permits=1, room=0)
    scene.always("a", OK, takes=50.0)
    holder = asyncio.create_task(scene.serve())
    await asyncio.sleep(0.1)
    assert isinstance(await scene.serve(), Reply)
    assert scene.calls("b") == 1
    await left(scene, holder, 0.1)


@virtual
async def test_a_retry_that_a_queue_rejects_ends_the_call():
    scene = Scene("a", tries=3, longest=60.0, permits=1, room=0)
    scene.always("a", status(429, retry_after=2.0))
    call = asyncio.create_task(scene.serve())
    await asyncio.sleep(1.0)
    scene.always("a", OK, takes=30.0)
    holder = asyncio.create_task(scene.serve())
    answer = await call
    assert isinstance(answer, UpstreamFailure | Rejection)
    assert scene.calls("a") == 2
    await left(scene, holder, 0.1)
    assert scene.at_rest()


@virtual
async def test_the_queues_rejection_is_returned_if_no_upstream_has_a_slot():
    scene = Scene("a", permits=1)
    scene.always("a", OK, takes=50.0)
    holder = asyncio.create_task(scene.serve())
    await asyncio.sleep(0.1)
    answer = await scene.serve(scene.call(patience=1.0))
    assert isinstance(answer, Rejection)
    assert answer.kind in (DEADLINE_IN_QUEUE, QUEUE_FULL)
    await left(scene, holder, 0.1)


# Leaving.


async def left(scene: Scene, task: "asyncio.Task[Any]", after: float) -> None:
    """The client goes after so many seconds."""
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@virtual
async def test_a_client_that_leaves_in_the_pause_holds_nothing_and_no_upstream_is_called():
    scene = Scene("a", longest=60.0, permits=1)
    scene.script("a", status(429, retry_after=10.0), OK)
    task = asyncio.create_task(scene.serve())
    await asyncio.sleep(1.0)
    assert scene.queue_layer.in_flight()["a"] == 0  # nor does who pauses
    await left(scene, task, 1.0)
    assert scene.at_rest()
    await asyncio.sleep(20.0)
    assert scene.calls("a") == 1


@virtual
async def test_a_client_that_leaves_in_the_pause_or_the_queue_after_it_pays_for_no_second_input():
    for leaves in (1.0, 12.0):
        scene = Scene("a", longest=60.0, permits=1)
        scene.script("a", status(429, retry_after=10.0), OK, OK)
        call = scene.call()
        call.usage.estimate = TokenEstimate(1000, 10, False)
        task = asyncio.create_task(scene.serve(call))
        await asyncio.sleep(0.1)
        scene.takes["a"] = 30.0
        other = asyncio.create_task(scene.serve())
        await left(scene, task, leaves)
        assert (scene.calls("a"), call.attempts) == (2, 1)
        assert spent(call) is NOTHING
        await left(scene, other, 0.0)


@virtual
async def test_neither_a_failed_attempt_nor_the_pause_after_it_is_gateway_overhead():
    scene = Scene("a", "b", tries=3, longest=60.0)
    scene.script("a", status(429, retry_after=10.0), OK)
    scene.always("b", status(403), takes=2.0)
    scene.takes["a"] = 3.0
    call = scene.call()
    assert isinstance(await scene.serve(call), Reply)
    assert [name for name, _ in scene.sent] == ["a", "b", "a"]
    assert call.overhead_s(scene.loop.time()) == pytest.approx(0.0, abs=1e-6)


class Nothing:
    """A store of answers that has none and takes none."""

    largest = 0

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        return [None] * len(keys)

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        raise AssertionError("nothing here is to be kept")


@virtual
async def test_with_a_cache_around_them_failed_attempts_are_not_gateway_overhead_either():
    """The call that they move on is the one of the flight, for the first caller and for all who join it."""
    scene = Scene("a", "b")
    scene.always("a", failed(CONNECT), takes=3.0)
    scene.always("b", OK, takes=2.0)
    savings = CacheMetrics(Metrics(), lambda call: None)
    clock = scene.loop.time
    cache = CacheLayer({"m": CachePolicy(Nothing(), 9.0, b"s")}, Flights(clock), savings, lambda: "id", clock)
    scene.handle = cache.lookup(cache.answer(scene.handle))

    async def comes(after: float) -> Call:
        await asyncio.sleep(after)
        call = scene.call(b'{"model":"m","temperature":0,"messages":[]}')
        call.request.model, call.timing.ready_at, call.caller = "m", clock(), Caller("k", None)
        assert isinstance(await scene.serve(call), Reply)
        return call

    calls = await asyncio.gather(*(comes(after) for after in (0.0, 1.0, 4.0)))
    assert [name for name, _ in scene.sent] == ["a", "b"]
    assert [one.cached_by for one in calls] == ["", "collapsed", "collapsed"]
    assert [one.overhead_s(clock()) for one in calls] == [pytest.approx(0.0, abs=1e-6)] * 3


@virtual
async def test_a_call_sent_again_by_an_outer_layer_is_no_new_request_and_reads_the_clock_again():
    """As after an overflow: the body is another one, and the call has been here before."""
    scene = Scene("a", "b")
    earned: list[float] = []
    scene.health["a"].budget.deposit = earned.append
    call = scene.call()
    scene.script("a", OVERFLOW, *[failed(CONNECT)] * 5, OK)
    scene.script("b", OVERFLOW, *[OK] * 10)
    assert isinstance(await scene.serve(call), UpstreamFailure)
    for number in range(5):
        await scene.serve(scene.call(b"%d" % number))
    assert (scene.state("a"), len(earned)) == (OPEN, 6)
    await asyncio.sleep(7.0)  # it may be tried again
    call.routing.candidate = scene.candidates["a"]
    assert isinstance(await scene.serve(call), Reply)
    assert (scene.sent[-1][0], scene.state("a"), len(earned)) == ("a", CLOSED, 6)


@virtual
async def test_a_call_sent_again_by_an_outer_layer_forgets_when_its_first_answer_came():
    scene = Scene("a", tries=1)
    call = scene.call()
    scene.script("a", OK, failed(CONNECT))
    assert isinstance(await scene.serve(call), Reply)
    assert call.timing.answered_at == scene.loop.time()
    assert isinstance(await scene.serve(call), UpstreamFailure)
    assert call.timing.answered_at == 0.0


@virtual
async def test_a_client_that_leaves_in_the_second_attempt_returns_everything():
    scene = Scene("a", "b")
    scene.always("a", status(500))
    scene.always("b", OK, takes=10.0)
    task = asyncio.create_task(scene.serve())
    await asyncio.sleep(1.0)
    assert scene.queue_layer.in_flight()["b"] == 1
    await left(scene, task, 0.0)
    assert scene.at_rest()
    assert scene.counted["attempt", "b", "ignore"] == 1
    assert scene.state("b") == CLOSED


@virtual
async def test_a_client_that_leaves_as_the_probe_returns_its_permit():
    scene = Scene("a", "b")
    scene.always("a", failed(CONNECT))
    await scene.many(10)
    await asyncio.sleep(6.5)
    scene.always("a", OK, takes=10.0)
    probe = asyncio.create_task(scene.serve())
    await asyncio.sleep(1.0)
    assert scene.sent[-1][0] == "a"
    assert isinstance(await scene.serve(), Reply)
    assert scene.sent[-1][0] == "b"  # one probe at a time
    await left(scene, probe, 0.0)
    scene.always("a", OK)
    assert isinstance(await scene.serve(), Reply)
    assert scene.sent[-1][0] == "a"
    assert scene.state("a") == CLOSED


@virtual
async def test_a_probe_that_pauses_holds_no_permit():
    """An upstream whose probe slept would get no calls meanwhile."""
    scene = Scene("a", "b", tries=3, longest=60.0)
    scene.always("a", failed(CONNECT))
    await scene.many(10)
    await asyncio.sleep(6.5)
    scene.script("a", status(429, retry_after=30.0), OK)
    scene.script("b", status(429, retry_after=50.0))
    sleeper = asyncio.create_task(scene.serve())
    await asyncio.sleep(2.0)
    assert isinstance(await scene.serve(), Reply)
    assert [name for name, _ in scene.sent[-3:]] == ["a", "b", "a"]
    assert scene.state("a") == CLOSED
    await left(scene, sleeper, 0.0)


# Poison.


@virtual
async def test_row_28_two_deaths_are_enough_and_others_go_on():
    scene = Scene("a", "b", "c", "d", tries=4, share=10.0)
    for name in "abcd":
        scene.always(name, failed(RESET))
    answer = await scene.serve(scene.call(b"poison"))
    assert isinstance(answer, Rejection)
    assert answer.kind is REQUEST_SUSPENDED
    assert answer.retry_after == pytest.approx(60.0)
    assert [name for name, _ in scene.sent] == ["a", "b"]
    for name in "abcd":
        scene.always(name, OK)
    assert isinstance(await scene.serve(scene.call(b"innocent")), Reply)
    again = await scene.serve(scene.call(b"poison"))
    assert isinstance(again, Rejection)
    assert again.kind is REQUEST_SUSPENDED
    assert len(scene.sent) == 3
    await asyncio.sleep(60.1)
    assert isinstance(await scene.serve(scene.call(b"poison")), Reply)


@virtual
async def test_failures_of_another_kind_are_no_deaths():
    scene = Scene("a", "b", tries=2, share=10.0)
    for name in "ab":
        scene.always(name, status(500))
    for _ in range(3):
        assert isinstance(await scene.serve(scene.call(b"same")), UpstreamFailure)
        await asyncio.sleep(2.0)


# A busy candidate.


@virtual
async def test_an_upstream_that_asks_for_a_pause_gets_no_calls_while_another_has_slots():
    scene = Scene("a", "b")
    scene.always("a", status(429, retry_after=30.0))
    for _ in range(20):
        assert isinstance(await scene.serve(), Reply)
    assert [name for name, _ in scene.sent].count("a") == 1


@virtual
async def test_an_upstream_that_rejects_the_account_gets_no_calls_for_a_moment():
    scene = Scene("a", "b")
    scene.always("a", status(402))
    for _ in range(20):
        assert isinstance(await scene.serve(), Reply)
    assert [name for name, _ in scene.sent].count("a") == 1


@virtual
async def test_a_models_only_candidate_is_called_in_spite_of_its_pause():
    scene = Scene("a", tries=1)
    scene.always("a", status(429, retry_after=30.0))
    for _ in range(2):
        assert isinstance(await scene.serve(), UpstreamFailure)
    assert len(scene.sent) == 2


@virtual
async def test_an_upstream_without_the_path_gets_no_calls_to_that_endpoint_for_a_minute():
    """It is not dead, so no breaker stops its calls: each of them would cost a retry."""
    scene = Scene("a", "b")
    scene.always("a", UpstreamFailure(UPSTREAM_PATH_UNKNOWN, "Not Found", cause=STATUS, status=404))
    assert good(await scene.many(300)) == 300
    assert (scene.calls("a"), scene.counted["retry", "a", "path"]) == (1, 1)
    scene.always("a", OK)
    elsewhere = scene.call()
    elsewhere.request.endpoint = EMBEDDINGS
    assert isinstance(await scene.serve(elsewhere), Reply)
    assert scene.calls("a") == 2
    await scene.serve()
    assert scene.calls("a") == 2
    await asyncio.sleep(61.0)
    await scene.serve()
    assert scene.calls("a") == 3
