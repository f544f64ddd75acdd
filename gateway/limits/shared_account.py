"""A key's account in Redis, shared by any number of processes, with a local fallback while Redis is away.

Every step is a single script on Redis's clock. A reservation is an id with a lease: settling it twice does
nothing, and the slots of a killed process come free.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.core.clock import Clock
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.limits.account_snapshot import AccountSnapshot
from gateway.limits.gathering import Gathering
from gateway.limits.local_fallback import LocalFallback
from gateway.limits.membership import Membership
from gateway.redis.command import Command, Head, LateCommand, RedisFailure, Script, Then
from gateway.redis.pipelined import PipelinedRedis

_Outcome = Reservation | Denial | RedisFailure
OnFailure = Literal["local", "open", "closed"]

_RESERVE: Final = Script.named("gateway.limits.lua", "account", "reserve")
_SETTLE: Final = Script.named("gateway.limits.lua", "account", "settle")
_RENEW: Final = Script.named("gateway.limits.lua", "account", "renew")
_MERGE_LOCAL: Final = Script.named("gateway.limits.lua", "account", "merge_local")
SCRIPTS: Final = (_RESERVE, _SETTLE, _RENEW, _MERGE_LOCAL)
_ANSWER: Final = struct.Struct("<3d")
_OK: Final = 0
_LIMITS: Final = ("", "rpm", "tpm", "concurrency", "usd_per_day", "too_large")
_RENEWAL_IDS: Final = 500  # ids in one renewal
_SETTLED_TOGETHER: Final = 32  # settlements in one command: Redis has to answer a round within the timeout
_QUARANTINE_S: Final = 5.0  # pause for a key that Redis rejects while it serves other keys


class Unavailable:
    """No decision, because Redis is away and `on_failure` is `closed`."""


UNAVAILABLE: Final = Unavailable()


class _Settlement(NamedTuple):
    reservation: Reservation
    tokens: int
    cost: int

    def words(self) -> tuple[bytes, ...]:
        """The arguments of `settle.lua`."""
        reservation = self.reservation
        amounts = (b"%d" % self.tokens, b"%d" % reservation.tokens, b"%r" % reservation.watermark)
        return reservation.id.encode(), *amounts, b"%d" % self.cost, b"%d" % reservation.cost


class Shared(NamedTuple):
    """What the accounts of one process have in common. `lease` is in seconds.

    `redis_time` replaces Redis's clock in tests.
    """

    link: PipelinedRedis
    membership: Membership
    prefix: str
    on_failure: OnFailure
    lease: float
    clock: Clock
    redis_time: Callable[[], float] | None
    numbers: "count[int]"


class SharedAccount:
    """An account in Redis. Only `reserve` waits, for a round trip."""

    def __init__(self, name: str, limits: KeyLimits, shared: Shared) -> None:
        self.limits: Final = limits
        self._shared = shared
        self._link = shared.link
        # A name may contain anything; all accounts share the part in braces, and so one node of a cluster.
        digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:20]
        self._base = f"{shared.prefix}:{{limits}}:{digest}".encode()
        self._packed_limits = [b"%r" % limit if limit is not None else b"" for limit in limits]
        self._head = ("", Head(0, b""))
        self._snapshot = AccountSnapshot()
        self._fallback: LocalFallback | None = None
        self._fallback_until = 0.0
        self._quarantined = False
        self._leased: dict[str, float] = {}
        self._open: dict[str, Reservation] = {}  # those with a lease, for `reserved`
        self._mean_held_s = Account.PLACE_S
        self._merges = 0
        self._merging = 0  # merges that Redis has not confirmed
        self._settled_early: dict[str, _Settlement | None] = {}  # of calls in these merges, by id
        self._settlements: dict[str, Gathering[_Settlement]] = {}  # by day
        self._renewals = Gathering(_RENEWAL_IDS, partial(self._post_renewal, first=False))
        self._renewals_of_all = Gathering(_RENEWAL_IDS, partial(self._post_renewal, first=True))

    @property
    def idle(self) -> bool:
        """Whether no call holds a slot, and nothing is left to be merged."""
        return not self._leased and self._fallback is None

    async def reserve(self, request: ReservationRequest, day: str, now: float) -> Reservation | Denial | Unavailable:
        """Reserve all of the request, or nothing and return why."""
        if not self._link.up or now < self._fallback_until:
            local = self._reserve_locally(request, day, now)
            self._merge_again(now)
            return local
        if self._quarantined:
            self._fallback_until = now + _QUARANTINE_S  # only this call probes Redis
        else:
            self.leave_fallback(now)
        bounded = self._bounded(request, day)
        outcome = await self._round_trip(bounded, day)
        # A denial refreshes the snapshot with what other processes spent. Less is then left for the expected
        # cost, which must never be the only cause of a rejection.
        while isinstance(outcome, Denial) and outcome.limit == "usd_per_day" and self._link.up:
            bounded, denied = self._bounded(request, day), bounded
            if bounded.committed_cost >= denied.committed_cost:
                break
            outcome = await self._round_trip(bounded, day)
        if isinstance(outcome, RedisFailure):
            return self._reserve_locally(request, day, self._shared.clock())
        return outcome

    def _bounded(self, request: ReservationRequest, day: str) -> ReservationRequest:
        """The request with its cost committed, but no more of the expected part than the budget has left."""
        budget = self.limits.usd_per_day
        if budget is None:
            return request
        return replace(request, committed_cost=request.reserved_cost(budget - self._snapshot.spent(day)))

    async def _round_trip(self, request: ReservationRequest, day: str) -> _Outcome:
        """Reserve in Redis."""
        id = self._new_id()
        waiter: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        slot_wait = max(1e-3, self._mean_held_s / (self.limits.concurrency or 1))
        price = b"" if request.free else b"%d" % request.committed_cost
        amounts = (b"%d" % request.committed, b"%d" % request.expected, price)
        words = (id.encode(), b"%r" % slot_wait, *amounts, self._snapshot.for_day(day))
        then = partial(self._on_reserved, waiter, id, request, day)
        self._link.request(self._command(_RESERVE, day, words, then, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            # The reply may have come in the same turn of the loop as the cancellation.
            outcome = waiter.result() if waiter.done() and not waiter.cancelled() else None
            if isinstance(outcome, Reservation):
                self.settle(outcome, 0, 0, self._shared.clock())
            raise

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Settle as `Account.settle` does, once per reservation; sent when Redis is up."""
        self._mean_held_s += (now - reservation.at - self._mean_held_s) / 8
        if self._fallback is not None and reservation.id in self._fallback.open:
            self._fallback.settle(reservation, tokens, cost, now)
            return
        self._open.pop(reservation.id, None)
        if self._leased.pop(reservation.id, None) is not None and self._fallback is not None:
            self._fallback.release_slot()
        self._post_settle(reservation, tokens, cost)

    def remember(self, day: str, spent: int) -> None:
        """Raise the nano-dollars spent on that day to `spent`, in case Redis has lost some."""
        if day >= self._snapshot.day and spent > self._snapshot.spent(day):
            self._snapshot = self._snapshot.with_spent(day, spent)

    def spent(self, day: str) -> int:
        """Nano-dollars spent on that day, as last seen, with what was spent here since without Redis."""
        fallback = self._fallback
        return self._snapshot.spent(day) + (0 if fallback is None else fallback.net.get(day, 0))

    def reserved(self, day: str) -> int:
        """Nano-dollars of that day that this process's calls under way reserve."""
        local = {} if self._fallback is None else self._fallback.open
        calls = (self._open | local).values()
        return sum(reservation.cost for reservation in calls if reservation.day == day)

    def status(self, now: float) -> LimitStatus:
        """What is left as last seen, or of this process's share during a local fallback."""
        if self._fallback is not None and self._shared.on_failure == "local":
            return self._fallback.status(now)
        return self._snapshot.status(self.limits, now)

    def renew(self, now: float, *, all: bool = False) -> None:
        """Renew the leases older than a third of their time, or all of them."""
        oldest = now - self._shared.lease / 3
        due = [id for id, at in self._leased.items() if all or at <= oldest]
        self._leased.update(dict.fromkeys(due, now))
        renewals = self._renewals_of_all if all else self._renewals
        for id in due:
            renewals.add(id)

    def on_reconnect(self, now: float, settling: float) -> None:
        """Merge the fallback. Its share holds for `settling` seconds more, until all have merged."""
        self.renew(now, all=True)
        if not self._merging:
            self._merge_local(now)
        if self._shared.on_failure == "local":
            self._fallback_until = max(self._fallback_until, now + settling)

    def leave_fallback(self, now: float) -> None:
        """Return from the fallback to the shared account, if it is time."""
        if self._fallback is not None and not self._quarantined and now >= self._fallback_until:
            self._merge_local(now)
            self._fallback = None

    def _merge_again(self, now: float) -> None:
        """Merge what the fallback admitted since the last merge; one merge at a time is under way."""
        if self._link.up and not self._quarantined and not self._merging:
            self._merge_local(now)

    def _merge_local(self, now: float) -> None:
        """Merge what the fallback admitted into the shared account, ahead of all other commands."""
        fallback = self._fallback
        if fallback is None:
            return
        added = fallback.added(now) if self._shared.on_failure == "local" else (0.0, 0.0)
        for day, net in fallback.net.items():
            unsettled = [reservation for reservation in fallback.open.values() if reservation.day == day]
            marks = [(reservation, reservation.watermark) for reservation in unsettled]
            for reservation in unsettled:
                reservation.watermark = 0.0  # no refund until its mark in the shared meter is known
            amounts = (b"%r" % added[0], b"%r" % added[1], b"%d" % net)
            ids = [reservation.id for reservation in unsettled]
            self._leased.update(dict.fromkeys(ids, now))
            self._open.update(zip(ids, unsettled, strict=True))
            words = (*amounts, self._snapshot.for_day(day), *(id.encode() for id in ids))
            then = partial(self._on_merged, day, marks, fallback.tokens_taken())
            self._merges += 1
            self._merging += 1
            self._settled_early.update(dict.fromkeys(ids))
            marker = f":pushed:{self._shared.membership.id}:{self._merges}".encode()
            self._link.enqueue(self._command(_MERGE_LOCAL, day, words, then, marker=marker), first=True)
            added = (0.0, 0.0)
        fallback.mark_merged()

    def _reserve_locally(self, request: ReservationRequest, day: str, now: float) -> Reservation | Denial | Unavailable:
        policy = self._shared.on_failure
        if policy == "closed":
            return UNAVAILABLE
        if self._fallback is None:
            processes = self._shared.membership.count if policy == "local" else 0
            self._fallback = LocalFallback(self.limits, processes, self._snapshot, len(self._leased), now)
        return self._fallback.reserve(request, day, now, self._new_id())

    def _on_reserved(
        self,
        waiter: asyncio.Future[_Outcome],
        id: str,
        request: ReservationRequest,
        day: str,
        reply: bytes | RedisFailure,
    ) -> None:
        outcome: _Outcome
        if isinstance(reply, RedisFailure):
            outcome = reply
            if reply.sent:  # the script may have run, and then reserved at least this
                mark = self._snapshot.tokens_taken() + request.committed
                self._post_settle(Reservation(id, request.committed, mark, request.committed_cost, day), 0, 0)
            elif self._link.up:
                self._quarantined, self._fallback_until = True, self._shared.clock() + _QUARANTINE_S
        else:
            code, amount, mark = self._read(reply, day)
            if self._quarantined:
                self._quarantined, self._fallback_until = False, 0.0
                self.leave_fallback(self._shared.clock())
            if code == _OK:
                self._leased[id] = now = self._shared.clock()
                outcome = Reservation(id, int(amount), mark, request.committed_cost, day, now)
                self._open[id] = outcome
            else:
                outcome = Denial(_LIMITS[int(code)], amount)
        if not waiter.done():
            waiter.set_result(outcome)
        elif isinstance(outcome, Reservation):
            self.settle(outcome, 0, 0, self._shared.clock())

    def _post_settle(self, reservation: Reservation, tokens: int, cost: int) -> None:
        settlement, day = _Settlement(reservation, tokens, cost), reservation.day
        if reservation.id in self._settled_early:
            self._settled_early[reservation.id] = settlement
            return
        settlements = self._settlements.get(day)
        if settlements is None:
            self._settlements.clear()  # of earlier days; what waits there leaves nevertheless
            settlements = Gathering(_SETTLED_TOGETHER, partial(self._post_settlements, day))
            self._settlements[day] = settlements
        settlements.add(settlement)

    def _post_settlements(self, day: str, settlements: Callable[[], Iterable[_Settlement]]) -> None:
        def words() -> list[bytes]:
            return [word for settlement in settlements() for word in settlement.words()]

        self._link.enqueue(self._late_command(_SETTLE, day, words, partial(self._on_settled, day)))

    def _post_renewal(self, ids: Callable[[], Iterable[str]], *, first: bool) -> None:
        def words() -> list[bytes]:
            return [id.encode() for id in ids() if id in self._leased]  # a settled call must not be held again

        self._link.enqueue(self._late_command(_RENEW, self._snapshot.day, words, _ignore), first=first)

    def _on_settled(self, day: str, reply: bytes | RedisFailure) -> None:
        if not isinstance(reply, RedisFailure):
            self._read(reply, day)

    def _on_merged(
        self,
        day: str,
        marks: list[tuple[Reservation, float]],
        taken_locally: float,
        reply: bytes | RedisFailure,
    ) -> None:
        self._merging -= 1
        if not isinstance(reply, RedisFailure):
            code, _, taken = self._read(reply, day)
            if code == _OK:
                for reservation, mark in marks:
                    reservation.watermark = max(0.0, taken - (taken_locally - mark))
        for reservation, _ in marks:
            settlement = self._settled_early.pop(reservation.id, None)
            if settlement is not None:
                self._post_settle(*settlement)
        self._merge_again(self._shared.clock())

    def _read(self, reply: bytes, day: str) -> tuple[float, float, float]:
        """Unpack a reply of account.lua: update the snapshot, return code, amount and mark."""
        code, amount, mark = _ANSWER.unpack_from(reply)
        self._snapshot = self._snapshot.after(day, self._shared.clock(), reply[_ANSWER.size :])
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
        head = self._head_for(day, self._base + marker) if marker else self._head_of(day)
        return Command(script, head, (self._time(), *words), then, waiter)

    def _late_command(self, script: Script, day: str, words: Callable[[], list[bytes]], then: Then) -> Command:
        return LateCommand(script, self._head_of(day), lambda: (self._time(), *words()), then)

    def _time(self) -> bytes:
        time = self._shared.redis_time
        return b"%r" % time() if time else b""

    def _head_of(self, day: str) -> Head:
        if self._head[0] != day:
            self._head = (day, self._head_for(day))
        return self._head[1]

    def _head_for(self, day: str, *more: bytes) -> Head:
        base = self._base
        keys = [base + b":meters", base + b":places", base + b":usd:" + day.encode(), *more]
        return Head.of(keys, b"%r" % self._shared.lease, *self._packed_limits)

    def _new_id(self) -> str:
        return f"{self._shared.membership.id}:{next(self._shared.numbers):x}"


def _ignore(_: bytes | RedisFailure) -> None:
    """Discard the reply."""
