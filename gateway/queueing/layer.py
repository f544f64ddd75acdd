"""The queue layer: a call waits here for a permit of its upstream.

The permit is held until the upstream's answer is complete, not until a slow client has read it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, cast

from gateway.core.call import Call, Candidate, Handler, Reply, TokenEstimate
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.core.kv_tokens import KvTokens
from gateway.queueing.spill_timer import MOVED, SpillCheck, SpillTimer
from gateway.queueing.upstream_queue import GRANTED, IDLE, QUEUED, UpstreamQueue, Waiter, demand_of
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, Queued, WaitingRoom

_TICK_S: Final = 0.001
"""The shortest timer: loops count in milliseconds, and a timer that fires early would be set again."""


class QueueTicket(Waiter):
    """Holder: a call's position in a queue, then its permit. `granted` is set while it waits."""

    __slots__ = ("granted", "layer", "queue")

    granted: asyncio.Future[Rejection | None]

    def __init__(self, layer: "QueueLayer", queue: UpstreamQueue, call: Call, model: str, now: float) -> None:
        # Does not call Waiter.__init__: every call makes a ticket, and this saves a frame.
        caller, estimate, last = call.caller, call.usage.estimate, call.timing.accepted_at + queue.total_s
        self.key = caller.name
        self.model = model
        self.priority = call.priority
        self.tokens = 1 if estimate is None else _expected_tokens(estimate, queue)
        self.deadline = call.timing.deadline if call.timing.deadline < last else last
        self.arrived = now
        self.stream = call.request.stream
        self.state = IDLE
        self.demand = (
            None
            if queue.admission is None or estimate is None
            else demand_of(queue.admission, estimate, self.key, model)
        )
        self.layer = layer
        self.queue = queue

    def settle(self, call: Call, now: float) -> None:
        """Return the permit when the call ends."""
        self.layer.settle(self, call, now)


