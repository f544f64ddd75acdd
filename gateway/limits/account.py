"""The account of one key: requests, tokens, concurrency slots and dollars, reserved all or nothing.

A call reserves what it may use and settles what it used. The request itself stays charged; the slot, and
unused tokens and dollars, are returned. Limits shared by several processes do the same arithmetic in Redis
(`gateway/limits/lua/account.lua`).
"""

import math
from typing import NamedTuple

from msgspec import Struct

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.gcra import Meter


class ReservationRequest(Struct, frozen=True, gc=False):
    """What a call may use.

    `committed` tokens are required: the input, and an output cap that the client sent. `expected` tokens are
    the output estimated beyond them: at most as many are reserved as the limit has left, so that an estimate
    never makes a small limit reject a call. `committed_cost` and `expected_cost` are the same in
    nano-dollars.
    """

    committed: int = 0
    expected: int = 0
    committed_cost: int = 0
    expected_cost: int = 0

    @property
    def free(self) -> bool:
        """Whether the call costs nothing."""
        return not self.committed_cost and not self.expected_cost

    def reserved_cost(self, left: int) -> int:
        """Nano-dollars to reserve from a budget that has `left`."""
        return self.committed_cost + max(0, min(self.expected_cost, left - self.committed_cost))


class Denial(NamedTuple):
    """The limit that rejects a call: a field of `KeyLimits`, or `too_large`.

    `wait` is the seconds until the call fits if the key sends nothing else; infinite if only a smaller call
    or another day helps.
    """

    limit: str
    wait: float


class Reservation(Struct, gc=False, eq=False):
    """What one call reserved at `at`; `tokens` and `cost` (nano-dollars of `day`) may be returned in part."""

    id: str
    tokens: int
    watermark: float
    cost: int
    day: str
    at: float = 0.0


class Account:
    """One key's account in the memory of this process. Callers must not await between related steps."""

    PLACE_S = 1.0
    """Estimate of the time until a slot frees, until calls have shown how long they take."""

    def __init__(self, limits: KeyLimits, day: str = "", spent: int = 0) -> None:
        """`spent` nano-dollars of `day` are already used."""
        self.limits = limits
        self.requests = Meter(limits.rpm) if limits.rpm is not None else None
        self.tokens = Meter(limits.tpm) if limits.tpm is not None else None
        self.in_flight = 0
        self.day = day
        self.spent_today = spent  # nano-dollars of `day`, reserved ones included
        self.reserved_today = 0  # of these, what calls under way reserve
        self._mean_held_s = self.PLACE_S  # mean time for which a slot is held

    def reserve(self, request: ReservationRequest, day: str, now: float, id: str = "") -> Reservation | Denial:
        """Reserve all of the request, or nothing and return why."""
        if day > self.day:  # not `!=`: a call from before midnight must not bring yesterday back
            self.day, self.spent_today, self.reserved_today = day, 0, 0
        _, _, concurrency, budget = self.limits
        requests, tokens = self.requests, self.tokens
        cost, reserved = request.committed_cost, request.committed
        tokens_left = 0.0 if tokens is None else tokens.left(now)
        # The common case needs no exact answer: only if some limit might deny is the slow path taken.
        if (
            (concurrency is not None and self.in_flight >= concurrency)
            or (requests is not None and requests.left(now) < 1.0)
            or (tokens is not None and tokens_left <= reserved)
            or (budget is not None and budget - self.spent_today <= cost)
        ):
            denial = self._denial(request, now)
            if denial is not None:
                return denial
        if budget is not None:
            cost = request.reserved_cost(budget - self.spent_today)
        self.in_flight += 1
        self.spent_today += cost
        self.reserved_today += cost
        if requests is not None:
            requests.take(1, now)
        if tokens is None:
            return Reservation(id, 0, 0.0, cost, self.day, now)
        surplus = int(tokens_left) - reserved
        if surplus > 0:
            reserved += request.expected if request.expected < surplus else surplus
        return Reservation(id, reserved, tokens.take(reserved, now), cost, self.day, now)

    def idle(self, now: float) -> bool:
        """Whether no call is under way and all requests and tokens are there again."""
        meters = [meter for meter in (self.requests, self.tokens) if meter is not None]
        return not self.in_flight and not any(meter.used(now) for meter in meters)

    def exhausted(self, now: float) -> Denial | None:
        """The denial of any call made now, whatever it requests.

        None if that depends on the call: its tokens may have to wait longer, or the budget is spent and no
        wait helps.
        """
        requests, limits = self.requests, self.limits
        if (requests is None or requests.left(now) >= 1.0) and (
            limits.concurrency is None or self.in_flight < limits.concurrency
        ):
            return None
        limit, wait = self._blocking_limit(now)
        # A call that fits its limit at all waits for tokens no longer than until their bucket is empty.
        unsure = self.tokens is not None and self.tokens.reset(now) > wait
        if not limit or unsure or (limits.usd_per_day is not None and self.spent_today >= limits.usd_per_day):
            return None
        return Denial(limit, wait)

    def _blocking_limit(self, now: float) -> tuple[str, float]:
        """The limit of slots or requests that is reached, and the wait for it; an empty name if none is."""
        limit, longest, concurrency = "", 0.0, self.limits.concurrency
        if concurrency is not None and self.in_flight >= concurrency:
            limit, longest = "concurrency", max(1e-3, self._mean_held_s / concurrency)
        if self.requests is not None and (wait := self.requests.wait(1, now)) > longest:
            limit, longest = "rpm", wait
        return limit, longest

    def _denial(self, request: ReservationRequest, now: float) -> Denial | None:
        tpm, budget = self.limits.tpm, self.limits.usd_per_day
        committed = request.committed
        if tpm is not None and committed > tpm:
            return Denial("too_large", math.inf)
        if budget is not None and self._over_budget(request, budget):
            return Denial("usd_per_day", math.inf)
        limit, longest = self._blocking_limit(now)
        # A call without tokens need not wait until a debt of tokens is paid.
        if (
            self.tokens is not None
            and (committed or request.expected)
            and (wait := self.tokens.wait(committed, now)) > longest
        ):
            limit, longest = "tpm", wait
        return Denial(limit, longest) if limit else None

    def _over_budget(self, request: ReservationRequest, budget: int) -> bool:
        return not request.free and (self.spent_today >= budget or self.spent_today + request.committed_cost > budget)

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Return the unused rest of a reservation, or charge the excess. Once per reservation.

        `tokens` and `cost` (nano-dollars) are what the call used.
        """
        self.in_flight -= 1
        self._mean_held_s += (now - reservation.at - self._mean_held_s) / 8
        if reservation.day == self.day:
            self.spent_today += cost - reservation.cost
            self.reserved_today -= reservation.cost
        if self.tokens is not None:
            unused = reservation.tokens - tokens
            if unused < 0:
                self.tokens.take(-unused, now)
            else:
                self.tokens.give_back(unused, reservation.watermark, now)

    def spent(self, day: str) -> int:
        """Nano-dollars of this day, reserved ones included."""
        return self.spent_today if day == self.day else 0

    def reserved(self, day: str) -> int:
        """Nano-dollars of this day that calls under way reserve."""
        return self.reserved_today if day == self.day else 0

    def status(self, now: float) -> LimitStatus:
        """What is left now."""
        requests_left, requests_reset = (0, 0.0) if self.requests is None else self.requests.state(now)
        tokens_left, tokens_reset = (0, 0.0) if self.tokens is None else self.tokens.state(now)
        return LimitStatus(requests_left, requests_reset, tokens_left, tokens_reset)
