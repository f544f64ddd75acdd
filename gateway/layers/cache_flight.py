"""Single flight: callers who want the same at the same time get it from one upstream call.

Its task belongs to nobody, so whoever leaves disturbs nobody; when all have left, it ends. What it costs is
paid for by one of those who are there at its end, or by the last one who leaves. All of them have the same
key, for keys share no answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, cast

from gateway.call import Call, Handler, Reply
from gateway.caller import INTERACTIVE
from gateway.clock import Clock
from gateway.errors import INTERNAL_ERROR, RESET, Failure, Refusal
from gateway.layers.cache_stream import Branch, Fan
from gateway.log import logger
from gateway.policy.price import cost
from gateway.policy.spending import NOTHING, spent
from gateway.store.answers import Unreachable
from gateway.streams import Pumped, outcome_of

_GIVEN_UP: Final = Failure(INTERNAL_ERROR, "Internal error of the gateway.", cause=RESET)


Keep = Callable[[], Awaitable[None]]
"""Keeps an answer."""


class Flown(NamedTuple):
    """What a flight has brought; `keep` is None where it is not to be kept, or a stream still under way."""

    reply: Reply | Refusal
    keep: Keep | None = None


class Errand(Protocol):
    """What a flight is for."""

    async def fly(self, inner: Handler, call: Call) -> Flown:
        """Get it from an upstream. Raises Failure."""

    def hear(self, events: bytes) -> None:
        """A part of a stream that passes."""

    def heard(self, call: Call) -> Keep | None:
        """The stream has ended well; as `Flown.keep`."""


class _Member:
    """One caller of a flight, and the future on which it waits."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.turn: asyncio.Future[Reply | Refusal | Failure] = asyncio.get_running_loop().create_future()
        self.branch: Branch | None = None

    def tell(self, outcome: Reply | Refusal | Failure) -> None:
        if not self.turn.done():
            self.turn.set_result(outcome)


class Flight:
    """One upstream call, and who shares it."""

    def __init__(self, call: Call, errand: Errand, clock: Clock) -> None:
        """`call` is what goes upstream."""
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.members: list[_Member] = []
        self._errand = errand
        self._clock = clock
        self._outcome: Reply | Refusal | Failure | None = None
        self._stream: Pumped | None = None
        self._fan: Fan | None = None
        self._stored = False
        self._over = False

    @property
    def open(self) -> bool:
        """Whether one more may join."""
        return bool(self.members) and (self._fan is None or self._fan.open)

    async def share(self, call: Call) -> Reply | Refusal:
        """Its answer for one more caller. Raises Failure."""
        member = _Member(call)
        ours = self.call
        ours.deadline = max(ours.deadline, call.deadline)  # nobody's haste is the others'
        if call.priority == INTERACTIVE:
            ours.priority = INTERACTIVE
        if self.members:
            call.cached_by = "collapsed"
        self.members.append(member)
        if self._outcome is not None:
            self._tell(member, self._outcome)
        try:
            outcome = await member.turn
        except asyncio.CancelledError:
            self._leave(member)
            raise
        if isinstance(outcome, Failure):
            raise outcome.again()
        return outcome

    async def run(self, inner: Handler) -> Keep | None:
        """Fly, and tell everybody; what is to be done then to keep the answer."""
        call, keep = self.call, None
        try:
            flown = await self._errand.fly(inner, call)
            keep, self._stored = flown.keep, flown.keep is not None
            if isinstance(flown.reply, Reply) and flown.reply.stream is not None:
                keep = await self._pump(cast(Pumped, flown.reply.stream), flown.reply)
            else:
                call.outcome = "ok" if isinstance(flown.reply, Reply) else flown.reply.kind.outcome
                self._tell_all(flown.reply)
        except Failure as failure:
            call.outcome = failure.kind.outcome
            self._tell_all(failure)
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
        return keep

    async def _pump(self, stream: Pumped, reply: Reply) -> Keep | None:
        """Hand a stream on to everybody, to its end."""
        call = self.call
        self._stream, self._fan = stream, Fan(self._errand.hear, self._clock)
        try:
            self._tell_all(reply)
            stream.attach(self._fan)
            failure = await stream.over
        finally:
            stream.close()
            told = stream.reader
            call.tokens, call.generated, call.finish = told.tokens, told.generated, told.finish
        call.outcome = outcome_of(failure, in_band=told.error is not None)
        self._over = True
        payer = next(iter(self.members), None)
        if payer is not None and payer.branch is not None:
            _pay(payer.call, call)
            payer.branch.reader.hear(told)
        for member in self.members[1:]:
            _spare(member.call, call)
        self._fan.end(failure, told.error, told.finish)
        return self._errand.heard(call) if failure is None else None

    def _tell_all(self, outcome: Reply | Refusal | Failure) -> None:
        self._outcome = outcome
        for member in tuple(self.members):
            self._tell(member, outcome)

    def _tell(self, member: _Member, outcome: Reply | Refusal | Failure) -> None:
        call, ours = member.call, self.call
        first = member is self.members[0]
        _show(call, ours, first=first)
        if self._fan is not None and isinstance(outcome, Reply):
            member.branch = branch = Branch(self._fan, lambda _: self._leave(member))
            self._fan.join(branch)
            outcome = Reply(outcome.status, stream=branch)
            if self._over:
                _spare(call, ours)
        elif first:
            _pay(call, ours)
        else:
            _spare(call, ours)
        status = call.notes.get("cache-status", "")
        if call.cached_by == "collapsed":
            call.notes["cache-status"] = f"{status}; collapsed"
        elif self._stored:
            call.notes["cache-status"] = f"{status}; stored"
        member.tell(outcome)

    def _leave(self, member: _Member) -> None:
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
        _show(member.call, self.call, first=True)
        _pay(member.call, self.call)
        if self._stream is not None and member.branch is not None:
            member.branch.reader.hear(self._stream.reader)
        if self.task is not None:
            # Not before it has begun: of a task that is cancelled before, not even `finally` runs.
            asyncio.get_running_loop().call_soon(self.task.cancel)


