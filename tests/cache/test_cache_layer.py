"""The cache layers with a fake store and a fake upstream: interleavings that a socket test cannot hit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from doubles.script import DONE, piece, stop
from kit.calls import make_call

from gateway.cache.accounting import CacheMetrics
from gateway.cache.fan_out import ReplayedStream, SubscriberSummary
from gateway.cache.layer import CacheLayer
from gateway.cache.lookup import CachePolicy
from gateway.cache.single_flight import Flights
from gateway.cache.store import CacheEntry, CacheHit, CacheUnavailable
from gateway.core.call import Call, Candidate, Reply, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.core.errors import (
    CONNECT,
    DEADLINE_IN_QUEUE,
    INSUFFICIENT_QUOTA,
    TOTAL,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.core.stream import StreamConsumer
from gateway.telemetry.metrics import Metrics
from gateway.usage.call_usage import NOTHING, spent

ROUTE = Route("small", b'"small"', (Candidate("local", "up", b'"up"'),))
BODY = b'{"model":"small","temperature":0,"messages":[]}'
ANSWER = b'{"id":"c-1","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'


class Shelf:
    """A fake store; `may_put` holds `put` back while it is cleared."""

    largest = 10**6

    def __init__(self) -> None:
        self.entries: dict[bytes, CacheEntry] = {}
        self.lookups = 0
        self.away = False
        self.putting = asyncio.Event()
        self.may_put = asyncio.Event()
        self.may_put.set()

    @property
    def up(self) -> bool:
        return not self.away

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        self.lookups += 1
        if self.away:
            raise CacheUnavailable
        return [CacheHit(self.entries[key], 1.0, 9.0) if key in self.entries else None for key in keys]

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        self.putting.set()
        await self.may_put.wait()
        if self.away:
            raise CacheUnavailable
        self.entries.update(entries)


class Bench:
    """Both layers around limits and an upstream, which wait for events of the test."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.flights = Flights(lambda: 1.0)
        metrics = Metrics()
        self.results = metrics.cache_requests
        cache_metrics = CacheMetrics(metrics, lambda call: None)
        policies = {"small": CachePolicy(self.shelf, 9.0, b"s")}
        self.cache = CacheLayer(policies, self.flights, cache_metrics, lambda: "new", lambda: 1.0)
        self.asked: list[Call] = []
        self.limits: Callable[[Call], Awaitable[None]] | None = None
        self.upstream: Callable[[Call], Awaitable[Reply | Rejection]] = self.answers
        self.handle = self.cache.lookup(self.limited(self.cache.answer(self.forward)))

    def limited(self, inner: Any) -> Any:
        async def handle(call: Call) -> Reply | Rejection:
            if self.limits is not None:
                await self.limits(call)
            reply: Reply | Rejection = await inner(call)
            return reply

        return handle

    async def forward(self, call: Call) -> Reply | Rejection:
        self.asked.append(call)
        call.attempts += 1
        return await self.upstream(call)

    async def answers(self, call: Call) -> Reply | Rejection:
        call.usage.tokens = TokenUsage(5, 2)
        return Reply(200, ANSWER)

    def counted(self) -> dict[str, float]:
        """Calls by result."""
        return {result: series.cells[0] for (result,), series in self.results.series.items()}

    def after(self, go: asyncio.Event) -> Callable[[Call], Awaitable[Reply | Rejection]]:
        """An upstream that answers once `go` is set."""

        async def waits(call: Call) -> Reply | Rejection:
            await go.wait()
            return await self.answers(call)

        return waits

    def call(self) -> Call:
        """Another call with the same body."""
        call = make_call(now=1.0)
        call.request.body, call.request.model, call.routing.route, call.routing.candidate = (
            BODY,
            "small",
            ROUTE,
            ROUTE.candidates[0],
        )
        call.caller = Caller("team-a", None)
        return call


@pytest.fixture
async def bench() -> Any:
    bench = Bench()
    yield bench
    await bench.flights.close()


async def test_an_answer_stored_while_the_limits_decide_is_a_hit(bench: Bench) -> None:
    waiting, go = asyncio.Event(), asyncio.Event()

    async def slow_limits(call: Call) -> None:
        waiting.set()
        await go.wait()

    bench.limits = slow_limits
    slow = bench.call()
    task = asyncio.ensure_future(bench.handle(slow))
    await waiting.wait()
    bench.limits = None
    await bench.handle(bench.call())
    await bench.shelf.putting.wait()
    await asyncio.sleep(0)
    go.set()
    assert isinstance(await task, Reply)
    assert len(bench.asked) == 1
    assert (slow.cached_by, slow.usage.tokens, slow.usage.saved) == ("hit", TokenUsage(), TokenUsage(5, 2))
    assert slow.response.notes["cache-status"] == "sluice; hit; ttl=9"


