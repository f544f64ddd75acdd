"""Waits for a permit of the call's upstream; it ends with the upstream's answer, not with a slow client."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, cast

from gateway.core.call import Call, Handler, Reply, TokenEstimate
from gateway.core.clock import Clock
from gateway.core.errors import Rejection
from gateway.queueing.spill_timer import MOVED, Moves, SpillTimer
from gateway.queueing.upstream_queue import IDLE, QUEUED, UpstreamQueue, Waiter
from gateway.queueing.waiting_room import Queued, WaitingRoom

_TICK_S: Final = 0.001
"""The shortest timer: loops count in milliseconds, and a timer that rings early would ring again at once."""


class QueueTicket(Waiter):
    """Holder: a call's place in a line, first to wait, then its permit. `turn` is there while it waits."""

    __slots__ = ("granted", "line", "queue")

    granted: asyncio.Future[Rejection | None]

    def __init__(self, queue: "QueueLayer", line: UpstreamQueue, call: Call, now: float) -> None:
        # All of a waiter is set here, for every call needs one: one frame less.
        caller, estimate, last = call.caller, call.estimate, call.accepted_at + line.total_s
        self.key = "" if caller is None else caller.name
        self.priority = call.priority
        self.tokens = 1 if estimate is None else _expected(estimate, line)
        self.deadline = call.deadline if call.deadline < last else last
        self.arrived = now
        self.stream = call.stream
        self.state = IDLE
        self.queue = queue
        self.line = line

    def settle(self, call: Call, now: float) -> None:
        """The call is over."""
        self.queue.settle(self, call, now)


