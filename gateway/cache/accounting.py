"""What each caller of a shared upstream call is shown of it, and who of them pays."""

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
    """Holder of every call that may be served from a kept answer or a shared call."""

    def __init__(self, metrics: Metrics, book: Callable[[Call], None]) -> None:
        """`book` enters a call that needed no upstream of its own into the usage ledger."""
        self._book = book
        self._results = lru_cache(maxsize=None)(metrics.cache_requests.labels)
        self._tokens = lru_cache(maxsize=None)(metrics.cache_saved_tokens.labels)
        self._usd = lru_cache(maxsize=None)(metrics.cache_saved_usd.labels)

    def count(self, result: Result) -> None:
        """What became of a call."""
        self._results(result).inc()

    def settle(self, call: Call, now: float) -> None:
        """The call is over."""
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


def copy_metadata(call: Call, ours: Call, *, first: bool) -> None:
    """What a caller's own call shows of the upstream call; its first token only once, for it is measured."""
    call.candidate, call.attempts, call.upstream_headers = (
        ours.candidate,
        ours.attempts,
        ours.upstream_headers,
    )
    call.candidates = ours.candidates
    call.finish, call.batch_size, call.modified = ours.finish, ours.batch_size, ours.modified
    call.response_notes |= {
        name: value for name, value in ours.response_notes.items() if name not in call.response_notes
    }
    if first:
        call.sent_at, call.answered_at, call.first_token_at = (
            ours.sent_at,
            ours.answered_at,
            ours.first_token_at,
        )
        # Moved on where earlier attempts took a part of the time that is not the gateway's own.
        call.ready_at, call.queue_s = ours.ready_at, ours.queue_s
        call.estimate = ours.estimate
    elif ours.answered_at:
        # It may have come when that call had been sent, or even answered: of its time only its own part.
        call.sent_at = max(call.ready_at, ours.sent_at)
        call.ready_at = max(call.ready_at, min(ours.ready_at, call.sent_at))  # moved on there as well
        call.answered_at = max(call.sent_at, ours.answered_at)
        call.queue_s = min(ours.queue_s, call.sent_at - call.ready_at)


def charge(call: Call, ours: Call) -> None:
    """This caller's key is charged for it."""
    call.cached_by = ""
    call.tokens, call.generated, call.estimated = ours.tokens, ours.generated, ours.estimated
    call.cost, call.failed_usage = ours.cost, ours.failed_usage
    call.estimate = ours.estimate or call.estimate
    call.saved, call.saved_cost = ours.saved, ours.saved_cost


def mark_shared(call: Call, ours: Call) -> None:
    """This one has it for nothing."""
    call.cached_by = "collapsed"
    call.tokens, call.cost, call.estimate = NOTHING, 0, None
    if ours.outcome == "ok" and ours.candidate is not None:
        price = ours.candidate.price
        call.saved = used = spent(ours)
        call.saved_cost = None if price is None else cost(used, price)
