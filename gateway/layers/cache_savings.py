"""What the answer cache has spared: counted when a call that it served is over."""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from gateway.call import Call
from gateway.metrics import OTHER, Metrics
from gateway.units import NANO

Result = Literal["hit", "miss", "collapsed", "bypass", "store_error"]


class Savings:
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
