"""The first gate: always admits, and turns a call that is over into metrics and one log line."""

from collections.abc import Callable
from functools import lru_cache

from prometheus_client import Histogram

from gateway.call import Call
from gateway.errors import Refusal
from gateway.metrics import OTHER, Metrics, observer


class Observe:
    """Gate: records every call exactly once, whatever became of it."""

    def __init__(self, metrics: Metrics, log: Callable[[Call, float], None]) -> None:
        """`log(call, now)` writes the access line."""
        self._metrics = metrics
        self._log = log
        # Finding a child by its labels costs more than counting; the sets are closed, so all are kept.
        self._requests = lru_cache(maxsize=None)(metrics.requests.labels)
        self._duration = _observers(metrics.duration)
        self._overhead = _observers(metrics.overhead)
        self._first_token = _observers(metrics.time_to_first_token)
        self._per_token = _observers(metrics.time_per_output_token)
        self._tokens = lru_cache(maxsize=None)(metrics.tokens.labels)

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Everybody may pass."""
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Count, time and log the call."""
        model = call.route.name if call.route is not None else OTHER
        self._requests(model, call.endpoint, str(call.status), call.outcome).inc()
        self._duration(model, call.endpoint)(now - call.accepted_at)
        if call.answered_at:
            self._overhead(call.endpoint)(call.overhead_s(now))
        if call.candidate is not None and call.attempts:
            self._observe_answer(call, model, call.candidate.upstream, now)
        self._log(call, now)

    def _observe_answer(self, call: Call, model: str, upstream: str, now: float) -> None:
        if call.first_token_at:
            self._first_token(model, upstream)(call.first_token_at - call.sent_at)
        used = call.tokens
        if used is None:
            return
        if call.first_token_at and used.output > 1:
            self._per_token(model, upstream)((now - call.first_token_at) / (used.output - 1))
        for kind, count in (
            ("input", used.input),
            ("output", used.output),
            ("cached_input", used.cached_input),
            ("reasoning", used.reasoning),
        ):
            if count > 0:
                self._tokens(model, upstream, kind).inc(count)


def _observers(histogram: Histogram) -> Callable[..., Callable[[float], None]]:
    return lru_cache(maxsize=None)(lambda *labels: observer(histogram.labels(*labels)))