class QueueLayer:
    """The layer. `queues` has every upstream; the call's `candidate` selects one.

    `waited(upstream)(seconds)` observes the wait of each call: 0.0 if it passed at once, and also the wait of
    a call that is rejected later. A call that passes at once creates no future, timer or task.
    """

    def __init__(
        self,
        room: WaitingRoom,
        queues: Mapping[str, UpstreamQueue],
        clock: Clock,
        waited: Callable[[str], Callable[[float], None]],
        estimate: Callable[[Call], object],
        spills: SpillCheck | None = None,
    ) -> None:
        """`estimate` fills in `call.usage.estimate`; it runs only when the call may have to wait.

        `spills` is consulted for calls with a bound on their wait; None: no call moves to another queue.
        """
        self._room = room
        self._queues = queues
        self._clock = clock
        self._waited = waited
        self._estimate = estimate
        self.spills: SpillCheck = spills if spills is not None else lambda call, now: False
        self._moving: dict[Call, QueueTicket] = {}  # permits of calls on their way to another queue
        self._timers: dict[str, asyncio.TimerHandle] = {}  # by upstream, of queues held by their pace

    def queue(self, upstream: str) -> UpstreamQueue:
        """The queue of an upstream."""
        return self._queues[upstream]

    def in_flight(self) -> dict[str, int]:
        """Granted permits by upstream."""
        return {name: queue.in_flight for name, queue in self._queues.items()}

    def depth(self) -> dict[str, int]:
        """Waiting calls by upstream."""
        return {name: queue.waiting for name, queue in self._queues.items()}

    def kv_tokens(self, upstream: str) -> KvTokens | None:
        """The KV cache of an upstream's engine; None where no ledger is kept of it."""
        admission = self._queues[upstream].admission
        return None if admission is None else admission.kv_tokens(self._clock())

    def oldest_s(self) -> dict[str, float]:
        """Seconds for which the oldest waiting call has waited, by upstream."""
        now = self._clock()
        return {name: queue.oldest_s(now) for name, queue in self._queues.items()}

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        # Not a coroutine itself: a call that passes at once saves the frame.
        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            candidate = call.routing.candidate
            queue = self._queues[candidate.upstream]
            if call.usage.estimate is None and (
                queue.free <= 0 or queue.pace is not None or queue.admission is not None
            ):
                self._estimate(call)
            now = self._clock()
            if self._moving and (ticket := self._moving.get(call)) is not None:
                if ticket.queue is queue:
                    del self._moving[call]
                    return self._hold(inner, call, ticket)
                ticket.settle(call, now)
            ticket = QueueTicket(self, queue, call, candidate.model, now)
            outcome = self._room.arrive(queue, ticket, now)
            if outcome is GRANTED_AT_ONCE:
                self._waited(queue.name)(0.0)
                return self._hold(inner, call, ticket)
            if isinstance(outcome, Rejection):
                return _resolved(outcome)
            self._start_waiting(ticket, outcome, now)
            return self._wait(inner, call, ticket)

        return handle

    def learn(self, candidate: Candidate, headers: Mapping[str, str]) -> None:
        """Read the quota that the headers (lower-case names) of a candidate's answer advertise."""
        queue = self._queues[candidate.upstream]
        if queue.pace is not None and queue.learn(candidate.model, headers, self._clock()):
            self.grant_next(queue.name)

    def grant_next(self, upstream: str) -> None:
        """Grant free permits after the queue's limits or pace may have changed."""
        queue = self._queues[upstream]
        if queue.waiting and queue.free > 0:
            now = self._clock()
            self._wake(queue, self._room.grant_next(queue, now), now)

    def settle(self, ticket: QueueTicket, call: Call, now: float) -> None:
        """Return the call's permit; a second time does nothing."""
        if self._moving and self._moving.get(call) is ticket:
            del self._moving[call]
        if ticket.demand is not None:
            _note_answer(ticket, call)
        granted = self._room.release(ticket.queue, ticket, _used_tokens(call), now)
        if granted or ticket.queue.pace is not None:
            self._wake(ticket.queue, granted, now)

    async def _hold(self, inner: Handler, call: Call, ticket: QueueTicket) -> Reply | Rejection:
        """Hold the permit until the upstream's last byte: for a stream, through the call's lease.

        Any other reply is complete here, so its permit need not wait for the client to read it.
        """
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            now, admission = self._clock(), ticket.queue.admission
            if admission is None or not failure.engine_full or ticket.state != GRANTED:
                self.settle(ticket, call, now)
                raise
            admission.refused(ticket.queue.in_flight, now)
            self.settle(ticket, call, now)
        except BaseException:
            self.settle(ticket, call, self._clock())
            raise
        else:
            if type(reply) is Reply and reply.stream is not None:
                call.lease.hold(ticket)
            else:
                self.settle(ticket, call, call.timing.answered_at or self._clock())
            return reply
        return await self._wait_again(inner, call, ticket)

    async def _wait_again(self, inner: Handler, call: Call, refused: QueueTicket) -> Reply | Rejection:
        """The engine refused the call as it is full: it spills over at once, or goes back to its place."""
        queue, now = refused.queue, self._clock()
        if call.routing.max_wait_s != math.inf and self.spills(call, now):
            return MOVED
        ticket = QueueTicket(self, queue, call, refused.model, now)
        if ticket.deadline <= now:
            return self._room.too_late(queue, ticket, now)
        ticket.granted = asyncio.get_running_loop().create_future()
        self._room.put_back(queue, ticket, now)
        self._wake(queue, self._room.grant_next(queue, now), now)
        return await self._wait(inner, call, ticket)

    def _start_waiting(self, ticket: QueueTicket, outcome: Queued, now: float) -> None:
        """Make the ticket's future, and wake the calls that its arrival affects."""
        ticket.granted = asyncio.get_running_loop().create_future()
        if outcome.victim is not None:
            victim, queue = outcome.victim
            _resolve(cast(QueueTicket, victim), self._room.queue_full(queue, now))
            if queue.free > 0:
                self._wake(queue, self._room.grant_next(queue, now), now)
        if ticket.queue.free > 0:
            self._wake(ticket.queue, self._room.grant_next(ticket.queue, now), now)

    async def _wait(self, inner: Handler, call: Call, ticket: QueueTicket) -> Reply | Rejection:
        expiry = spill = None
        if call.routing.max_wait_s != math.inf:
            spill = SpillTimer(call.routing.max_wait_s, partial(self._try_spill, ticket, call), self._clock)
        if ticket.deadline != math.inf:
            loop = asyncio.get_running_loop()
            expiry = loop.call_later(ticket.deadline - self._clock(), self._expire, ticket)
        try:
            rejection = await ticket.granted
        except BaseException:
            # The caller left, possibly in the same tick in which its permit was granted.
            now, queue = self._clock(), ticket.queue
            granted = self._room.leave(queue, ticket, now) or self._room.give_back(queue, ticket, now)
            self._wake(queue, granted, now)
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
            if spill is not None:
                spill.cancel()
            waited = self._clock() - ticket.arrived
            call.timing.queue_s += waited
        self._waited(ticket.queue.name)(waited)
        if rejection is not None:
            return rejection
        return await self._hold(inner, call, ticket)

    def _expire(self, ticket: QueueTicket) -> None:
        now, queue = self._clock(), ticket.queue
        if ticket.state == QUEUED:
            granted = self._room.leave(queue, ticket, now)
            _resolve(ticket, self._room.too_late(queue, ticket, now))
            self._wake(queue, granted, now)

    def _try_spill(self, ticket: QueueTicket, call: Call, now: float) -> bool:
        """Move the call to another upstream that takes it now. True: the timer can stop."""
        if ticket.state != QUEUED or ticket.deadline <= now:
            return True
        if not self.spills(call, now):
            return False
        # Takes the permit immediately: other calls may spill over in the same turn of the loop.
        target = call.routing.candidates[0]
        queue = self._queues[target.upstream]
        moved = QueueTicket(self, queue, call, target.model, now)
        if moved.deadline <= now:  # the other upstream's `total_s` has already passed: the call stays here
            return True
        if self._room.arrive(queue, moved, now) is GRANTED_AT_ONCE:
            call.lease.hold(moved)
            self._moving[call] = moved
        granted = self._room.leave(ticket.queue, ticket, now)
        _resolve(ticket, MOVED)
        self._wake(ticket.queue, granted, now)
        return True

    def _wake(self, queue: UpstreamQueue, granted: list[Waiter], now: float) -> None:
        for waiter in granted:
            _resolve(cast(QueueTicket, waiter), None)
        if queue.pace is not None or queue.held_until:
            self._arm(queue, now)

    def _arm(self, queue: UpstreamQueue, now: float) -> None:
        """Set the queue's single timer to the moment when its pace or a quota lets the next waiter go."""
        timer = self._timers.pop(queue.name, None)
        if timer is not None:
            timer.cancel()
        if queue.held_until:
            loop = asyncio.get_running_loop()
            delay = max(_TICK_S, queue.held_until - now)
            self._timers[queue.name] = loop.call_later(delay, self._on_pace, queue)

    def _on_pace(self, queue: UpstreamQueue) -> None:
        now = self._clock()
        self._wake(queue, self._room.grant_next(queue, now), now)