class QueueLayer:
    """The layer. `lines` has every upstream; a call's `candidate` says which one it waits for.

    `waited[upstream](seconds)` is told of each call that goes, 0.0 where it need not wait, and of each that
    is refused after waiting. A call that goes at once makes no future, no timer and no task.
    """

    def __init__(
        self,
        room: WaitingRoom,
        lines: Mapping[str, UpstreamQueue],
        clock: Clock,
        waited: Mapping[str, Callable[[float], None]],
        estimate: Callable[[Call], object],
    ) -> None:
        """`estimate` fills in `call.estimate`; asked only where somebody may have to wait.

        `moves` (see `layers.spill`) may be set later: it is asked for calls with a bound on their wait.
        """
        self._room = room
        self._lines = lines
        self._clock = clock
        self._waited = waited
        self._estimate = estimate
        self.spills: Moves = lambda call, now: False
        self._ahead: dict[Call, QueueTicket] = {}  # permits of calls that are on their way to another line
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of lines that their pace holds

    def in_flight(self) -> dict[str, int]:
        """Permits given out, by upstream."""
        return {name: line.in_flight for name, line in self._lines.items()}

    def depth(self) -> dict[str, int]:
        """Calls that wait, by upstream."""
        return {name: line.waiting for name, line in self._lines.items()}

    def oldest_s(self) -> dict[str, float]:
        """Seconds for which the oldest of them has waited, by upstream."""
        now = self._clock()
        return {name: line.oldest_s(now) for name, line in self._lines.items()}

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        # Not a coroutine itself: who need not wait pays for no frame.
        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            if call.candidate is None:
                raise AssertionError("the gates above set the candidate")
            line = self._lines[call.candidate.upstream]
            if call.estimate is None and (line.free <= 0 or line.pace is not None):
                self._estimate(call)
            now = self._clock()
            if self._ahead and (place := self._ahead.get(call)) is not None:
                if place.line is line:
                    del self._ahead[call]
                    return self._held(inner, call, place)
                place.settle(call, now)
            place = QueueTicket(self, line, call, now)
            told = self._room.arrive(line, place, now)
            if told is None:
                self._waited[line.name](0.0)
                return self._held(inner, call, place)
            if isinstance(told, Rejection):
                return _tell(told)
            self._begin(place, told, now)
            return self._wait(inner, call, place)

        return handle

    def learn(self, upstream: str, headers: Mapping[str, str]) -> None:
        """An answer's headers (lower-case names) may tell what is left of the upstream's own limits."""
        line = self._lines[upstream]
        if line.pace is not None:
            line.pace.learn(headers, self._clock())
            self.look(upstream)

    def look(self, upstream: str) -> None:
        """What holds its calls back may have changed: let those go who may."""
        line = self._lines[upstream]
        if line.waiting and line.free > 0:
            now = self._clock()
            self._wake(line, self._room.next(line, now), now)

    def settle(self, place: QueueTicket, call: Call, now: float) -> None:
        """Take back the permit that the call holds; a second time nothing is left to do."""
        if self._ahead and self._ahead.get(call) is place:
            del self._ahead[call]
        going = self._room.release(place.line, place, _used(call), now)
        if going or place.line.pace is not None:
            self._wake(place.line, going, now)

    async def _held(self, inner: Handler, call: Call, place: QueueTicket) -> Reply | Rejection:
        """The permit is held to the upstream's last byte: of a stream by the call's lease.

        What else comes back has been read whole, and need not wait for the client to take it.
        """
        try:
            reply = await inner(call)
        except BaseException:
            self.settle(place, call, self._clock())
            raise
        if type(reply) is Reply and reply.stream is not None:
            call.lease.hold(place)
        else:
            self.settle(place, call, call.answered_at or self._clock())
        return reply

    def _begin(self, place: QueueTicket, told: Queued, now: float) -> None:
        """The room has let it wait: make its future, and see to those whom its coming moves."""
        place.granted = asyncio.get_running_loop().create_future()
        if told.victim is not None:
            victim, line = told.victim
            _ring(cast(QueueTicket, victim), self._room.full(line, now))
            if line.free > 0:
                self._wake(line, self._room.next(line, now), now)
        if place.line.free > 0:
            self._wake(place.line, self._room.next(place.line, now), now)

    async def _wait(self, inner: Handler, call: Call, place: QueueTicket) -> Reply | Rejection:
        expiry = watch = None
        if call.max_wait_s != math.inf:
            watch = SpillTimer(call.max_wait_s, partial(self._elsewhere, place, call), self._clock)
        if place.deadline != math.inf:
            loop = asyncio.get_running_loop()
            expiry = loop.call_later(place.deadline - self._clock(), self._expire, place)
        try:
            refusal = await place.granted
        except BaseException:
            # The caller has left, maybe in the same tick in which its turn came.
            now = self._clock()
            going = self._room.leave(place.line, place, now) or self._room.give_back(place.line, place, now)
            self._wake(place.line, going, now)
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
            if watch is not None:
                watch.cancel()
            waited = self._clock() - place.arrived
            call.queue_s += waited
        self._waited[place.line.name](waited)
        if refusal is not None:
            return refusal
        return await self._held(inner, call, place)

    def _expire(self, place: QueueTicket) -> None:
        now, line = self._clock(), place.line
        if place.state == QUEUED:
            going = self._room.leave(line, place, now)
            _ring(place, self._room.too_late(line, place, now))
            self._wake(line, going, now)

    def _elsewhere(self, place: QueueTicket, call: Call, now: float) -> bool:
        """Let it go where another upstream takes it. True: there is nothing to look for any more."""
        if place.state != QUEUED or place.deadline <= now:
            return True
        if not self.spills(call, now):
            return False
        # Its permit is taken here and now: in the same turn of the loop others look for one too.
        line = self._lines[call.candidates[0].upstream]
        ahead = QueueTicket(self, line, call, now)
        if ahead.deadline <= now:  # that one's whole time for a call is over: it keeps its place here
            return True
        if self._room.arrive(line, ahead, now) is None:
            call.lease.hold(ahead)
            self._ahead[call] = ahead
        going = self._room.leave(place.line, place, now)
        _ring(place, MOVED)
        self._wake(place.line, going, now)
        return True

    def _wake(self, line: UpstreamQueue, going: list[Waiter], now: float) -> None:
        for waiter in going:
            _ring(cast(QueueTicket, waiter), None)
        if line.pace is not None:
            self._arm(line, now)

    def _arm(self, line: UpstreamQueue, now: float) -> None:
        """One timer for a line, for the moment at which its first waiter may go."""
        timer = self._timers.pop(line.name, None)
        if timer is not None:
            timer.cancel()
        if line.held_until:
            loop = asyncio.get_running_loop()
            delay = max(_TICK_S, line.held_until - now)
            self._timers[line.name] = loop.call_later(delay, self._paced, line)

    def _paced(self, line: UpstreamQueue) -> None:
        now = self._clock()
        self._wake(line, self._room.next(line, now), now)


def _ring(place: QueueTicket, refusal: Rejection | None) -> None:
    # A cancelled one gives its permit back as soon as it runs.
    if not place.granted.done():
        place.granted.set_result(refusal)


async def _tell(refusal: Rejection) -> Rejection:
    return refusal


def _expected(estimate: TokenEstimate, line: UpstreamQueue) -> int:
    """Tokens that the call is expected to cost; of a guess no more than the pace ever lets through."""
    output = estimate.output
    if line.pace is not None and not estimate.capped:
        output = int(min(output, max(0.0, line.pace.largest - estimate.input)))
    return max(1, estimate.input + output)


def _used(call: Call) -> int | None:
    """Tokens that the call has really used, as far as that is known."""
    if call.tokens is not None:
        return call.tokens.input + call.tokens.output
    if call.generated and call.estimate is not None:
        return call.estimate.input + call.generated
    return None
