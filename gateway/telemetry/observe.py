"""The first gate: always admits, and turns a call that is over into metrics and one log line."""

from collections.abc import Callable

from gateway.core.call import Call, TokenUsage
from gateway.core.errors import Rejection
from gateway.telemetry.metrics import OTHER, Metrics, fast_incs, fast_observes
from gateway.telemetry.semconv import NO_UPSTREAM

Add = Callable[[float], None]


class RequestMetrics:
    """Gate: records every call exactly once, whatever became of it."""

    def __init__(self, metrics: Metrics, log: Callable[[Call, float], None]) -> None:
        """`log(call, now)` writes the access line."""
        self._log = log
        self._requests = fast_incs(metrics.requests)
        self._duration = fast_observes(metrics.duration)
        self._usage = fast_observes(metrics.token_usage)
        self._overhead = fast_observes(metrics.overhead)
        self._first_token = fast_observes(metrics.time_to_first_token)
        self._per_token = fast_observes(metrics.time_per_output_token)
        self._tokens = fast_incs(metrics.tokens)
        # By all that their series are told apart by: a look-up for each series would cost more than to count.
        self._ends: dict[tuple[str, str, str, int, str], tuple[Add, Add]] = {}
        self._uses: dict[tuple[str, str, str, str], tuple[Add, Add]] = {}

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Everybody may pass."""
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Count, time and log the call."""
        model = call.route.name if call.route is not None else OTHER
        upstream = call.candidate.upstream if call.candidate is not None and call.attempts else NO_UPSTREAM
        place = (model, call.endpoint, upstream, call.status, call.outcome)
        count, took = self._ends.get(place) or self._of_end(*place)
        count(1)
        took(now - call.accepted_at)
        if call.answered_at:
            self._overhead(call.endpoint)(call.overhead_s(now))
        if upstream:
            self._observe_answer(call, model, upstream, now)
        self._log(call, now)

    def _of_end(self, model: str, endpoint: str, upstream: str, status: int, outcome: str) -> tuple[Add, Add]:
        end = self._ends[model, endpoint, upstream, status, outcome] = (
            self._requests(model, endpoint, str(status), outcome),
            self._duration(model, endpoint, upstream, outcome),
        )
        return end

    def _observe_answer(self, call: Call, model: str, upstream: str, now: float) -> None:
        if call.first_token_at:
            self._first_token(model, call.endpoint, upstream)(call.first_token_at - call.sent_at)
        for one in call.failed_usage:
            if not one.estimated:
                self._count(model, one.candidate.upstream, one.tokens)
        used = call.tokens
        if used is None:
            return
        if call.first_token_at and used.output > 1:
            between = (now - call.first_token_at) / (used.output - 1)
            self._per_token(model, call.endpoint, upstream)(between)
        given, output, cached, reasoning, written, _ = used
        if given > 0:
            size, count = self._use(model, call.endpoint, upstream, "input")
            size(given)
            count(given)
        if output > 0:
            size, count = self._use(model, call.endpoint, upstream, "output")
            size(output)
            count(output)
        if cached or reasoning or written:
            self._count(model, upstream, used._replace(input=0, output=0))

    def _use(self, model: str, endpoint: str, upstream: str, kind: str) -> tuple[Add, Add]:
        """The histogram and the counter of such tokens."""
        found = self._uses.get((model, endpoint, upstream, kind))
        if found is None:
            found = self._usage(model, endpoint, upstream, kind), self._tokens(model, upstream, kind)
            self._uses[model, endpoint, upstream, kind] = found
        return found

    def _count(self, model: str, upstream: str, used: TokenUsage) -> None:
        for kind, count in (
            ("input", used.input),
            ("output", used.output),
            ("cached_input", used.cached_input),
            ("reasoning", used.reasoning),
            ("cache_write", used.cache_write),
        ):
            if count > 0:
                self._tokens(model, upstream, kind)(count)
