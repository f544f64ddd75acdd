"""What a call has used and cost, once it is over: into the usage ledger, the metrics and the estimates."""

from collections.abc import Callable
from functools import lru_cache

from gateway.call import Call, Tokens
from gateway.errors import Refusal
from gateway.metrics import Metrics
from gateway.policy.calendar import Calendar
from gateway.policy.price import cost
from gateway.policy.spending import spent
from gateway.units import NANO

Book = Callable[[Call, Tokens, float], None]
"""Takes a call that an upstream was asked for, what it used, and the time."""


class Spend:
    """Gate that lets all pass, and Holder. Held after the limits, so that they settle what it has found."""

    def __init__(
        self,
        calendar: Calendar,
        estimate: Callable[[Call], object],
        metrics: Metrics,
        books: tuple[Book, ...],
        *,
        always: bool,
    ) -> None:
        """`estimate` fills in `call.estimate`.

        `always`: every call's tokens are needed, not only those of keys with limits.
        """
        self._calendar = calendar
        self._estimate = estimate
        self._books = books
        self._always = always
        self._cost = lru_cache(maxsize=None)(metrics.cost.labels)

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Everybody may pass; streams are asked for their usage where it is needed."""
        call.counted = self._always or (call.caller is not None and call.caller.account is not None)
        call.day = self._calendar.day(now)
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Price and book what the call has used, if an upstream was asked at all."""
        candidate = call.candidate
        if not call.attempts or candidate is None or call.route is None or call.caller is None:
            return
        if call.counted and call.tokens is None and call.estimate is None:
            self._estimate(call)
        used = spent(call)
        if candidate.price is not None:
            call.cost = cost(used, candidate.price)
            if call.cost:
                self._cost(call.route.name, candidate.upstream, call.caller.name).inc(call.cost / NANO)
        for book in self._books:
            book(call, used, now)
