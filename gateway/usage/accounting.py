"""What a call has used and cost, once it is over: into the usage ledger, the metrics and the estimates."""

from collections.abc import Callable

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, FailedUsage, TokenUsage
from gateway.core.errors import Rejection
from gateway.core.units import NANO
from gateway.telemetry.metrics import Metrics, fast_incs
from gateway.usage.call_usage import NOTHING, attempts_before, spent
from gateway.usage.cost import cost
from gateway.usage.ledger import Ledger
from gateway.usage.savings import record_avoided, record_final, record_wasted
from gateway.usage.store import CACHE


class LedgerEntries:
    """For calls whose caller and route are known; others have used nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def paid(self, call: Call, one: FailedUsage, cost: int | None, now: float, last: bool) -> None:
        """Enter an attempt at the upstream that it went to (see `layers/spend.py`)."""
        if call.caller is None or call.route is None:
            return
        key = call.caller.name
        where = (call.day, key, call.route.name, one.candidate.upstream)
        self._ledger.add(*where, one.tokens, cost, last=last, estimated=one.estimated)
        (record_final if last else record_wasted)(self._ledger.savings, call, key, one, cost)

    def spared(self, call: Call) -> None:
        """Enter a call that needed no upstream of its own: one request that has used nothing."""
        if call.caller is None or call.route is None:
            return
        self._ledger.add(call.day, call.caller.name, call.route.name, CACHE, NOTHING, 0)
        record_avoided(self._ledger.savings, call, call.caller.name, CACHE)


Book = Callable[[Call, TokenUsage, float], None]
"""Takes a call that an upstream was asked for, what its last attempt used, and the time."""

Paid = Callable[[Call, FailedUsage, int | None, float, bool], None]
"""Takes such a call, an attempt, its nano-dollars (None: unknown), the time, and whether it was the last."""


class UsageAccounting:
    """Gate that lets all pass, and Holder. Held after the limits, so that they settle what it has found."""

    def __init__(
        self,
        calendar: Calendar,
        estimate: Callable[[Call], object],
        metrics: Metrics,
        books: tuple[Book, ...],
        *,
        always: bool,
        paid: tuple[Paid, ...] = (),
    ) -> None:
        """`estimate` fills in `call.estimate`.

        `always`: every call's tokens are needed, not only those of keys with limits.
        """
        self._calendar = calendar
        self._estimate = estimate
        self._books = books
        self._paid = paid
        self._always = always
        self._cost = fast_incs(metrics.cost)
        self._unpriced = fast_incs(metrics.unpriced)
        self._estimated = fast_incs(metrics.estimated)

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Everybody may pass; streams are asked for their usage where it is needed."""
        call.needs_usage = self._always or (call.caller is not None and call.caller.account is not None)
        call.day = self._calendar.day(now)
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Price and book what each attempt has used, if an upstream was asked at all."""
        candidate = call.candidate
        if not call.attempts or call.cached_by or candidate is None:
            return
        if call.needs_usage and call.estimate is None and (call.tokens is None or call.failed_usage):
            self._estimate(call)
        used = spent(call)
        call.estimated = call.tokens is None and used is not NOTHING
        costs = self._pay(call, FailedUsage(candidate, used, call.estimated), now, last=True)
        if call.failed_usage:
            earlier = [self._pay(call, one, now, last=False) for one in attempts_before(call)]
            known = [one for one in (costs, *earlier) if one is not None]
            costs = sum(known) if known else None
        call.cost = costs
        for book in self._books:
            book(call, used, now)

    def _pay(self, call: Call, one: FailedUsage, now: float, *, last: bool) -> int | None:
        """Count and book one attempt; gives its nano-dollars, None where its price is not known."""
        price, nanos = one.candidate.price, None
        if price is not None:
            nanos = cost(one.tokens, price)
        if call.route is not None and call.caller is not None:
            model, upstream = call.route.name, one.candidate.upstream
            if nanos:
                self._cost(model, upstream, call.caller.name)(nanos / NANO)
            elif nanos is None and one.tokens is not NOTHING:
                self._unpriced(model, upstream)(1)
            if one.estimated:
                self._estimated(model, upstream)(1)
        for paid in self._paid:
            paid(call, one, nanos, now, last)
        return nanos
