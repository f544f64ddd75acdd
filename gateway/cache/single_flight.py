"""Single flight (Go's `singleflight`): identical concurrent requests share one upstream call.

The upstream call runs in its own task, so a caller that leaves does not disturb the others; when all have
left, it is cancelled. One of the callers present at the end pays, or the last to leave. All belong to the
same key, because keys never share answers. The call carries the first caller's deadline and budget: if it
fails because of these, callers that have more of them try again.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from gateway.cache.accounting import charge, copy_metadata, mark_shared
from gateway.cache.fan_out import FanOut, Subscriber
from gateway.cache.store import CacheUnavailable
from gateway.core.call import Call, Handler, Reply
from gateway.core.caller import INTERACTIVE
from gateway.core.clock import Clock
from gateway.core.errors import (
    DEADLINE_IN_QUEUE,
    INSUFFICIENT_QUOTA,
    INTERNAL_ERROR,
    RESET,
    TOTAL,
    UPSTREAM_TIMEOUT,
    Rejection,
    UpstreamFailure,
)
from gateway.core.stream import EventStream, outcome_of
from gateway.telemetry.logging import logger
from gateway.usage.call_usage import NOTHING

_ABANDONED: Final = UpstreamFailure(INTERNAL_ERROR, "Internal error of the gateway.", cause=RESET)
_TIMED_OUT: Final = UpstreamFailure(
    UPSTREAM_TIMEOUT, "The answer did not arrive within this request's timeout.", cause=TOTAL
)
_MIN_RETRY_S: Final = 1.0
"""Time that a caller must have left to try again after another caller's deadline ended the call."""

StoreAction = Callable[[], Awaitable[None]]
"""Stores an answer."""


class Fetched(NamedTuple):
    """The upstream's reply; `store` is None if it must not be stored, or is a stream."""

    reply: Reply | Rejection
    store: StoreAction | None = None


