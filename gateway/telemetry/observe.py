"""The first gate: admits every call, and turns each finished call into metrics and an access log line."""

from collections.abc import Callable

from gateway.core.call import Call
from gateway.core.errors import Rejection
from gateway.telemetry.metrics import OTHER, Metrics
from gateway.telemetry.semconv import NO_UPSTREAM
from gateway.telemetry.series import Add


class RequestMetrics:
    """A gate that records every call exactly once, whatever its outcome."""

    def __init__(
        self,
        metrics: Metrics,
        log: Callable[[Call, float], None],
        keep: Callable[[Call, float], None] | None = None,
    ) -> None:
        """`log(call, now)` writes the access log line; `keep(call, now)` takes the call for the inspector."""
        self._log = log
        self._keep = keep
        self._requests = metrics.requests.adder
        self._duration = metrics.duration.observer
        self._usage = metrics.token_usage.observer
        self._overhead = metrics.overhead.observer
        self._first_token = metrics.time_to_first_token.observer
        self._per_token = metrics.time_per_output_token.observer
        # Cached by label values: a lookup per series would cost more than counting.
        self._end_series: dict[tuple[str, str, str, int, str], tuple[Add, Add]] = {}

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Admit the call."""
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Count, time and log the call."""
        model = call.routing.route.name or OTHER
        upstream = call.routing.candidate.upstream if call.attempts else NO_UPSTREAM
        labels = (model, call.request.endpoint, upstream, call.response.status, call.response.outcome)
        count, observe_duration = self._end_series.get(labels) or self._make_end_series(*labels)
        count(1)
        observe_duration(now - call.timing.accepted_at)
        if call.timing.answered_at:
            self._overhead(call.request.endpoint)(call.overhead_s(now))
        if upstream:
            self._observe_answer(call, model, upstream, now)
        self._log(call, now)
        if self._keep is not None:
            self._keep(call, now)

    def _make_end_series(self, model: str, endpoint: str, upstream: str, status: int, outcome: str) -> tuple[Add, Add]:
        series = self._end_series[model, endpoint, upstream, status, outcome] = (
            self._requests(model, endpoint, str(status), outcome),
            self._duration(model, endpoint, upstream, outcome),
        )
        return series

    def _observe_answer(self, call: Call, model: str, upstream: str, now: float) -> None:
        if call.timing.first_token_at:
            self._first_token(model, call.request.endpoint, upstream)(call.timing.first_token_at - call.timing.sent_at)
        tokens = call.usage.tokens
        if tokens is None:
            return
        if call.timing.first_token_at and tokens.output > 1:
            per_token_s = (now - call.timing.first_token_at) / (tokens.output - 1)
            self._per_token(model, call.request.endpoint, upstream)(per_token_s)
        endpoint = call.request.endpoint
        if tokens.input > 0:
            self._usage(model, endpoint, upstream, "input")(tokens.input)
        if tokens.output > 0:
            self._usage(model, endpoint, upstream, "output")(tokens.output)
