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

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.core.clock import Clock
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.limits.account_snapshot import AccountSnapshot
from gateway.limits.local_fallback import LocalFallback
from gateway.limits.membership import Membership
from gateway.redis.command import Command, Head, RedisFailure, Script, Then
from gateway.redis.pipelined import PipelinedRedis

_Outcome = Reservation | Denial | RedisFailure
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

    link: PipelinedRedis
    presence: Membership
    prefix: str
    on_failure: OnFailure
    lease: float
    clock: Clock
    redis_time: Callable[[], float] | None
    numbers: "count[int]"


class SharedAccount:
    """An Account in Redis; `reserve` may wait for one round trip, nothing else waits."""

    def __init__(self, name: str, limits: KeyLimits, shared: Shared) -> None:
        self.limits: Final = limits
        self._shared = shared
        self._link = shared.link
        # A cluster goes by what stands in braces alone, and a name may hold braces itself.
        tag = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:20]
        self._base = f"{shared.prefix}:{{{tag}}}".encode()
        self._terms = [b"%r" % limit if limit is not None else b"" for limit in limits]
        self._head = ("", Head(0, b""))
        self._sight = AccountSnapshot()
        self._alone: LocalFallback | None = None
        self._alone_until = 0.0
        self._quarantined = False
        self._leased: dict[str, float] = {}
        self._held_s = Account.PLACE_S
        self._pushes = 0

    async def reserve(
        self, ask: ReservationRequest, day: str, now: float
    ) -> Reservation | Denial | Unavailable:
        """Take all of it, or nothing and say why."""
        if not self._link.up or now < self._alone_until:
            outcome = self._reserve_locally(ask, day, now)
            if self._link.up and not self._quarantined:
                self._merge_local(now)
            return outcome
        if self._quarantined:
            self._alone_until = now + _SUSPECT_S  # this one call tries, the others do not
        else:
            self.leave_fallback(now)
        promised = self._promised(ask, day)
        found = await self._asked(promised, day)
        # The refusal tells what others have spent. Of the guess less is left then, and it must refuse nobody.
        while isinstance(found, Denial) and found.limit == "usd_per_day" and self._link.up:
            promised, refused = self._promised(ask, day), promised
            if promised.committed_cost >= refused.committed_cost:
                break
            found = await self._asked(promised, day)
        return (
            self._reserve_locally(ask, day, self._shared.clock())
            if isinstance(found, RedisFailure)
            else found
        )

    def _promised(self, ask: ReservationRequest, day: str) -> ReservationRequest:
        """The same with the guess's cost as far as the budget has it left, as last seen."""
        budget = self.limits.usd_per_day
        cost = ask.committed_cost if budget is None else ask.promised(budget - self._sight.spent(day))
        return replace(ask, committed_cost=cost)

    async def _asked(self, ask: ReservationRequest, day: str) -> _Outcome:
        """One round trip."""
        id = self._new_id()
        waiter: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        place_wait = max(1e-3, self._held_s / (self.limits.concurrency or 1))
        price = b"" if ask.free else b"%d" % ask.committed_cost
        asked = (id.encode(), b"%r" % place_wait, b"%d" % ask.committed, b"%d" % ask.expected, price)
        then = partial(self._reserved, waiter, id, ask, day)
        self._link.request(self._command(_RESERVE, day, (*asked, self._sight.memory(day)), then, waiter))
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

    def status(self, now: float) -> LimitStatus:
        """What is left as last seen, or of this process's share while it is alone."""
        if self._alone is not None and self._shared.on_failure == "local":
            return self._alone.status(now)
        return self._sight.status(self.limits, now)

    def renew(self, now: float, *, all: bool = False) -> None:
        """Renews the leases that are older than a third of their time, or all of them."""
        oldest = now - self._shared.lease / 3
        due = [id for id, at in self._leased.items() if all or at <= oldest]
        for start in range(0, len(due), _AT_ONCE):
            ids = due[start : start + _AT_ONCE]
            self._leased.update(dict.fromkeys(ids, now))
            words = [id.encode() for id in ids]
            self._link.enqueue(self._command(_RENEW, self._sight.day, words, _ignore), first=all)

    def on_reconnect(self, now: float, settling: float) -> None:
        """Redis is back. The share holds for `settling` seconds more: by then all have entered theirs."""
        self.renew(now, all=True)
        self._merge_local(now)
        if self._shared.on_failure == "local":
            self._alone_until = max(self._alone_until, now + settling)

    def leave_fallback(self, now: float) -> None:
        """Leaves the share for the shared account, if it is time."""
        if self._alone is not None and not self._quarantined and now >= self._alone_until:
            self._merge_local(now)
            self._alone = None

    def _merge_local(self, now: float) -> None:
        """Enters in the shared account, before anything else, what was admitted alone."""
        alone = self._alone
        if alone is None:
            return
        added = alone.added(now) if self._shared.on_failure == "local" else (0.0, 0.0)
        for day, net in alone.net.items():
            under_way = [one for one in alone.open.values() if one.day == day]
            marks = [(one, one.watermark) for one in under_way]
            for one in under_way:
                one.watermark = 0.0  # nothing comes back until its place in what Redis has taken is known
            self._leased.update(dict.fromkeys([one.id for one in under_way], now))
            amounts = (b"%r" % added[0], b"%r" % added[1], b"%d" % net)
            words = (*amounts, self._sight.memory(day), *(one.id.encode() for one in under_way))
            then = partial(self._pushed, day, marks, alone.tokens_taken())
            self._pushes += 1
            marker = f":pushed:{self._shared.presence.id}:{self._pushes}".encode()
            self._link.enqueue(self._command(_PUSH, day, words, then, marker=marker), first=True)
            added = (0.0, 0.0)
        alone.entered()

    def _reserve_locally(
        self, ask: ReservationRequest, day: str, now: float
    ) -> Reservation | Denial | Unavailable:
        policy = self._shared.on_failure
        if policy == "closed":
            return UNAVAILABLE
        if self._alone is None:
            share = self._shared.presence.count if policy == "local" else 0
            self._alone = LocalFallback(self.limits, share, self._sight, len(self._leased), now)
        return self._alone.reserve(ask, day, now, self._new_id())

    def _reserved(
        self,
        waiter: asyncio.Future[_Outcome],
        id: str,
        ask: ReservationRequest,
        day: str,
        reply: bytes | RedisFailure,
    ) -> None:
        outcome: _Outcome
        if isinstance(reply, RedisFailure):
            outcome = reply
            if reply.sent:  # what it took at least, if it was done
                mark = self._sight.tokens_taken() + ask.committed
                self._post_settle(Reservation(id, ask.committed, mark, ask.committed_cost, day), 0, 0)
            elif self._link.up:
                self._quarantined, self._alone_until = True, self._shared.clock() + _SUSPECT_S
        else:
            code, amount, mark = self._read(reply, day)
            if self._quarantined:
                self._quarantined, self._alone_until = False, 0.0
                self.leave_fallback(self._shared.clock())
            if code == _OK:
                self._leased[id] = now = self._shared.clock()
                outcome = Reservation(id, int(amount), mark, ask.committed_cost, day, now)
            else:
                outcome = Denial(_LIMITS[int(code)], amount)
        if not waiter.done():
            waiter.set_result(outcome)
        elif isinstance(outcome, Reservation):
            self.settle(outcome, 0, 0, self._shared.clock())

    def _post_settle(self, reservation: Reservation, tokens: int, cost: int) -> None:
        one = reservation
        marked = (b"%d" % tokens, b"%d" % one.tokens, b"%r" % one.watermark)
        words = (one.id.encode(), *marked, b"%d" % cost, b"%d" % one.cost)
        self._link.enqueue(self._command(_SETTLE, one.day, words, partial(self._answered, one.day)))

    def _answered(self, day: str, reply: bytes | RedisFailure) -> None:
        if not isinstance(reply, RedisFailure):
            self._read(reply, day)

    def _pushed(
        self,
        day: str,
        marks: list[tuple[Reservation, float]],
        taken_alone: float,
        reply: bytes | RedisFailure,
    ) -> None:
        if isinstance(reply, RedisFailure):
            return
        code, _, taken = self._read(reply, day)
        if code == _OK:
            for reservation, mark in marks:
                reservation.watermark = max(0.0, taken - (taken_alone - mark))

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


def _ignore(_: bytes | RedisFailure) -> None:
    """Nothing depends on the reply."""
