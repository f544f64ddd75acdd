"""What one key has used and reserved: requests, tokens, places and dollars, all or nothing at the door.

A call reserves what it may use and settles what it has used. The request itself always stays charged; a
place, and tokens and dollars that were not used, come back. Limits that many processes share do the same
arithmetic in Redis (`gateway/limits/lua/account.lua`).
"""

import math
from typing import NamedTuple

from msgspec import Struct

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.limits.gcra import Meter


class ReservationRequest(Struct, frozen=True, gc=False):
    """What a call may use. `firm` tokens are asked for: the input, and a cap that the client sent.

    `guess` is the output expected beyond them: no more of it is reserved than the limit has left, so that a
    small limit never refuses for a guess. `cost` is what the firm tokens cost in nano-dollars, `guess_cost`
    what the guess does, of which likewise no more is reserved than the budget has left.
    """

    committed: int = 0
    expected: int = 0
    committed_cost: int = 0
    expected_cost: int = 0

    @property
    def free(self) -> bool:
        """Whether no budget is touched."""
        return not self.committed_cost and not self.expected_cost

    def promised(self, left: int) -> int:
        """Nano-dollars to reserve where a budget has so many left."""
        return self.committed_cost + max(0, min(self.expected_cost, left - self.committed_cost))


class Denial(NamedTuple):
    """The limit (a field of `Terms`, or `too_large`) that a call ran into.

    `wait` is the time in seconds until the call fits if the key sends nothing else; infinite where only
    another call or another day helps.
    """

    limit: str
    wait: float


class Reservation(Struct, gc=False, eq=False):
    """What one call took at the door, at `at`. `tokens` and `cost` (nano-dollars of `day`) may come back."""

    id: str
    tokens: int
    watermark: float
    cost: int
    day: str
    at: float = 0.0


class Account:
    """One key's account in this process's memory. Whoever calls must not await between two calls' steps."""

    PLACE_S = 1.0
    """Guess of the time until a place frees, until calls have shown how long they take."""

    def __init__(self, limits: KeyLimits, day: str = "", spent: int = 0) -> None:
        """`spent` nano-dollars of the day `day` are gone already."""
        self.limits = limits
        self.requests = Meter(limits.rpm) if limits.rpm is not None else None
        self.tokens = Meter(limits.tpm) if limits.tpm is not None else None
        self.in_flight = 0
        self.day = day
        self.spent_today = spent  # nano-dollars of that day, reserved ones included
        self._held_s = self.PLACE_S  # mean time for which a place is held

    def reserve(self, ask: ReservationRequest, day: str, now: float, id: str = "") -> Reservation | Denial:
        """Take all of it, or nothing and say why."""
        if day > self.day:  # not `!=`: a call of before midnight must not bring yesterday back
            self.day, self.spent_today = day, 0
        _, _, concurrency, budget = self.limits
        requests, tokens, cost, reserved = self.requests, self.tokens, ask.committed_cost, ask.committed
        tokens_left = 0.0 if tokens is None else tokens.left(now)
        # Nearly always there is room for certain; what denies, and for how long, takes longer to tell.
        if (
            (concurrency is not None and self.in_flight >= concurrency)
            or (requests is not None and requests.left(now) < 1.0)
            or (tokens is not None and tokens_left <= reserved)
            or (budget is not None and budget - self.spent_today <= cost)
        ):
            denial = self._denied(ask, now)
            if denial is not None:
                return denial
        if budget is not None:
            cost = ask.promised(budget - self.spent_today)
        self.in_flight += 1
        self.spent_today += cost
        if requests is not None:
            requests.take(1, now)
        if tokens is None:
            return Reservation(id, 0, 0.0, cost, self.day, now)
        spare = int(tokens_left) - reserved
        if spare > 0:
            reserved += ask.expected if ask.expected < spare else spare
        return Reservation(id, reserved, tokens.take(reserved, now), cost, self.day, now)

    def exhausted(self, now: float) -> Denial | None:
        """Why any call would be refused now, whatever it asks for.

        None where it must be known for what it asks: where its tokens may have to wait for longer, or where
        no wait helps, for the budget is spent.
        """
        requests, terms = self.requests, self.limits
        if (requests is None or requests.left(now) >= 1.0) and (
            terms.concurrency is None or self.in_flight < terms.concurrency
        ):
            return None
        limit, wait = self._blocking_limit(now)
        # No call that fits into its limit at all waits for longer than until the bucket of tokens is empty.
        unsure = self.tokens is not None and self.tokens.reset(now) > wait
        if not limit or unsure or (terms.usd_per_day is not None and self.spent_today >= terms.usd_per_day):
            return None
        return Denial(limit, wait)

    def _blocking_limit(self, now: float) -> tuple[str, float]:
        """The limit of places or requests that is reached, and the wait for it; none has no name."""
        limit, longest, concurrency = "", 0.0, self.limits.concurrency
        if concurrency is not None and self.in_flight >= concurrency:
            limit, longest = "concurrency", max(1e-3, self._held_s / concurrency)
        if self.requests is not None and (wait := self.requests.wait(1, now)) > longest:
            limit, longest = "rpm", wait
        return limit, longest

    def _denied(self, ask: ReservationRequest, now: float) -> Denial | None:
        tpm, budget = self.limits.tpm, self.limits.usd_per_day
        firm = ask.committed
        if tpm is not None and firm > tpm:
            return Denial("too_large", math.inf)
        if budget is not None and self._over_budget(ask, budget):
            return Denial("usd_per_day", math.inf)
        limit, longest = self._blocking_limit(now)
        # Who wants no tokens need not wait for a debt of them to be paid.
        if (
            self.tokens is not None
            and (firm or ask.expected)
            and (wait := self.tokens.wait(firm, now)) > longest
        ):
            limit, longest = "tpm", wait
        return Denial(limit, longest) if limit else None

    def _over_budget(self, ask: ReservationRequest, budget: int) -> bool:
        return not ask.free and (self.spent_today >= budget or self.spent_today + ask.committed_cost > budget)

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Give back what was not used, charge what was used beyond it. Once for each reservation.

        `tokens` and `cost` (nano-dollars) are what the call has used.
        """
        self.in_flight -= 1
        self._held_s += (now - reservation.at - self._held_s) / 8
        if reservation.day == self.day:
            self.spent_today += cost - reservation.cost
        if self.tokens is not None:
            unused = reservation.tokens - tokens
            if unused < 0:
                self.tokens.take(-unused, now)
            else:
                self.tokens.give_back(unused, reservation.watermark, now)

    def spent(self, day: str) -> int:
        """Nano-dollars of this day, reserved ones included."""
        return self.spent_today if day == self.day else 0

    def status(self, now: float) -> LimitStatus:
        """What is left now."""
        requests_left, requests_reset = (0, 0.0) if self.requests is None else self.requests.state(now)
        tokens_left, tokens_reset = (0, 0.0) if self.tokens is None else self.tokens.state(now)
        return LimitStatus(requests_left, requests_reset, tokens_left, tokens_reset)