async def test_without_a_completed_flight_there_is_no_second_lookup(bench: Bench) -> None:
    await bench.handle(bench.call())
    assert bench.shelf.lookups == 1


async def test_a_call_that_arrives_while_an_answer_is_being_stored_gets_it(bench: Bench) -> None:
    bench.shelf.may_put.clear()
    first, second = bench.call(), bench.call()
    await bench.handle(first)
    await bench.shelf.putting.wait()
    reply = await bench.handle(second)
    assert isinstance(reply, Reply)
    assert (reply.body, len(bench.asked)) == (ANSWER, 1)
    assert (first.cached_by, second.cached_by) == ("", "collapsed")
    assert (first.usage.tokens, second.usage.tokens, second.usage.saved) == (
        TokenUsage(5, 2),
        TokenUsage(),
        TokenUsage(5, 2),
    )
    bench.shelf.may_put.set()


async def test_an_unavailable_store_costs_nobody_an_answer(bench: Bench) -> None:
    bench.shelf.away = True
    for number in (1, 2):
        go = asyncio.Event()
        bench.upstream = bench.after(go)
        asking = asyncio.ensure_future(bench.handle(bench.call()))
        for _ in range(5):
            await asyncio.sleep(0)
        (flying,) = bench.flights._tasks
        go.set()
        assert isinstance(await asking, Reply)
        await flying  # does not fail
        assert len(bench.asked) == number


async def test_every_caller_gets_its_own_copy_of_a_failure(bench: Bench) -> None:
    go = asyncio.Event()

    async def fails(call: Call) -> Reply | Rejection:
        await go.wait()
        raise UpstreamFailure(UPSTREAM_UNAVAILABLE, "gone", cause=CONNECT)

    bench.upstream = fails
    tasks = [asyncio.ensure_future(bench.handle(bench.call())) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(call) for call in found] == [UpstreamFailure] * 3
    assert len({id(call) for call in found}) == 3
    assert len(bench.asked) == 1


async def test_an_unexpected_exception_reaches_every_caller_and_is_not_cached(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def breaks(call: Call) -> Reply | Rejection:
        await go.wait()
        raise ZeroDivisionError

    bench.upstream = breaks
    tasks = [asyncio.ensure_future(bench.handle(bench.call())) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(call) for call in found] == [ZeroDivisionError] * 3
    assert "a shared call is abandoned" in caplog.text
    bench.upstream = bench.answers
    assert isinstance(await bench.handle(bench.call()), Reply)


async def test_the_latest_deadline_and_the_highest_priority_count_for_all(bench: Bench) -> None:
    go = asyncio.Event()
    bench.upstream = bench.after(go)
    first, second = bench.call(), bench.call()
    first.timing.deadline, first.priority = 5.0, "batch"
    second.timing.deadline = 50.0
    tasks = [asyncio.ensure_future(bench.handle(call)) for call in (first, second)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (bench.asked[0].timing.deadline, bench.asked[0].priority) == (50.0, "interactive")
    go.set()
    await asyncio.gather(*tasks)


async def test_a_budget_that_is_too_small_rejects_only_its_own_caller(bench: Bench) -> None:
    go = asyncio.Event()

    async def by_its_budget(call: Call) -> Reply | Rejection:
        await go.wait()
        return await bench.answers(call) if call.routing.ceiling is None else Rejection(INSUFFICIENT_QUOTA, "spent")

    bench.upstream = by_its_budget
    poor, rich, also_rich = bench.call(), bench.call(), bench.call()
    poor.routing.ceiling = 1
    tasks = [asyncio.ensure_future(bench.handle(call)) for call in (poor, rich, also_rich)]
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    refused, *answered = await asyncio.gather(*tasks)
    assert isinstance(refused, Rejection)
    assert all(isinstance(call, Reply) for call in answered)
    assert [call.routing.ceiling for call in bench.asked] == [1, None]
    assert (rich.cached_by, rich.usage.tokens, also_rich.cached_by) == ("", TokenUsage(5, 2), "collapsed")
    # The second flight was started by a caller that had joined the first: it counts as call miss.
    assert bench.counted() == {"miss": 2, "collapsed": 1}


@pytest.mark.parametrize("queued", [True, False])
async def test_one_callers_short_deadline_rejects_no_other_caller(bench: Bench, queued: bool) -> None:
    go = asyncio.Event()

    async def late(call: Call) -> Reply | Rejection:
        patience = call.timing.deadline  # as it is when it is sent
        await go.wait()
        if patience > 10.0:
            return await bench.answers(call)
        if queued:
            return Rejection(DEADLINE_IN_QUEUE, "late", retry_after=1.0)
        raise UpstreamFailure(UPSTREAM_TIMEOUT, "late", cause=TOTAL)

    bench.upstream = late
    first, second, as_hasty = bench.call(), bench.call(), bench.call()
    first.timing.deadline, second.timing.deadline, as_hasty.timing.deadline = 1.5, 50.0, 1.7
    tasks = [asyncio.ensure_future(bench.handle(first))]
    for _ in range(5):
        await asyncio.sleep(0)
    tasks += [asyncio.ensure_future(bench.handle(call)) for call in (second, as_hasty)]
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, Reply) for outcome in outcomes] == [False, True, False]
    assert len(bench.asked) == 2


