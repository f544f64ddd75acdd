"""Single flight: callers who want the same at the same time get it from one upstream call.

Its task belongs to nobody, so whoever leaves disturbs nobody; when all have left, it ends. What it costs is
paid for by one of those who are there at its end, or by the last one who leaves. All of them have the same
key, for keys share no answers. It flies as the one who began it: where that one had too little left of its
time or its budget, those who have more ask again.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, cast

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

_GIVEN_UP: Final = UpstreamFailure(INTERNAL_ERROR, "Internal error of the gateway.", cause=RESET)
_LATE: Final = UpstreamFailure(
    UPSTREAM_TIMEOUT, "The answer did not come within this call's time-out.", cause=TOTAL
)
_WORTH_S: Final = 1.0
"""With so much time left, when it was too late for another one, a call is worth asking again."""

StoreAction = Callable[[], Awaitable[None]]
"""Keeps an answer."""


class Fetched(NamedTuple):
    """What a flight has brought; `keep` is None where it is not to be kept, or a stream still under way."""

    reply: Reply | Rejection
    keep: StoreAction | None = None


class Fetcher(Protocol):
    """What a flight is for."""

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Get it from an upstream. Raises Failure."""

    def on_events(self, events: bytes) -> None:
        """A part of a stream that passes."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """The stream has ended well; as `Flown.keep`."""


_Told = Reply | Rejection | UpstreamFailure | None


class _Waiter:
    """One caller of a flight, and the future on which it waits."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.turn: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        self.branch: Subscriber | None = None

    def tell(self, outcome: "_Told") -> None:
        if not self.turn.done():
            self.turn.set_result(outcome)


