"""What one key has used and reserved: requests, tokens, places and dollars, all or nothing at the door.

A call reserves what it may use and settles what it has used. The request itself always stays charged; a
place, and tokens and dollars that were not used, come back. Limits that many processes share do the same
arithmetic in Redis (`gateway/store/account.lua`).
"""

import math
from typing import NamedTuple

from gateway.caller import Standing, Terms
from gateway.policy.rate_limit import Meter, whole


class Ask(NamedTuple):
    """What a call may use. `firm` tokens are asked for: the input, and a cap that the client sent.

    `guess` is the output expected beyond them: no more of it is reserved than the limit has left, so that a
    small limit never refuses for a guess. `cost` is what the firm tokens cost in nano-dollars, `guess_cost`
    what the guess does, of which likewise no more is reserved than the budget has left.
    """

    firm: int = 0
    guess: int = 0
    cost: int = 0
    guess_cost: int = 0

    @property
    def free(self) -> bool:
        """Whether no budget is touched."""
        return not self.cost and not self.guess_cost

    def promised(self, left: int) -> int:
        """Nano-dollars to reserve where a budget has so many left."""
        return self.cost + max(0, min(self.guess_cost, left - self.cost))


class Denial(NamedTuple):
    """The limit (a field of `Terms`, or `too_large`) that a call ran into.

    `wait` is the time in seconds until the call fits if the key sends nothing else; infinite where only
    another call or another day helps.
    """

    limit: str
    wait: float


class Reservation:
    """What one call took at the door, at `at`. `tokens` and `cost` (nano-dollars of `day`) may come back."""

    __slots__ = ("at", "cost", "day", "id", "mark", "tokens")

    def __init__(self, id: str, tokens: int, mark: float, cost: int, day: str, at: float = 0.0) -> None:
        self.id = id
        self.tokens = tokens
        self.mark = mark
        self.cost = cost
        self.day = day
        self.at = at


class Account:
    """One key's account in this process's memory. Whoever calls must not await between two calls' steps."""

    PLACE_S = 1.0
    """Guess of the time until a place frees, until calls have shown how long they take."""

    def __init__(self, terms: Terms, day: str = "", spent: int = 0) -> None:
        """`spent` nano-dollars of the day `day` are gone already."""
        self.terms = terms
        self.requests = Meter(terms.rpm) if terms.rpm is not None else None
        self.tokens = Meter(terms.tpm) if terms.tpm is not None else None
        self.places = 0
        self.day = day
        self.gone = spent  # nano-dollars of that day, reserved ones included
        self._held_s = self.PLACE_S  # mean time for which a place is held

    def reserve(self, ask: Ask, day: str, now: float, id: str = "") -> Reservation | Denial:
        """Take all of it, or nothing and say why."""
        if day > self.day:  # not `!=`: a call of before midnight must not bring yesterday back
            self.day, self.gone = day, 0
        denial = self._denied(ask, now)
        if denial is not None:
            return denial
        budget = self.terms.usd_per_day
        cost = ask.cost if budget is None else ask.promised(budget - self.gone)
        self.places += 1
        self.gone += cost
        if self.requests is not None:
            self.requests.take(1, now)
        if self.tokens is None:
            return Reservation(id, 0, 0.0, cost, self.day, now)
        reserved = ask.firm + min(ask.guess, int(max(0.0, self.tokens.left(now) - ask.firm)))
        return Reservation(id, reserved, self.tokens.take(reserved, now), cost, self.day, now)

    def _denied(self, ask: Ask, now: float) -> Denial | None:
        terms = self.terms
        if terms.tpm is not None and ask.firm > terms.tpm:
            return Denial("too_large", math.inf)
        if terms.usd_per_day is not None and self._over_budget(ask, terms.usd_per_day):
            return Denial("usd_per_day", math.inf)
        limit, longest = "", 0.0
        if terms.concurrency is not None and self.places >= terms.concurrency:
            limit, longest = "concurrency", max(1e-3, self._held_s / terms.concurrency)
        for name, meter, units in (("rpm", self.requests, 1), ("tpm", self.tokens, ask.firm)):
            if meter is None or (name == "tpm" and not ask.firm and not ask.guess):
                continue  # who wants no tokens need not wait for a debt of them to be paid
            wait = meter.wait(units, now)
            if wait > longest:
                limit, longest = name, wait
        return Denial(limit, longest) if limit else None

    def _over_budget(self, ask: Ask, budget: int) -> bool:
        return not ask.free and (self.gone >= budget or self.gone + ask.cost > budget)

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Give back what was not used, charge what was used beyond it. Once for each reservation.

        `tokens` and `cost` (nano-dollars) are what the call has used.
        """
        self.places -= 1
        self._held_s += (now - reservation.at - self._held_s) / 8
        if reservation.day == self.day:
            self.gone += cost - reservation.cost
        if self.tokens is not None:
            if tokens > reservation.tokens:
                self.tokens.take(tokens - reservation.tokens, now)
            else:
                self.tokens.give_back(reservation.tokens - tokens, reservation.mark, now)

    def spent(self, day: str) -> int:
        """Nano-dollars of this day, reserved ones included."""
        return self.gone if day == self.day else 0

    def standing(self, now: float) -> Standing:
        """What is left now."""
        requests, tokens = self.requests, self.tokens
        return Standing(
            whole(requests.left(now)) if requests is not None else 0,
            requests.reset(now) if requests is not None else 0.0,
            whole(tokens.left(now)) if tokens is not None else 0,
            tokens.reset(now) if tokens is not None else 0.0,
        )
