"""The gate that enforces a key's limits: what a call reserves, and how a denial is worded."""

import math
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, LimitUse, TokenEstimate
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
from gateway.core.units import NANO
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest
from gateway.telemetry.metrics import Metrics
from gateway.usage.call_usage import all_tokens
from gateway.usage.cost import highest_cost

_NO_TOKENS: Final = ReservationRequest()
_LIMITED: Final[dict[str, tuple[ErrorKind, str]]] = {
    "rpm": (REQUEST_RATE_LIMITED, "requests a minute"),
    "tpm": (TOKEN_RATE_LIMITED, "tokens a minute"),
    "concurrency": (CONCURRENCY_LIMITED, "calls at a time"),
}


class KeyLimitGate:
    """Gate: reserves in the account of the caller's key, in this process's memory."""

    def __init__(
        self,
        estimate: Callable[[Call], TokenEstimate],
        calendar: Calendar,
        metrics: Metrics,
        *,
        inspected: bool = False,
    ) -> None:
        """`estimate` fills in `call.usage.estimate` and returns it; `inspected`: calls record what they reserve."""
        self.inspected = inspected
        self._estimate = estimate
        self._calendar = calendar
        self._rejected = metrics.limit_rejections.count

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Reserve all that the call may use, or reject it."""
        account = call.caller.account
        if not isinstance(account, Account):
            return None
        limits = account.limits
        if limits.usd_per_day is not None and (unpriced := self.unpriced(call, limits)) is not None:
            return unpriced
        request, day = self.request(call, limits), self._calendar.day(now)
        before = account.status(now) if self.inspected else None
        outcome = account.reserve(request, day, now)
        while isinstance(outcome, Denial):
            cheaper = self.cheaper_reservation(call, request, outcome)
            if cheaper is None:
                return self.reject(call, account, outcome, now, request)
            request, outcome = cheaper, account.reserve(cheaper, day, now)
        if before is not None:
            call.usage.reserved = LimitUse(outcome.tokens, outcome.cost, before)
        call.lease.hold(HeldReservation(account, outcome))
        return None

    def day(self, now: float) -> str:
        """The day whose budget a call made now spends."""
        return self._calendar.day(now)

    def unpriced(self, call: Call, limits: KeyLimits) -> Rejection | None:
        """The rejection of a key with a budget if any candidate of the model has no known price."""
        if limits.usd_per_day is None:
            return None
        for route in (call.routing.route, *call.routing.route.fallbacks):
            for number, candidate in enumerate(route.candidates):
                price = candidate.price
                if price is None or (price.output is None and call.request.endpoint.generates):
                    field = f"models.{route.name}.candidates[{number}].price"
                    return Rejection(
                        MODEL_NOT_ALLOWED,
                        f"This key has a budget in dollars, and what `{call.routing.route.name}` costs is not known "
                        f"to the gateway. Its operator has to set `{field}`.",
                        "model",
                    )
        return None

    def request(self, call: Call, limits: KeyLimits) -> ReservationRequest:
        """What the call may use, as far as these limits count it; nothing for a cached answer."""
        _, tpm, _, budget = limits
        if (tpm is None and budget is None) or call.cache_hit is not None:
            return _NO_TOKENS
        estimate = call.usage.estimate or self._estimate(call)
        committed, expected = estimate.input, estimate.output
        if estimate.capped:
            committed, expected = committed + expected, 0
        elif tpm is not None and committed + expected > tpm:
            expected = max(0, int(tpm) - committed)
        if budget is None or (route := call.routing.route) is None:
            return ReservationRequest(committed, expected)
        candidates = route.candidates
        for fallback in route.fallbacks:
            candidates += fallback.candidates
        return ReservationRequest(committed, expected, *_cost(candidates, estimate))

    def cheaper_reservation(self, call: Call, request: ReservationRequest, denial: Denial) -> ReservationRequest | None:
        """The request at the next lower price of a candidate, or None if that cannot help against the denial.

        Sets `call.routing.ceiling`, which limits routing to candidates at that price. The price goes down in steps,
        because the cheapest candidate may be unable to serve the call.
        """
        estimate, route = call.usage.estimate, call.routing.route
        if denial.limit != "usd_per_day" or estimate is None:
            return None
        costs = [_cost((candidate,), estimate) for candidate in route.candidates]
        lower = [cost for cost in costs if sum(cost) < request.committed_cost + request.expected_cost]
        if not lower:
            return None
        committed, expected = max(lower, key=sum)
        call.routing.ceiling = committed + expected
        return replace(request, committed_cost=committed, expected_cost=expected)

    def reject(
        self,
        call: Call,
        account: "ReservingAccount",
        denial: Denial,
        now: float,
        request: ReservationRequest = _NO_TOKENS,
    ) -> Rejection:
        """Count a denial of `request` and word it for the client."""
        limit, wait = denial
        limits = account.limits
        self._rejected(call.caller.label, limit)
        if limit == "too_large":
            tokens = self.request(call, limits).committed
            return Rejection(
                REQUEST_TOO_LARGE,
                f"This request needs about {tokens} tokens, more than this key's whole limit of {limits.tpm} "
                "a minute. Send less input or a smaller max_tokens.",
            )
        if limit == "usd_per_day":
            return Rejection(INSUFFICIENT_QUOTA, self._over_budget(call, account, request, now))
        kind, unit = _LIMITED[limit]
        number = limits._asdict()[limit]
        if number == 1:  # "1 call at a time"
            unit = unit.replace("s ", " ", 1)
        return Rejection(
            kind,
            f"This key's limit of {number} {unit} is reached. Try again in {max(wait, 0.001):.3f} s.",
            retry_after=wait,
        )

    def _over_budget(self, call: Call, account: "ReservingAccount", request: ReservationRequest, now: float) -> str:
        """What the call may cost, what is left of the day's budget, and what helps."""
        day, budget = self._calendar.day(now), account.limits.usd_per_day or 0
        spent, reserved = account.spent(day), account.reserved(day)
        left, cost = max(0, budget - spent), request.committed_cost
        hours, minutes = divmod(math.ceil(self._calendar.left(now) / 60), 60)
        next_day = f"{hours} h {minutes} min"
        estimate = call.usage.estimate
        # Without a cap only the input is certain to be paid.
        needs = "may cost up to" if estimate is None or estimate.capped else "costs for its input at least"
        smaller = "Send a smaller max_tokens"
        if estimate is not None and not (estimate.capped and estimate.output):
            smaller = "Send less input"
        whole = f"this key's {_usd(budget)} USD for today"
        under_way = f" ({_usd(min(reserved, spent))} USD are reserved by calls under way)" if reserved > 0 else ""
        if cost > budget:
            return (
                f"This call {needs} {_usd(cost)} USD, more than this key's whole budget of {_usd(budget)} "
                f"USD a day, so waiting does not help. {smaller}, or use a cheaper model."
            )
        if not left:
            return f"Nothing of {whole} is left{under_way}. The next day begins in {next_day}."
        if cost <= left:
            return (
                f"This call {needs} {_usd(cost)} USD. {_usd(left)} USD of {whole} are left{under_way}, but "
                "the shared limits cannot be reached, and until then this process may spend only its part of "
                "them. Try again later."
            )
        return (
            f"This call {needs} {_usd(cost)} USD; {_usd(left)} of {whole} are left{under_way}. "
            f"{smaller}, or wait {next_day} for the next day."
        )


