"""Accounting at the end of a call: its usage and cost go to the ledger, the metrics and the estimates."""

from collections.abc import Callable
from typing import Final

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, FailedUsage, TokenUsage
from gateway.core.errors import Rejection
from gateway.core.units import NANO
from gateway.telemetry.metrics import Metrics
from gateway.usage.call_usage import NOTHING, attempts_before, spent
from gateway.usage.cost import cost
from gateway.usage.ledger import Ledger
from gateway.usage.savings import record_avoided, record_final, record_wasted
from gateway.usage.store import CACHE


class LedgerEntries:
    """Writes calls to the ledger. Calls without a caller or a route have used nothing and are skipped."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def record_attempt(self, call: Call, attempt: FailedUsage, cost: int | None, now: float, last: bool) -> None:
        """Record one attempt under the upstream it went to; an `AttemptRecorder`."""
        key = call.caller.name
        row_key = (call.usage.day, key, call.routing.route.name, attempt.candidate.upstream)
        self._ledger.add(*row_key, attempt.tokens, cost, last=last, estimated=attempt.estimated)
        (record_final if last else record_wasted)(self._ledger.savings, call, key, attempt, cost)

    def record_avoided(self, call: Call) -> None:
        """Record a call that made no upstream call of its own: one request without usage."""
        self._ledger.add(call.usage.day, call.caller.name, call.routing.route.name, CACHE, NOTHING, 0)
        record_avoided(self._ledger.savings, call, call.caller.name, CACHE)


CallRecorder = Callable[[Call, TokenUsage, float], None]
"""Receives a call that went upstream, the usage of its last attempt, and the time."""

AttemptRecorder = Callable[[Call, FailedUsage, int | None, float, bool], None]
"""Receives such a call, an attempt, its nano-dollars (None: unknown), the time, and if it was the last."""


REPORTED: Final = "upstream"
ESTIMATED: Final = "estimated"
"""The label `source` of `sluice_tokens_total`: who counted the tokens."""


class UsageAccounting:
    """Gate that admits every call, and Holder. Settled before the limits, which charge what it computes."""

    def __init__(
        self,
        calendar: Calendar,
        estimate: Callable[[Call], object],
        metrics: Metrics,
        on_call: tuple[CallRecorder, ...],
        *,
        always: bool,
        on_attempt: tuple[AttemptRecorder, ...] = (),
    ) -> None:
        """`estimate` fills in `call.usage.estimate`.

        `always`: count every call's tokens, not only those of keys with limits.
        """
        self._calendar = calendar
        self._estimate = estimate
        self._on_call = on_call
        self._on_attempt = on_attempt
        self._always = always
        self._cost = metrics.cost.adder
        self._unpriced = metrics.unpriced.adder
        self._estimated = metrics.estimated.adder
        self._tokens = metrics.tokens.adder

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Admit the call; note whether its usage is needed."""
        call.usage.needed = self._always or call.caller.account is not None
        call.usage.day = self._calendar.day(now)
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Price and record every attempt of a call that went upstream."""
        candidate = call.routing.candidate
        if not call.attempts or call.cached_by:
            return
        if call.usage.needed and call.usage.estimate is None and (call.usage.tokens is None or call.usage.failed):
            self._estimate(call)
        used = spent(call)
        call.usage.estimated = call.usage.tokens is None and used is not NOTHING
        nanos = self._record(call, FailedUsage(candidate, used, call.usage.estimated), now, last=True)
        if call.usage.failed:
            earlier = [self._record(call, attempt, now, last=False) for attempt in attempts_before(call)]
            priced = [cost for cost in (nanos, *earlier) if cost is not None]
            nanos = sum(priced) if priced else None
        call.usage.cost = nanos
        for record in self._on_call:
            record(call, used, now)

    def _record(self, call: Call, attempt: FailedUsage, now: float, *, last: bool) -> int | None:
        """Count and record one attempt; returns its nano-dollars, None if its price is unknown."""
        price, nanos = attempt.candidate.price, None
        if price is not None:
            nanos = cost(attempt.tokens, price)
        model, upstream = call.routing.route.name, attempt.candidate.upstream
        if nanos:
            self._cost(model, upstream, call.caller.label)(nanos / NANO)
        elif nanos is None and attempt.tokens is not NOTHING:
            self._unpriced(model, upstream)(1)
        if attempt.estimated:
            self._estimated(model, upstream)(1)
        self._count_tokens(model, upstream, attempt)
        for record in self._on_attempt:
            record(call, attempt, nanos, now, last)
        return nanos

    def _count_tokens(self, model: str, upstream: str, attempt: FailedUsage) -> None:
        tokens, source = attempt.tokens, ESTIMATED if attempt.estimated else REPORTED
        if tokens.input > 0:
            self._tokens(model, upstream, "input", source)(tokens.input)
        if tokens.output > 0:
            self._tokens(model, upstream, "output", source)(tokens.output)
        if tokens.cached_input or tokens.reasoning or tokens.cache_write:
            details = (
                ("cached_input", tokens.cached_input),
                ("reasoning", tokens.reasoning),
                ("cache_write", tokens.cache_write),
            )
            for type_, count in details:
                if count > 0:
                    self._tokens(model, upstream, type_, source)(count)
