"""The overflow layer: a prompt over the context window goes to a larger model, is trimmed, or is rejected.

Only an upstream's error counts as an overflow, and the layer acts only after every candidate and fallback
that may have room has been tried.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Raw

from gateway.context_window.trim import drop_oldest, middle_out
from gateway.context_window.truncation import LENGTH, TruncationRecorder
from gateway.context_window.windows import ContextWindows, PromptRequirement, explained, larger, need
from gateway.core.call import Call, Handler, Reply, Route, TokenEstimate
from gateway.core.errors import PASSED_THROUGH, Rejection, UpstreamFailure
from gateway.core.headers import header_text
from gateway.core.request_fields import RequestFields
from gateway.resilience.classification import classify
from gateway.usage.estimator import TokenFactors
from gateway.wire.json import splice
from gateway.wire.openai.capabilities import needs
from gateway.wire.openai.token_weight import weigh
from gateway.wire.request_body import fields_of

HEADER: Final = "x-sluice-overflow"
"""Response header with the action taken."""

ERROR: Final = "error"
FALLBACK: Final = "fallback"
DROP_OLDEST: Final = "drop_oldest"
MIDDLE_OUT: Final = "middle_out"

_MAX_ATTEMPTS: Final = 2
_MARGINS: Final = (0.02, 0.1)
_UNCOUNTED_MARGINS: Final = (0.1, 0.5)
"""Share of the room left free at the first and second attempt; larger if the upstream gave no count."""

_TRIMMED: Final = ("messages", "prompt")
"""Members of a request that can be shortened."""
_TRIM: Final = {DROP_OLDEST: drop_oldest, MIDDLE_OUT: middle_out}
_WEIGHTS: Final = TokenFactors()


class OverflowMetrics(NamedTuple):
    """Counts overflows (model, action) and fallbacks (from model, to model)."""

    overflow: Callable[[str, str], None]
    fallback: Callable[[str, str], None]


class ContextOverflow:
    """The overflow layer; `actions` has each model's `on_overflow`."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        actions: Mapping[str, str],
        windows: ContextWindows,
        truncations: TruncationRecorder,
        estimate: Callable[[Call], TokenEstimate],
        metrics: OverflowMetrics,
    ) -> None:
        """`actions` is by model name; `estimate` fills in `call.usage.estimate` and returns it."""
        self.routes = tuple(routes.values())
        self.actions = actions
        self.windows = windows
        self.estimate = estimate
        self.metrics = metrics
        self._truncations = truncations

    def __call__(self, inner: Handler) -> Handler:
        """Wrap `inner`."""

        async def handle(call: Call) -> Reply | Rejection:
            if call.request.stream:
                call.lease.hold(self._truncations)
            try:
                reply = await inner(call)
            except UpstreamFailure as failure:
                if classify(failure).overflow is None:
                    raise
                reply = await _OverflowAttempt(self, inner, call, failure).resolve()
            if call.response.finish == LENGTH and isinstance(reply, Reply):
                self._truncations.record(call)
            return reply

        return handle