def _show(call: Call, ours: Call, *, first: bool) -> None:
    """What a caller's own call shows of the upstream call; times only once, for they are measured."""
    call.candidate, call.attempts, call.passing = ours.candidate, ours.attempts, ours.passing
    call.order = ours.order
    call.finish, call.batch_size, call.changed = ours.finish, ours.batch_size, ours.changed
    call.notes |= {name: value for name, value in ours.notes.items() if name not in call.notes}
    if first:
        call.sent_at, call.answered_at, call.first_token_at = (
            ours.sent_at,
            ours.answered_at,
            ours.first_token_at,
        )
        call.queue_s = ours.queue_s
        call.estimate = ours.estimate


def _pay(call: Call, ours: Call) -> None:
    """This caller's key is charged for it."""
    call.cached_by = ""
    call.tokens, call.generated, call.estimated = ours.tokens, ours.generated, ours.estimated
    call.cost, call.spent_before = ours.cost, ours.spent_before
    call.estimate = ours.estimate or call.estimate
    call.saved, call.saved_cost = ours.saved, ours.saved_cost


def _spare(call: Call, ours: Call) -> None:
    """This one has it for nothing."""
    call.cached_by = "collapsed"
    call.tokens, call.cost, call.estimate = NOTHING, 0, None
    if ours.outcome == "ok" and ours.candidate is not None:
        price = ours.candidate.price
        call.saved = used = spent(ours)
        call.saved_cost = None if price is None else cost(used, price)


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

    def start(self, inner: Handler, key: bytes, call: Call, errand: Errand) -> Flight:
        """A new one, for this caller and those who join it; to be shared in the same turn of the loop."""
        ours = call.stand_in(f"{call.request_id[:120]}-shared")
        ours.body, ours.spans, ours.stream = call.body, call.spans, call.stream
        ours.estimate, ours.day = call.estimate, call.day
        ours.counted = True  # of a stream too its usage is asked for: it is kept with the answer
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
                with suppress(Unreachable):
                    await keep()  # who comes before it is done joins the flight
        finally:
            self.landed += 1
            if self._under_way.get((inner, key)) is flight:
                del self._under_way[inner, key]
