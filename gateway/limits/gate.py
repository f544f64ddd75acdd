"""The limits of a key: what a call asks of its account, and what it is told when it does not get it."""

import math
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.budget_calendar import Calendar
from gateway.core.call import CHAT, COMPLETIONS, EMBEDDINGS, Call, Candidate, TokenEstimate
from gateway.core.caller import Caller, KeyLimits
from gateway.core.errors import (
    CONCURRENCY_LIMITED,
    INSUFFICIENT_QUOTA,
    MODEL_NOT_ALLOWED,
    REQUEST_RATE_LIMITED,
    REQUEST_TOO_LARGE,
    TOKEN_RATE_LIMITED,
    ErrorKind,
    Rejection,
)
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.telemetry.metrics import Metrics, counter
from gateway.usage.call_usage import all_tokens
from gateway.usage.cost import most

_COUNTED: Final = frozenset((CHAT, COMPLETIONS, EMBEDDINGS))


_NO_TOKENS: Final = ReservationRequest()
_LIMITED: Final[dict[str, tuple[ErrorKind, str]]] = {
    "rpm": (REQUEST_RATE_LIMITED, "requests a minute"),
    "tpm": (TOKEN_RATE_LIMITED, "tokens a minute"),
    "concurrency": (CONCURRENCY_LIMITED, "calls at a time"),
}


