"""One key's account, shared by any number of processes, and what holds while Redis is away.

Every step is one script on Redis's own clock. A reservation is an id with a lease: to settle it twice does
nothing, and what a killed process held comes free.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from gateway.core.caller import Standing, Terms
from gateway.core.clock import Clock
from gateway.limits.account import Account, Ask, Denial, Reservation
from gateway.limits.account_snapshot import Sight
from gateway.limits.local_fallback import Alone
from gateway.limits.membership import Presence
from gateway.redis.command import Command, Head, Script, Then, Trouble
from gateway.redis.pipelined import Link

_Outcome = Reservation | Denial | Trouble
OnFailure = Literal["local", "open", "closed"]

_RESERVE: Final = Script.named("gateway.limits.lua", "account", "reserve")
_SETTLE: Final = Script.named("gateway.limits.lua", "account", "settle")
_RENEW: Final = Script.named("gateway.limits.lua", "account", "renew")
_PUSH: Final = Script.named("gateway.limits.lua", "account", "merge_local")
SCRIPTS: Final = (_RESERVE, _SETTLE, _RENEW, _PUSH)
_ANSWER: Final = struct.Struct("<3d")
_OK: Final = 0
_LIMITS: Final = ("", "rpm", "tpm", "concurrency", "usd_per_day", "too_large")
_AT_ONCE: Final = 500  # ids that one renewal carries
_SUSPECT_S: Final = 5.0  # a key that Redis refuses, while it serves others, is left alone for so long


class Unavailable:
    """No answer, because Redis is away and `on_failure` is `closed`."""


UNAVAILABLE: Final = Unavailable()


class Shared(NamedTuple):
    """What the accounts of one process have in common. `lease` is in seconds.

    `redis_time` takes the place of Redis's clock, in tests.
    """

    link: Link
    presence: Presence
    prefix: str
    on_failure: OnFailure
    lease: float
    clock: Clock
    redis_time: Callable[[], float] | None
    numbers: "count[int]"


class SharedAccount:
    """An Account in Redis; `reserve` may wait for one round trip, nothing else waits."""

    def __init__(self, name: str, terms: Terms, shared: Shared) -> None:
        self.terms: Final = terms
        self._shared = shared
        self._link = shared.link
        # A cluster goes by what stands in braces alone, and a name may hold braces itself.
        tag = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:20]
        self._base = f"{shared.prefix}:{{{tag}}}".encode()
        self._terms = [b"%r" % limit if limit is not None else b"" for limit in terms]
        self._head = ("", Head(0, b""))
        self._sight = Sight()
        self._alone: Alone | None = None
        self._alone_until = 0.0
        self._suspect = False
        self._leased: dict[str, float] = {}
        self._held_s = Account.PLACE_S
        self._pushes = 0

    async def reserve(self, ask: Ask, day: str, now: float) -> Reservation | Denial | Unavailable:
        """Take all of it, or nothing and say why."""
        if not self._link.up or now < self._alone_until:
            outcome = self._without(ask, day, now)
            if self._link.up and not self._suspect:
                self._enter(now)
            return outcome
        if self._suspect:
            self._alone_until = now + _SUSPECT_S  # this one call tries, the others do not
        else:
            self.rejoin(now)
        promised = self._promised(ask, day)
        found = await self._asked(promised, day)
        # The refusal tells what others have spent. Of the guess less is left then, and it must refuse nobody.
        while isinstance(found, Denial) and found.limit == "usd_per_day" and self._link.up:
            promised, refused = self._promised(ask, day), promised
            if promised.cost >= refused.cost:
                break
            found = await self._asked(promised, day)
        return self._without(ask, day, self._shared.clock()) if isinstance(found, Trouble) else found

    def _promised(self, ask: Ask, day: str) -> Ask:
        """The same with the guess's cost as far as the budget has it left, as last seen."""
        budget = self.terms.usd_per_day
        cost = ask.cost if budget is None else ask.promised(budget - self._sight.spent(day))
        return replace(ask, cost=cost)

    async def _asked(self, ask: Ask, day: str) -> _Outcome:
        """One round trip."""
        id = self._new_id()
        waiter: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        place_wait = max(1e-3, self._held_s / (self.terms.concurrency or 1))
        price = b"" if ask.free else b"%d" % ask.cost
        asked = (id.encode(), b"%r" % place_wait, b"%d" % ask.firm, b"%d" % ask.guess, price)
        then = partial(self._reserved, waiter, id, ask, day)
        self._link.ask(self._command(_RESERVE, day, (*asked, self._sight.memory(day)), then, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            # The reply may have come in the same turn of the loop as the cancellation.
            if waiter.done() and not waiter.cancelled() and isinstance(taken := waiter.result(), Reservation):
                self.settle(taken, 0, 0, self._shared.clock())
            raise

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """As Account does, once for each reservation. Sent when Redis takes it."""
        self._held_s += (now - reservation.at - self._held_s) / 8
        if self._alone is not None and reservation.id in self._alone.open:
            self._alone.settle(reservation, tokens, cost, now)
            return
        if self._leased.pop(reservation.id, None) is not None and self._alone is not None:
            self._alone.freed()
        self._post_settle(reservation, tokens, cost)

    def remember(self, day: str, spent: int) -> None:
        """Nano-dollars that are known to be spent that day, should Redis know of less."""
        if day >= self._sight.day and spent > self._sight.spent(day):
            self._sight = self._sight.with_spent(day, spent)

    def spent(self, day: str) -> int:
        """Nano-dollars of that day, as last seen."""
        return self._sight.spent(day)

    def standing(self, now: float) -> Standing:
        """What is left as last seen, or of this process's share while it is alone."""
        if self._alone is not None and self._shared.on_failure == "local":
            return self._alone.standing(now)
        return self._sight.standing(self.terms, now)

    def renew(self, now: float, *, all: bool = False) -> None:
        """Renews the leases that are older than a third of their time, or all of them."""
        oldest = now - self._shared.lease / 3
        due = [id for id, at in self._leased.items() if all or at <= oldest]
        for start in range(0, len(due), _AT_ONCE):
            ids = due[start : start + _AT_ONCE]
            self._leased.update(dict.fromkeys(ids, now))
            words = [id.encode() for id in ids]
            self._link.post(self._command(_RENEW, self._sight.day, words, _ignore), first=all)

    def back(self, now: float, settling: float) -> None:
        """Redis is back. The share holds for `settling` seconds more: by then all have entered theirs."""
        self.renew(now, all=True)
        self._enter(now)
        if self._shared.on_failure == "local":
            self._alone_until = max(self._alone_until, now + settling)

    def rejoin(self, now: float) -> None:
        """Leaves the share for the shared account, if it is time."""
        if self._alone is not None and not self._suspect and now >= self._alone_until:
            self._enter(now)
            self._alone = None

    def _enter(self, now: float) -> None:
        """Enters in the shared account, before anything else, what was admitted alone."""
        alone = self._alone
        if alone is None:
            return
        added = alone.added(now) if self._shared.on_failure == "local" else (0.0, 0.0)
        for day, net in alone.net.items():
            under_way = [one for one in alone.open.values() if one.day == day]
            marks = [(one, one.mark) for one in under_way]
            for one in under_way:
                one.mark = 0.0  # nothing comes back until its place in what Redis has taken is known
            self._leased.update(dict.fromkeys([one.id for one in under_way], now))
            amounts = (b"%r" % added[0], b"%r" % added[1], b"%d" % net)
            words = (*amounts, self._sight.memory(day), *(one.id.encode() for one in under_way))
            then = partial(self._pushed, day, marks, alone.tokens_taken())
            self._pushes += 1
            marker = f":pushed:{self._shared.presence.id}:{self._pushes}".encode()
            self._link.post(self._command(_PUSH, day, words, then, marker=marker), first=True)
            added = (0.0, 0.0)
        alone.entered()

    def _without(self, ask: Ask, day: str, now: float) -> Reservation | Denial | Unavailable:
        policy = self._shared.on_failure
        if policy == "closed":
            return UNAVAILABLE
        if self._alone is None:
            share = self._shared.presence.count if policy == "local" else 0
            self._alone = Alone(self.terms, share, self._sight, len(self._leased), now)
        return self._alone.reserve(ask, day, now, self._new_id())

    def _reserved(
        self,
        waiter: asyncio.Future[_Outcome],
        id: str,
        ask: Ask,
        day: str,
        reply: bytes | Trouble,
    ) -> None:
        outcome: _Outcome
        if isinstance(reply, Trouble):
            outcome = reply
            if reply.sent:  # what it took at least, if it was done
                mark = self._sight.tokens_taken() + ask.firm
                self._post_settle(Reservation(id, ask.firm, mark, ask.cost, day), 0, 0)
            elif self._link.up:
                self._suspect, self._alone_until = True, self._shared.clock() + _SUSPECT_S
        else:
            code, amount, mark = self._read(reply, day)
            if self._suspect:
                self._suspect, self._alone_until = False, 0.0
                self.rejoin(self._shared.clock())
            if code == _OK:
                self._leased[id] = now = self._shared.clock()
                outcome = Reservation(id, int(amount), mark, ask.cost, day, now)
            else:
                outcome = Denial(_LIMITS[int(code)], amount)
        if not waiter.done():
            waiter.set_result(outcome)
        elif isinstance(outcome, Reservation):
            self.settle(outcome, 0, 0, self._shared.clock())

    def _post_settle(self, reservation: Reservation, tokens: int, cost: int) -> None:
        one = reservation
        marked = (b"%d" % tokens, b"%d" % one.tokens, b"%r" % one.mark)
        words = (one.id.encode(), *marked, b"%d" % cost, b"%d" % one.cost)
        self._link.post(self._command(_SETTLE, one.day, words, partial(self._answered, one.day)))

    def _answered(self, day: str, reply: bytes | Trouble) -> None:
        if not isinstance(reply, Trouble):
            self._read(reply, day)

    def _pushed(
        self, day: str, marks: list[tuple[Reservation, float]], taken_alone: float, reply: bytes | Trouble
    ) -> None:
        if isinstance(reply, Trouble):
            return
        code, _, taken = self._read(reply, day)
        if code == _OK:
            for reservation, mark in marks:
                reservation.mark = max(0.0, taken - (taken_alone - mark))

    def _read(self, reply: bytes, day: str) -> tuple[float, float, float]:
        """What `answer` of account.lua packed: takes the sight, gives the rest."""
        code, amount, mark = _ANSWER.unpack_from(reply)
        self._sight = self._sight.after(day, self._shared.clock(), reply[_ANSWER.size :])
        return code, amount, mark

    def _command(
        self,
        script: Script,
        day: str,
        words: tuple[bytes, ...] | list[bytes],
        then: Then,
        waiter: asyncio.Future[_Outcome] | None = None,
        marker: bytes = b"",
    ) -> Command:
        if marker:
            head = self._head_for(day, self._base + marker)
        else:
            if self._head[0] != day:
                self._head = (day, self._head_for(day))
            head = self._head[1]
        time = self._shared.redis_time
        return Command(script, head, (b"%r" % time() if time else b"", *words), then, waiter)

    def _head_for(self, day: str, *more: bytes) -> Head:
        base = self._base
        keys = [base + b":meters", base + b":places", base + b":usd:" + day.encode(), *more]
        return Head.of(keys, b"%r" % self._shared.lease, *self._terms)

    def _new_id(self) -> str:
        return f"{self._shared.presence.id}:{next(self._shared.numbers):x}"


def _ignore(_: bytes | Trouble) -> None:
    """Nothing depends on the reply."""