class _OverflowAttempt:
    """The handling of one call that has overflowed."""

    def __init__(self, layer: ContextOverflow, inner: Handler, call: Call, failure: UpstreamFailure) -> None:
        self._layer = layer
        self._inner = inner
        self._call = call
        self._failure = failure
        self._route = call.routing.route
        self._need = self._needed()
        self._dropped_messages = 0
        self._dropped_tokens = 0
        self._called: set[str] = set()

    async def resolve(self) -> Reply | Rejection:
        """Return an answer after rerouting or trimming. Raises the failure with an explaining message."""
        action = self._layer.actions.get(self._route.name, ERROR)
        if self._call.routing.bound or (action in _TRIM and self._call.request.endpoint.payload not in _TRIMMED):
            action = ERROR
        for attempt in range(_MAX_ATTEMPTS if action != ERROR else 0):
            if not (self._use_larger_model() if action == FALLBACK else self._trim_prompt(action, attempt)):
                break
            try:
                reply = await self._inner(self._call)
            except UpstreamFailure as failure:
                self._call.response.notes.pop(HEADER, None)
                if not self._may_continue(failure, action):
                    self._layer.metrics.overflow(self._route.name, action)
                    raise
                continue
            if isinstance(reply, Rejection):
                del self._call.response.notes[HEADER]
            self._layer.metrics.overflow(self._route.name, action)
            return reply
        self._layer.metrics.overflow(self._route.name, ERROR)
        raise self._failure.copy(self._message(action))

    def _may_continue(self, failure: UpstreamFailure, action: str) -> bool:
        """Return whether another attempt may follow this failure."""
        if classify(failure).overflow is not None:
            self._failure = failure
            self._need = self._needed()
            return True
        # A larger model that was not configured for these calls may not even serve the endpoint.
        return action == FALLBACK and failure.status in PASSED_THROUGH

    def _needed(self) -> PromptRequirement:
        overflow, candidate = classify(self._failure).overflow, self._call.routing.candidate
        if overflow is None:
            raise AssertionError("an upstream has reported an overflow")
        self._layer.windows.learn(candidate, overflow.limit)
        estimate = self._call.usage.estimate or self._layer.estimate(self._call)
        return need(overflow, candidate.context_window, estimate)

    def _larger_models(self) -> Sequence[Route]:
        routes = (route for route in self._layer.routes if route.name not in self._called)
        return larger(self._call, routes, self._need, needs(fields_of(self._call.request)))

    def _use_larger_model(self) -> bool:
        """Reroute to the cheapest model with room; the answer still carries the requested name."""
        call, models = self._call, self._larger_models()
        if not models:
            return False
        model = models[0]
        self._called.add(model.name)
        self._layer.metrics.fallback(self._route.name, model.name)
        call.routing.route = Route(self._route.name, self._route.encoded, model.candidates)
        call.routing.candidate, call.routing.candidates, call.routing.max_wait_s = model.candidates[0], (), math.inf
        call.modified = True
        call.response.notes[HEADER] = f"{FALLBACK}; model={header_text(model.name)}"
        return True

    def _trim_prompt(self, action: str, attempt: int) -> bool:
        """Shorten the body according to the upstream's numbers."""
        call, needed = self._call, self._need
        margin = (_MARGINS if needed.counted else _UNCOUNTED_MARGINS)[attempt]
        share = min(needed.room / needed.prompt, 1.0) * (1.0 - margin) if needed.prompt else 0.0
        if share <= 0.0:
            return False
        total = _WEIGHTS.tokens(weigh(fields_of(call.request), call.request.body))
        trimmed = _TRIM[action](call.request.body, total * (1.0 - share), _weigh)
        if trimmed is None:
            return False
        self._dropped_messages += trimmed.messages
        self._dropped_tokens += round(trimmed.weight / total * needed.prompt)
        messages = f"; dropped_messages={self._dropped_messages}" if action == DROP_OLDEST else ""
        call.response.notes[HEADER] = f"{action}{messages}; dropped_tokens={self._dropped_tokens}"
        call.request.body, call.request.spans = trimmed.body, splice.model_spans(trimmed.body)
        call.usage.estimate, call.modified = None, True  # the estimate is of the longer body
        return True

    def _message(self, action: str) -> str:
        windows = [
            (route.name, max(candidate.context_window or 0 for candidate in route.candidates))
            for route in self._larger_models()
        ]
        return explained(self._failure.message, self._need, windows, shortened=action in _TRIM)


def _weigh(piece: bytes) -> float:
    """Return the estimated tokens of a message or a text; only its share of the body's total matters."""
    weight = weigh(RequestFields(messages=Raw(piece)), piece)
    return _WEIGHTS.tokens(weight._replace(turns=max(0, weight.turns - 1)))  # one turn opens the answer