def _usd(nanos: int) -> str:
    """Exact dollars, with at least four decimals."""
    dollars, fraction = divmod(nanos, NANO)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{dollars}.{digits:0<4}"


def _cost(candidates: Collection[Candidate], estimate: TokenEstimate) -> tuple[int, int]:
    """Nano-dollars at the dearest candidate: of the committed tokens, and of the expected ones."""
    committed, total = highest_cost(estimate, candidates)
    return (total, 0) if estimate.capped else (committed, total - committed)


class ReservingAccount(Protocol):
    """An account in memory or in Redis."""

    @property
    def limits(self) -> KeyLimits:
        """The key's limits."""

    def spent(self, day: str) -> int:
        """Nano-dollars of this day, reserved ones included."""

    def reserved(self, day: str) -> int:
        """Nano-dollars of this day that calls under way reserve."""

    def settle(self, reservation: Reservation, tokens: int, cost: int, now: float) -> None:
        """Settle as `Account.settle` does."""


class HeldReservation(Struct, gc=False, eq=False):
    """Holder: settles a reservation with what the call used."""

    account: ReservingAccount
    reservation: Reservation

    def settle(self, call: Call, now: float) -> None:
        """Settle the reservation when the call ends."""
        account = self.account
        tokens = 0 if account.limits.tpm is None else all_tokens(call)
        account.settle(self.reservation, tokens, call.usage.cost or 0, now)


class LimitPrecheck:
    """Gate: rejects from the request's head what `KeyLimitGate` would reject anyway; reserves nothing."""

    def __init__(self, gate: KeyLimitGate) -> None:
        self._gate = gate

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Reject the call if its key's account is exhausted for any call."""
        account = call.caller.account
        if not isinstance(account, Account):
            return None
        denial = account.exhausted(now)
        if denial is None or call.request.endpoint.ours:
            return None
        return self._gate.reject(call, account, denial, now)


def limit_precheck(gate: KeyLimitGate, callers: Iterable[Caller]) -> tuple[LimitPrecheck, ...]:
    """The gate, if some caller has a limit that it can check."""
    limits = [caller.account.limits for caller in callers if isinstance(caller.account, Account)]
    checkable = any(each.rpm is not None or each.concurrency is not None for each in limits)
    return (LimitPrecheck(gate),) if checkable else ()