class KeyLimitGate:
    """Gate: reserves in the account of the caller's key, in this process's memory."""

    def __init__(
        self, estimate: Callable[[Call], TokenEstimate], calendar: Calendar, metrics: Metrics
    ) -> None:
        """`estimate` fills in `call.estimate` and gives it."""
        self._estimate = estimate
        self._calendar = calendar
        self._rejected = counter(metrics.limit_rejections)

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Reserve all that the call may use, or refuse."""
        account = call.caller.account if call.caller is not None else None
        if not isinstance(account, Account):
            return None
        terms = account.limits
        if terms.usd_per_day is not None and (unpriced := self.unpriced(call, terms)) is not None:
            return unpriced
        ask, day = self.ask(call, terms), self._calendar.day(now)
        outcome = account.reserve(ask, day, now)
        while isinstance(outcome, Denial):
            less = self.cheaper_reservation(call, ask, outcome)
            if less is None:
                return self.refused(call, terms, outcome, now)
            ask, outcome = less, account.reserve(less, day, now)
        call.lease.hold(HeldReservation(account, outcome))
        return None

    def day(self, now: float) -> str:
        """The day whose budget a call of now spends."""
        return self._calendar.day(now)

    def unpriced(self, call: Call, terms: KeyLimits) -> Rejection | None:
        """A budget can only be kept where the price of whatever may serve the call is known."""
        if terms.usd_per_day is None or call.route is None:
            return None
        for route in (call.route, *call.route.fallbacks):
            for number, candidate in enumerate(route.candidates):
                price = candidate.price
                if price is None or (price.output is None and call.endpoint != EMBEDDINGS):
                    place = f"models.{route.name}.candidates[{number}].price"
                    return Rejection(
                        MODEL_NOT_ALLOWED,
                        f"This key has a budget in dollars, and what `{call.route.name}` costs is not known "
                        f"to the gateway. Its operator has to set `{place}`.",
                        "model",
                    )
        return None

    def ask(self, call: Call, terms: KeyLimits) -> ReservationRequest:
        """What the call may use, as far as these limits count it: a kept answer uses nothing."""
        _, tpm, _, budget = terms
        if (tpm is None and budget is None) or call.cache_hit is not None:
            return _NO_TOKENS
        estimate = call.estimate or self._estimate(call)
        firm, guess = estimate.input, estimate.output
        if estimate.capped:
            firm, guess = firm + guess, 0
        elif tpm is not None and firm + guess > tpm:
            guess = max(0, int(tpm) - firm)
        if budget is None or (route := call.route) is None:
            return ReservationRequest(firm, guess)
        candidates = route.candidates
        for fallback in route.fallbacks:
            candidates += fallback.candidates
        return ReservationRequest(firm, guess, *_cost(candidates, estimate))

    def cheaper_reservation(
        self, call: Call, ask: ReservationRequest, denial: Denial
    ) -> ReservationRequest | None:
        """The same at the next lower price of a candidate, where the budget does not reach for this one.

        The call must make do with it: `call.ceiling` says so to those who choose its upstream. None where
        that would not help. Step by step, for the cheapest one may be none that can serve the call.
        """
        estimate, route = call.estimate, call.route
        if denial.limit != "usd_per_day" or estimate is None or route is None:
            return None
        costs = [_cost((one,), estimate) for one in route.candidates]
        lower = [one for one in costs if sum(one) < ask.committed_cost + ask.expected_cost]
        if not lower:
            return None
        firm, guess = max(lower, key=sum)
        call.ceiling = firm + guess
        return replace(ask, committed_cost=firm, expected_cost=guess)

    def refused(self, call: Call, terms: KeyLimits, denial: Denial, now: float) -> Rejection:
        """Count and word a denial."""
        limit, wait = denial
        key = call.caller.name if call.caller is not None else ""
        self._rejected(key, limit)
        if limit == "too_large":
            asked = self.ask(call, terms).committed
            return Rejection(
                REQUEST_TOO_LARGE,
                f"This request needs about {asked} tokens, more than this key's whole limit of {terms.tpm} "
                "a minute. Send less input or a smaller max_tokens.",
            )
        if limit == "usd_per_day":
            hours, minutes = divmod(math.ceil(self._calendar.left(now) / 60), 60)
            return Rejection(
                INSUFFICIENT_QUOTA,
                "This key's budget for today is spent or promised to calls under way. "
                f"The next day begins in {hours} h {minutes} min.",
            )
        kind, what = _LIMITED[limit]
        return Rejection(
            kind,
            f"This key's limit of {getattr(terms, limit)} {what} is reached. "
            f"Try again in {max(wait, 0.001):.3f} s.",
            retry_after=wait,
        )


def _cost(candidates: Collection[Candidate], estimate: TokenEstimate) -> tuple[int, int]:
    """Nano-dollars at the dearest of them: of the firm tokens, and of the guess."""
    firm, whole = most(estimate, candidates)
    return (whole, 0) if estimate.capped else (firm, whole - firm)


class ReservingAccount(Protocol):
    """An account, of whichever kind."""

    @property
    def limits(self) -> KeyLimits:
        """The key's limits."""

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """See Account."""


class HeldReservation(Struct, gc=False, eq=False):
    """Holder: settles a reservation with what the call has used."""

    account: ReservingAccount
    reservation: Reservation

    def settle(self, call: Call, now: float) -> None:
        """The call is over."""
        account = self.account
        tokens = 0 if account.limits.tpm is None else all_tokens(call)
        account.settle(self.reservation, tokens, call.cost or 0, now)


class LimitPrecheck:
    """Gate: refuses what `Limit` would refuse anyway, and takes nothing."""

    def __init__(self, limit: KeyLimitGate) -> None:
        self._limit = limit

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Let it pass, unless the account of its key is full for any call."""
        account = call.caller.account if call.caller is not None else None
        if not isinstance(account, Account):
            return None
        denial = account.exhausted(now)
        if denial is None or call.endpoint not in _COUNTED:
            return None
        return self._limit.refused(call, account.limits, denial, now)


def limit_precheck(limit: KeyLimitGate, callers: Iterable[Caller]) -> tuple[LimitPrecheck, ...]:
    """The gate, where it is of use for one of these callers."""
    terms = [one.account.limits for one in callers if isinstance(one.account, Account)]
    return (
        (LimitPrecheck(limit),)
        if any(one.rpm is not None or one.concurrency is not None for one in terms)
        else ()
    )
