"""The first gate: always admits, and turns a call that is over into metrics and one log line."""

from collections.abc import Callable

from gateway.call import Call, Tokens
from gateway.errors import Refusal
from gateway.gen_ai import NOBODY
from gateway.metrics import OTHER, Metrics, adders, observers


class Observe:
    """Gate: records every call exactly once, whatever became of it."""

    def __init__(self, metrics: Metrics, log: Callable[[Call, float], None]) -> None:
        """`log(call, now)` writes the access line."""
        self._log = log
        self._requests = adders(metrics.requests)
        self._duration = observers(metrics.duration)
        self._usage = observers(metrics.token_usage)
        self._overhead = observers(metrics.overhead)
        self._first_token = observers(metrics.time_to_first_token)
        self._per_token = observers(metrics.time_per_output_token)
        self._tokens = adders(metrics.tokens)

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Everybody may pass."""
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Count, time and log the call."""
        model = call.route.name if call.route is not None else OTHER
        self._requests(model, call.endpoint, str(call.status), call.outcome)(1)
        upstream = call.candidate.upstream if call.candidate is not None and call.attempts else NOBODY
        self._duration(model, call.endpoint, upstream, call.outcome)(now - call.accepted_at)
        if call.answered_at:
            self._overhead(call.endpoint)(call.overhead_s(now))
        if upstream:
            self._observe_answer(call, model, upstream, now)
        self._log(call, now)

    def _observe_answer(self, call: Call, model: str, upstream: str, now: float) -> None:
        if call.first_token_at:
            self._first_token(model, call.endpoint, upstream)(call.first_token_at - call.sent_at)
        for one in call.spent_before:
            if not one.estimated:
                self._count(model, one.candidate.upstream, one.tokens)
        used = call.tokens
        if used is None:
            return
        if call.first_token_at and used.output > 1:
            between = (now - call.first_token_at) / (used.output - 1)
            self._per_token(model, call.endpoint, upstream)(between)
        if used.input > 0:
            self._usage(model, call.endpoint, upstream, "input")(used.input)
        if used.output > 0:
            self._usage(model, call.endpoint, upstream, "output")(used.output)
        self._count(model, upstream, used)

    def _count(self, model: str, upstream: str, used: Tokens) -> None:
        for kind, count in (
            ("input", used.input),
            ("output", used.output),
            ("cached_input", used.cached_input),
            ("reasoning", used.reasoning),
            ("cache_write", used.cache_write),
        ):
            if count > 0:
                self._tokens(model, upstream, kind)(count)