class Flight:
    """One upstream call, and who shares it."""

    def __init__(self, call: Call, errand: Fetcher, clock: Clock) -> None:
        """`call` is what goes upstream."""
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.members: list[_Waiter] = []
        self._errand = errand
        self._clock = clock
        self._deadline = call.deadline  # of who began it; it may have been sent with no later one
        self._outcome: Reply | Rejection | UpstreamFailure | None = None
        self._stream: EventStream | None = None
        self._fan: FanOut | None = None
        self._stored = False
        self._over = False

    @property
    def open(self) -> bool:
        """Whether one more may join."""
        return bool(self.members) and (self._fan is None or self._fan.open)

    async def share(self, call: Call) -> Reply | Rejection | None:
        """Its answer for one more caller; None for one who may do better by asking again. Raises Failure."""
        member, expiry = _Waiter(call), None
        ours = self.call
        ours.deadline = max(ours.deadline, call.deadline)  # nobody's haste is the others'
        if call.priority == INTERACTIVE:
            ours.priority = INTERACTIVE
        if self.members:
            call.cached_by = "collapsed"
        self.members.append(member)
        if self._outcome is not None:
            self._tell(member, self._outcome)
        if call.deadline != math.inf:
            delay = call.deadline - self._clock()
            expiry = asyncio.get_running_loop().call_later(delay, self._expire, member)
        try:
            outcome = await member.turn
        except asyncio.CancelledError:
            self._leave(member)
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
        if isinstance(outcome, UpstreamFailure):
            raise outcome.copy()
        return outcome

    async def run(self, inner: Handler) -> StoreAction | None:
        """Fly, and tell everybody; what is to be done then to keep the answer."""
        call, keep = self.call, None
        try:
            flown = await self._errand.fetch(inner, call)
            keep, self._stored = flown.keep, flown.keep is not None
            if isinstance(flown.reply, Reply) and flown.reply.stream is not None:
                keep = await self._pump(cast(EventStream, flown.reply.stream), flown.reply)
            else:
                call.outcome = "ok" if isinstance(flown.reply, Reply) else flown.reply.kind.outcome
                self._tell_all(flown.reply)
        except UpstreamFailure as failure:
            call.outcome = failure.kind.outcome
            self._tell_all(failure)
            failure.drop_frames()
        except asyncio.CancelledError:
            call.outcome = "client_gone"
            raise
        except Exception as error:  # noqa: BLE001 - a flight ends here; its callers hear of it
            logger.exception("bug in the gateway; a shared call is given up")
            for member in self.members:
                if not member.turn.done():
                    member.turn.set_exception(error)
        finally:
            self._over = True
            if self._fan is not None:
                self._fan.end(_GIVEN_UP, None, "")
            for member in self.members:
                member.turn.cancel()  # of those whom nobody has told anything: the gateway ends
            call.lease.settle(call, self._clock())
            self.task = None  # which would hold on to what has ended it
        return keep

    async def _pump(self, stream: EventStream, reply: Reply) -> StoreAction | None:
        """Hand a stream on to everybody, to its end."""
        call = self.call
        self._stream, self._fan = stream, FanOut(self._errand.on_events, self._clock)
        try:
            self._tell_all(reply)
            stream.attach(self._fan)
            failure = await stream.finished
        finally:
            stream.close()
            told = stream.reader
            call.tokens, call.generated, call.finish = told.tokens, told.generated, told.finish
        call.outcome = outcome_of(failure, in_band=told.error is not None)
        self._over = True
        payer = next(iter(self.members), None)
        if payer is not None and payer.branch is not None:
            charge(payer.call, call)
            payer.branch.reader.hear(told)
        for member in self.members[1:]:
            mark_shared(member.call, call)
        self._fan.end(failure, told.error, told.finish)
        return self._errand.on_complete(call) if failure is None else None

    def _tell_all(self, outcome: Reply | Rejection | UpstreamFailure) -> None:
        self._outcome = outcome
        for member in tuple(self.members):
            self._tell(member, outcome)

    def _expire(self, member: _Waiter) -> None:
        """It has no time left. Where nobody has more than it, the upstream call itself ends for that."""
        if not member.turn.done() and self.call.deadline > member.call.deadline:
            self._leave(member)
            member.tell(_LATE)

    def _tell(self, member: _Waiter, outcome: Reply | Rejection | UpstreamFailure) -> None:
        call, ours = member.call, self.call
        if not isinstance(outcome, Reply) and self._others(call, outcome):
            self.members.remove(member)
            member.tell(None)
            return
        first = member is self.members[0]
        copy_metadata(call, ours, first=first)
        if self._fan is not None and isinstance(outcome, Reply):
            member.branch = branch = Subscriber(self._fan, lambda _: self._leave(member))
            self._fan.join(branch)
            outcome = Reply(outcome.status, stream=branch)
            if self._over:
                mark_shared(call, ours)
        elif first:
            charge(call, ours)
        else:
            mark_shared(call, ours)
        status = call.response_notes.get("cache-status", "")
        if call.cached_by == "collapsed":
            call.response_notes["cache-status"] = f"{status}; collapsed"
        elif self._stored:
            call.response_notes["cache-status"] = f"{status}; stored"
        member.tell(outcome)

    def _others(self, call: Call, outcome: Rejection | UpstreamFailure) -> bool:
        """Whether this came of another one's budget or haste, and not of what this call has."""
        ours, kind = self.call, outcome.kind
        if kind is INSUFFICIENT_QUOTA and ours.ceiling is not None:
            return call.ceiling is None or call.ceiling > ours.ceiling
        if kind is not DEADLINE_IN_QUEUE and not (
            isinstance(outcome, UpstreamFailure) and outcome.cause == TOTAL
        ):
            return False
        now = self._clock()
        return self._deadline - now < _WORTH_S <= call.deadline - now

    def _leave(self, member: _Waiter) -> None:
        """It has left, or has all of its stream. A flight without anybody ends."""
        if member not in self.members:
            return
        self.members.remove(member)
        if self._fan is not None and member.branch is not None:
            self._fan.leave(member.branch)
        if self._over or self.members:
            if not self._over:
                # What it has cost so far others will pay for.
                member.call.tokens, member.call.estimate = NOTHING, None
            return
        copy_metadata(member.call, self.call, first=True)
        charge(member.call, self.call)
        if self._stream is not None and member.branch is not None:
            member.branch.reader.hear(self._stream.reader)
        if self.task is not None:
            # Not before it has begun: of a task that is cancelled before, not even `finally` runs.
            asyncio.get_running_loop().call_soon(self.task.cancel)


class Flights:
    """All flights of a process.

    Those of `inner` are for callers of the same generation: when the last call of an older one has ended, its
    connections are closed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.landed = 0
        """How many have ended, and kept what they were to keep: what was not kept before may be now."""
        self._under_way: dict[tuple[Handler, bytes], Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, inner: Handler, key: bytes) -> Flight | None:
        """One that may be joined."""
        flight = self._under_way.get((inner, key))
        return flight if flight is not None and flight.open else None

    def start(self, inner: Handler, key: bytes, call: Call, errand: Fetcher) -> Flight:
        """A new one, for this caller and those who join it; to be shared in the same turn of the loop."""
        ours = call.derive(f"{call.request_id[:120]}-shared")
        ours.body, ours.spans, ours.stream = call.body, call.spans, call.stream
        ours.estimate, ours.day = call.estimate, call.day
        ours.needs_usage = True  # of a stream too its usage is asked for: it is kept with the answer
        flight = self._under_way[inner, key] = Flight(ours, errand, self._clock)
        flight.task = task = asyncio.create_task(self._run(inner, key, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def close(self) -> None:
        """End what is under way: everybody has left."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, inner: Handler, key: bytes, flight: Flight) -> None:
        try:
            keep = await flight.run(inner)
            if keep is not None:
                with suppress(CacheUnavailable):
                    await keep()  # who comes before it is done joins the flight
        finally:
            self.landed += 1
            if self._under_way.get((inner, key)) is flight:
                del self._under_way[inner, key]