async def test_a_caller_with_an_earlier_deadline_times_out_without_the_others(bench: Bench) -> None:
    go = asyncio.Event()
    bench.upstream = bench.after(go)
    patient, hasty = bench.call(), bench.call()
    hasty.timing.deadline = 1.01  # a moment after this test's clock, which stands still
    waiting = asyncio.ensure_future(bench.handle(patient))
    with pytest.raises(UpstreamFailure) as late:
        await asyncio.wait_for(bench.handle(hasty), 5)
    assert (late.value.kind, late.value.cause) == (UPSTREAM_TIMEOUT, TOTAL)
    assert not waiting.done()
    go.set()
    assert isinstance(await waiting, Reply)
    assert len(bench.asked) == 1


async def test_the_last_caller_to_leave_pays_for_the_call(bench: Bench) -> None:
    async def hangs(call: Call) -> Reply | Rejection:
        call.timing.sent_at = 7.0
        return await asyncio.Future()

    bench.upstream = hangs
    calls = [bench.call(), bench.call()]
    tasks = [asyncio.ensure_future(bench.handle(call)) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [(call.attempts, call.timing.sent_at, call.cached_by) for call in calls] == [(0, 0.0, ""), (1, 7.0, "")]
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.asked[0].response.outcome == "client_gone"
    bench.upstream = bench.answers
    assert isinstance(await bench.handle(bench.call()), Reply)


class _Stream:
    """A stream that has started and does not end."""

    def __init__(self) -> None:
        self.reader = SubscriberSummary()
        self.reader.tokens = None
        self.finished: asyncio.Future[UpstreamFailure | None] = asyncio.get_running_loop().create_future()

    def attach(self, client: StreamConsumer) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Do nothing."""


async def test_a_caller_that_leaves_a_stream_at_once_pays_nothing_while_others_stay(bench: Bench) -> None:
    go = asyncio.Event()

    async def streams(call: Call) -> Reply | Rejection:
        call.usage.estimate, call.timing.sent_at = TokenEstimate(9, 9, capped=False), 7.0
        await go.wait()
        call.timing.first_token_at = 8.0
        return Reply(200, stream=_Stream())

    bench.upstream = streams
    calls = [bench.call(), bench.call()]
    for call in calls:
        call.request.stream = True
    tasks = [asyncio.ensure_future(bench.handle(call)) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    while not calls[0].attempts:
        await asyncio.sleep(0)
    for task in tasks:  # their outcome is set, but they have not run yet
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for call in calls:
        call.response.outcome = "client_gone"
    assert [spent(call) for call in calls] == [NOTHING, TokenUsage(9)]
    assert [call.usage.tokens for call in calls] == [NOTHING, None]


async def test_uncounted_usage_is_saved_as_estimated(bench: Bench) -> None:
    async def uncounted(call: Call) -> Reply | Rejection:
        call.usage.estimate, call.usage.generated = TokenEstimate(9, 9, capped=False), 2
        return Reply(200, ANSWER)

    bench.upstream = uncounted
    calls = [bench.call(), bench.call()]
    await asyncio.gather(*(bench.handle(call) for call in calls))
    assert [(call.cached_by, call.usage.saved) for call in calls] == [("", None), ("collapsed", TokenUsage(9, 2))]


async def test_a_call_that_arrives_after_a_stream_has_ended_shares_it(bench: Bench) -> None:
    async def streams(call: Call) -> Reply | Rejection:
        call.usage.tokens = TokenUsage(5, 2)
        return Reply(200, stream=ReplayedStream(piece("a") + stop() + DONE, lambda: 1.0))

    bench.upstream = streams
    bench.shelf.may_put.clear()
    calls = [bench.call(), bench.call()]
    for call in calls:
        call.request.stream = True
    await bench.handle(calls[0])
    await bench.shelf.putting.wait()
    await bench.handle(calls[1])
    assert (calls[1].cached_by, calls[1].usage.saved, len(bench.asked)) == ("collapsed", TokenUsage(), 1)
    bench.shelf.may_put.set()


@pytest.mark.parametrize(("away", "status"), [(False, "sluice; fwd=miss; stored"), (True, "sluice; fwd=miss")])
async def test_an_answer_is_called_stored_only_while_the_store_is_there(
    bench: Bench, *, away: bool, status: str
) -> None:
    bench.shelf.away = away
    call = bench.call()
    await bench.handle(call)
    assert call.response.notes["cache-status"] == status
