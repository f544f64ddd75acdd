"""Usage and metadata of cached answers and shared upstream calls: who pays, and what each caller sees."""

from collections.abc import Callable
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
        self._results = metrics.cache_requests.count
        self._tokens = metrics.cache_saved_tokens.adder
        self._usd = metrics.cache_saved_usd.adder

    def count(self, result: Result) -> None:
        """Count one call by result."""
        self._results(result)

    def settle(self, call: Call, now: float) -> None:
        """Book a call that used no upstream, and count the tokens and dollars saved."""
        if call.cached_by:
            self._book(call)
        saved, model = call.usage.saved, call.routing.route.name or OTHER
        if saved is None or call.response.outcome != "ok":
            return
        for kind, count in (("input", saved.input), ("output", saved.output)):
            if count > 0:
                self._tokens(model, kind)(count)
        if call.usage.saved_cost:
            self._usd(model)(call.usage.saved_cost / NANO)


def copy_metadata(call: Call, shared: Call, *, first: bool) -> None:
    """Copy headers, attempts and times of the shared upstream call to one caller's call.

    Only the `first` caller gets the time of the first token, which is measured once per upstream call.
    """
    call.routing.candidate, call.attempts, call.response.upstream_headers = (
        shared.routing.candidate,
        shared.attempts,
        shared.response.upstream_headers,
    )
    call.routing.candidates, call.failures = shared.routing.candidates, shared.failures
    call.routing.considered, call.routing.skipped = shared.routing.considered, shared.routing.skipped
    call.response.finish, call.batch_size, call.modified = shared.response.finish, shared.batch_size, shared.modified
    call.response.notes |= {
        name: value for name, value in shared.response.notes.items() if name not in call.response.notes
    }
    if first:
        call.timing.sent_at, call.timing.answered_at, call.timing.first_token_at = (
            shared.timing.sent_at,
            shared.timing.answered_at,
            shared.timing.first_token_at,
        )
        # Failed attempts have moved `ready_at` forward: their time is not gateway overhead.
        call.timing.ready_at, call.timing.queue_s = shared.timing.ready_at, shared.timing.queue_s
        call.usage.estimate = shared.usage.estimate
    elif shared.timing.answered_at:
        # This caller may have joined after the call was sent, or even answered: count only its own share.
        call.timing.sent_at = max(call.timing.ready_at, shared.timing.sent_at)
        call.timing.ready_at = max(call.timing.ready_at, min(shared.timing.ready_at, call.timing.sent_at))  # as above
        call.timing.answered_at = max(call.timing.sent_at, shared.timing.answered_at)
        call.timing.queue_s = min(shared.timing.queue_s, call.timing.sent_at - call.timing.ready_at)


def charge(call: Call, shared: Call) -> None:
    """Charge the shared upstream call to this caller's key."""
    call.cached_by = ""
    call.usage.tokens, call.usage.generated, call.usage.estimated = (
        shared.usage.tokens,
        shared.usage.generated,
        shared.usage.estimated,
    )
    call.usage.cost, call.usage.failed = shared.usage.cost, shared.usage.failed
    call.usage.estimate = shared.usage.estimate or call.usage.estimate
    call.usage.saved, call.usage.saved_cost = shared.usage.saved, shared.usage.saved_cost


def mark_shared(call: Call, shared: Call) -> None:
    """Record that this caller shared the answer and pays nothing."""
    call.cached_by = "collapsed"
    call.usage.tokens, call.usage.cost, call.usage.estimate = NOTHING, 0, None
    if shared.response.outcome == "ok":
        price = shared.routing.candidate.price
        call.usage.saved = used = spent(shared)
        call.usage.saved_cost = None if price is None else cost(used, price)
