"""The first gate: always admits, and turns a call that is over into metrics and one log line."""

from collections.abc import Callable

from gateway.call import Call, Tokens
from gateway.errors import Refusal
from gateway.gen_ai import NOBODY
from gateway.metrics import OTHER, Metrics, adders, observers

Add = Callable[[float], None]


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
        # By all that their series are told apart by: a look-up for each series would cost more than to count.
        self._ends: dict[tuple[str, str, str, int, str], tuple[Add, Add]] = {}

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Everybody may pass."""
        call.lease.hold(self)
        return None

    def settle(self, call: Call, now: float) -> None:
        """Count, time and log the call."""
        model = call.route.name if call.route is not None else OTHER
        upstream = call.candidate.upstream if call.candidate is not None and call.attempts else NOBODY
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
        given, output, cached, reasoning, written, _ = used
        if given > 0:
            self._tokens(model, upstream, "input")(given)
        if output > 0:
            self._tokens(model, upstream, "output")(output)
        if cached or reasoning or written:
            for kind, count in (("cached_input", cached), ("reasoning", reasoning), ("cache_write", written)):
                if count > 0:
                    self._tokens(model, upstream, kind)(count)