def _resolve(ticket: QueueTicket, rejection: Rejection | None) -> None:
    # A cancelled call returns its permit itself, as soon as its task runs.
    if not ticket.granted.done():
        ticket.granted.set_result(rejection)


async def _resolved(rejection: Rejection) -> Rejection:
    return rejection


def _expected_tokens(estimate: TokenEstimate, queue: UpstreamQueue) -> int:
    """Tokens that the call is expected to cost; an uncapped estimate is cut to what the pace ever admits."""
    output = estimate.output
    if queue.pace is not None and not estimate.capped:
        output = int(min(output, max(0.0, queue.pace.largest - estimate.input)))
    return max(1, estimate.input + output)


def _note_answer(ticket: QueueTicket, call: Call) -> None:
    """Learn from a whole answer: its tokens, and from a stream how soon and how fast they came."""
    demand, admission = ticket.demand, ticket.queue.admission
    if demand is None or admission is None:
        return
    usage, timing = call.usage, call.timing
    if not call.request.stream:
        demand.output = None if usage.tokens is None else usage.tokens.output
    elif call.response.outcome == "ok":
        demand.output = output = usage.generated if usage.tokens is None else usage.tokens.output
        if timing.first_token_at > timing.sent_at:
            seconds = timing.last_piece_at - timing.first_token_at
            admission.limit.answered(
                timing.first_token_at - timing.sent_at, demand.prompt, seconds / (output - 1) if output > 1 else None
            )


def _used_tokens(call: Call) -> int | None:
    """Tokens that the call used, or None if unknown."""
    if call.usage.tokens is not None:
        return call.usage.tokens.input + call.usage.tokens.output
    if call.usage.generated and call.usage.estimate is not None:
        return call.usage.estimate.input + call.usage.generated
    return None