class Fetcher(Protocol):
    """Makes the upstream call of a flight."""

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Call the upstream. Raises UpstreamFailure."""

    def on_events(self, events: bytes) -> None:
        """Receive a part of a streamed answer."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """Return how to store a stream that ended well, as `Fetched.store`."""


_Outcome = Reply | Rejection | UpstreamFailure | None


class _Waiter:
    """One caller of a flight, and the future of its outcome."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self.subscriber: Subscriber | None = None

    def resolve(self, outcome: "_Outcome") -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Flight:
    """One upstream call and the callers that share it."""

    def __init__(self, call: Call, fetcher: Fetcher, clock: Clock) -> None:
        """`call` goes upstream."""
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[_Waiter] = []
        self._fetcher = fetcher
        self._clock = clock
        self._first_deadline = call.timing.deadline  # `call.timing.deadline` may be extended after it was sent
        self._outcome: Reply | Rejection | UpstreamFailure | None = None
        self._stream: EventStream | None = None
        self._fan_out: FanOut | None = None
        self._stored = False
        self._finished = False

    @property
    def open(self) -> bool:
        """Whether a caller may join."""
        return bool(self.waiters) and (self._fan_out is None or self._fan_out.open)

    async def share(self, call: Call) -> Reply | Rejection | None:
        """Join, and return the answer; None if this caller should try again. Raises UpstreamFailure."""
        waiter, expiry = _Waiter(call), None
        shared = self.call
        shared.timing.deadline = max(shared.timing.deadline, call.timing.deadline)  # the most patient caller decides
        if call.priority == INTERACTIVE:
            shared.priority = INTERACTIVE
        if self.waiters:
            call.cached_by = "collapsed"
        self.waiters.append(waiter)
        if self._outcome is not None:
            self._deliver(waiter, self._outcome)
        if call.timing.deadline != math.inf:
            delay = call.timing.deadline - self._clock()
            expiry = asyncio.get_running_loop().call_later(delay, self._expire, waiter)
        try:
            outcome = await waiter.outcome
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
        if isinstance(outcome, UpstreamFailure):
            raise outcome.copy()
        return outcome

    async def run(self, inner: Handler) -> StoreAction | None:
        """Make the call, deliver its outcome to all callers, and return how to store the answer."""
        call, store = self.call, None
        try:
            fetched = await self._fetcher.fetch(inner, call)
            store, self._stored = fetched.store, fetched.store is not None
            if isinstance(fetched.reply, Reply) and fetched.reply.stream is not None:
                store = await self._pump(fetched.reply.stream, fetched.reply)
            else:
                call.response.outcome = "ok" if isinstance(fetched.reply, Reply) else fetched.reply.kind.outcome
                self._deliver_all(fetched.reply)
        except UpstreamFailure as failure:
            call.response.outcome = failure.kind.outcome
            self._deliver_all(failure)
            failure.drop_frames()
        except asyncio.CancelledError:
            call.response.outcome = "client_gone"
            raise
        except Exception as error:  # noqa: BLE001 - the task ends here; its callers get the exception
            logger.exception("bug in the gateway; a shared call is abandoned")
            for waiter in self.waiters:
                if not waiter.outcome.done():
                    waiter.outcome.set_exception(error)
        finally:
            self._finished = True
            if self._fan_out is not None:
                self._fan_out.end(_ABANDONED, None, "")
            for waiter in self.waiters:
                waiter.outcome.cancel()  # only unresolved ones: the gateway is shutting down
            call.lease.settle(call, self._clock())
            self.task = None  # break the reference cycle
        return store

    async def _pump(self, stream: EventStream, reply: Reply) -> StoreAction | None:
        """Relay a stream to all callers until it ends."""
        call = self.call
        self._stream, self._fan_out = stream, FanOut(self._fetcher.on_events, self._clock)
        try:
            self._deliver_all(reply)
            stream.attach(self._fan_out)
            failure = await stream.finished
        finally:
            stream.close()
            summary = stream.reader
            call.usage.tokens, call.usage.generated, call.response.finish = (
                summary.tokens,
                summary.generated,
                summary.finish,
            )
        call.response.outcome = outcome_of(failure, in_band=summary.error is not None)
        self._finished = True
        payer = next(iter(self.waiters), None)
        if payer is not None and payer.subscriber is not None:
            charge(payer.call, call)
            payer.subscriber.reader.copy_usage(summary)
        for waiter in self.waiters[1:]:
            mark_shared(waiter.call, call)
        self._fan_out.end(failure, summary.error, summary.finish)
        return self._fetcher.on_complete(call) if failure is None else None

    def _deliver_all(self, outcome: Reply | Rejection | UpstreamFailure) -> None:
        self._outcome = outcome
        for waiter in tuple(self.waiters):
            self._deliver(waiter, outcome)

    def _expire(self, waiter: _Waiter) -> None:
        """Time a caller out, unless it has the latest deadline: then the upstream call itself times out."""
        if not waiter.outcome.done() and self.call.timing.deadline > waiter.call.timing.deadline:
            self._leave(waiter)
            waiter.resolve(_TIMED_OUT)

    def _deliver(self, waiter: _Waiter, outcome: Reply | Rejection | UpstreamFailure) -> None:
        call, shared = waiter.call, self.call
        if not isinstance(outcome, Reply) and self._worth_retrying(call, outcome):
            self.waiters.remove(waiter)
            waiter.resolve(None)
            return
        first = waiter is self.waiters[0]
        copy_metadata(call, shared, first=first)
        if self._fan_out is not None and isinstance(outcome, Reply):
            waiter.subscriber = subscriber = Subscriber(self._fan_out, lambda _: self._leave(waiter))
            self._fan_out.join(subscriber)
            outcome = Reply(outcome.status, stream=subscriber)
            if self._finished:
                mark_shared(call, shared)
        elif first:
            charge(call, shared)
        else:
            mark_shared(call, shared)
        status = call.response.notes.get("cache-status", "")
        if call.cached_by == "collapsed":
            call.response.notes["cache-status"] = f"{status}; collapsed"
        elif self._stored:
            call.response.notes["cache-status"] = f"{status}; stored"
        waiter.resolve(outcome)

    def _worth_retrying(self, call: Call, outcome: Rejection | UpstreamFailure) -> bool:
        """Return whether the failure is due to the first caller's budget or deadline, and `call` has more."""
        shared, kind = self.call, outcome.kind
        if kind is INSUFFICIENT_QUOTA and shared.routing.ceiling is not None:
            return call.routing.ceiling is None or call.routing.ceiling > shared.routing.ceiling
        if kind is not DEADLINE_IN_QUEUE and not (isinstance(outcome, UpstreamFailure) and outcome.cause == TOTAL):
            return False
        now = self._clock()
        return self._first_deadline - now < _MIN_RETRY_S <= call.timing.deadline - now

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a caller that has left or has read its stream to the end; the last one ends the flight."""
        if waiter not in self.waiters:
            return
        self.waiters.remove(waiter)
        if self._fan_out is not None and waiter.subscriber is not None:
            self._fan_out.leave(waiter.subscriber)
        if self._finished or self.waiters:
            if not self._finished:
                # The remaining callers pay for the usage so far.
                waiter.call.usage.tokens, waiter.call.usage.estimate = NOTHING, None
            return
        copy_metadata(waiter.call, self.call, first=True)
        charge(waiter.call, self.call)
        if self._stream is not None and waiter.subscriber is not None:
            waiter.subscriber.reader.copy_usage(self._stream.reader)
        if self.task is not None:
            # Deferred: a task that is cancelled before its first step runs nothing, not even `finally`.
            asyncio.get_running_loop().call_soon(self.task.cancel)


class Flights:
    """All flights of a process.

    A flight is keyed by `inner` too, so that it is shared only within one generation of the config: an older
    generation's connections are closed after its last call.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.completed = 0
        """Number of flights that have ended and stored their answer: a change is worth a second lookup."""
        self._in_flight: dict[tuple[Handler, bytes], Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, inner: Handler, key: bytes) -> Flight | None:
        """Return the flight that a call may join."""
        flight = self._in_flight.get((inner, key))
        return flight if flight is not None and flight.open else None

    def start(self, inner: Handler, key: bytes, call: Call, fetcher: Fetcher) -> Flight:
        """Start a flight; the caller must `share` it before the next step of the event loop."""
        shared = call.derive(f"{call.request.id[:120]}-shared")
        shared.request.body, shared.request.spans, shared.request.stream = (
            call.request.body,
            call.request.spans,
            call.request.stream,
        )
        shared.usage.estimate, shared.usage.day = call.usage.estimate, call.usage.day
        shared.usage.needed = True  # stored with the answer, so a stream must report it too
        flight = self._in_flight[inner, key] = Flight(shared, fetcher, self._clock)
        flight.task = task = asyncio.create_task(self._run(inner, key, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def close(self) -> None:
        """Cancel all flights; their callers have left."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, inner: Handler, key: bytes, flight: Flight) -> None:
        try:
            store = await flight.run(inner)
            if store is not None:
                with suppress(CacheUnavailable):
                    await store()  # until it is stored, callers join the flight
        finally:
            self.completed += 1
            if self._in_flight.get((inner, key)) is flight:
                del self._in_flight[inner, key]
