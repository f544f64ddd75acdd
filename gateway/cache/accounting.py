"""Usage and metadata of cached answers and shared upstream calls: who pays, and what each caller sees."""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from gateway.core.call import Call
from gateway.core.units import NANO
from gateway.telemetry.metrics import OTHER, Metrics
from gateway.usage.call_usage import NOTHING, spent
from gateway.usage.cost import cost

Result = Literal["hit", "miss", "collapsed", "bypass", "store_error"]


class CacheMetrics:
    """Holder of every cacheable call: counts the result and what the cache saved."""

    def __init__(self, metrics: Metrics, book: Callable[[Call], None]) -> None:
        """`book` enters a call that made no upstream call of its own into the usage ledger."""
        self._book = book
        self._results = lru_cache(maxsize=None)(metrics.cache_requests.labels)
        self._tokens = lru_cache(maxsize=None)(metrics.cache_saved_tokens.labels)
        self._usd = lru_cache(maxsize=None)(metrics.cache_saved_usd.labels)

    def count(self, result: Result) -> None:
        """Count one call by result."""
        self._results(result).inc()

    def settle(self, call: Call, now: float) -> None:
        """Book a call that used no upstream, and count the tokens and dollars saved."""
        if call.cached_by:
            self._book(call)
        saved, model = call.saved, call.route.name if call.route is not None else OTHER
        if saved is None or call.outcome != "ok":
            return
        for kind, count in (("input", saved.input), ("output", saved.output)):
            if count > 0:
                self._tokens(model, kind).inc(count)
        if call.saved_cost:
            self._usd(model).inc(call.saved_cost / NANO)


def copy_metadata(call: Call, shared: Call, *, first: bool) -> None:
    """Copy headers, attempts and times of the shared upstream call to one caller's call.

    Only the `first` caller gets the time of the first token, which is measured once per upstream call.
    """
    call.candidate, call.attempts, call.upstream_headers = (
        shared.candidate,
        shared.attempts,
        shared.upstream_headers,
    )
    call.candidates, call.failures = shared.candidates, shared.failures
    call.finish, call.batch_size, call.modified = shared.finish, shared.batch_size, shared.modified
    call.response_notes |= {
        name: value for name, value in shared.response_notes.items() if name not in call.response_notes
    }
    if first:
        call.sent_at, call.answered_at, call.first_token_at = (
            shared.sent_at,
            shared.answered_at,
            shared.first_token_at,
        )
        # Failed attempts have moved `ready_at` forward: their time is not gateway overhead.
        call.ready_at, call.queue_s = shared.ready_at, shared.queue_s
        call.estimate = shared.estimate
    elif shared.answered_at:
        # This caller may have joined after the call was sent, or even answered: count only its own share.
        call.sent_at = max(call.ready_at, shared.sent_at)
        call.ready_at = max(call.ready_at, min(shared.ready_at, call.sent_at))  # as above
        call.answered_at = max(call.sent_at, shared.answered_at)
        call.queue_s = min(shared.queue_s, call.sent_at - call.ready_at)


def charge(call: Call, shared: Call) -> None:
    """Charge the shared upstream call to this caller's key."""
    call.cached_by = ""
    call.tokens, call.generated, call.estimated = shared.tokens, shared.generated, shared.estimated
    call.cost, call.failed_usage = shared.cost, shared.failed_usage
    call.estimate = shared.estimate or call.estimate
    call.saved, call.saved_cost = shared.saved, shared.saved_cost


def mark_shared(call: Call, shared: Call) -> None:
    """Record that this caller shared the answer and pays nothing."""
    call.cached_by = "collapsed"
    call.tokens, call.cost, call.estimate = NOTHING, 0, None
    if shared.outcome == "ok" and shared.candidate is not None:
        price = shared.candidate.price
        call.saved = used = spent(shared)
        call.saved_cost = None if price is None else cost(used, price)
