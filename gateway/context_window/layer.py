"""Calls that do not fit a context window: told what would help, sent elsewhere, or made shorter.

Only an upstream's own word counts as an overflow, and something is done only after all candidates and
fallbacks of the model have been asked that may have room (`layers/attempts.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.context_window.trim import drop_oldest, middle_out
from gateway.context_window.truncation import LENGTH, TruncationRecorder
from gateway.context_window.windows import ContextWindows, PromptRequirement, explained, larger, need
from gateway.core.call import Call, Handler, Reply, Route, TokenEstimate
from gateway.core.errors import PASSED_THROUGH, Rejection, UpstreamFailure
from gateway.resilience.classification import classify
from gateway.usage import token_weight as payload
from gateway.usage.estimator import TokenFactors
from gateway.wire.json import splice
from gateway.wire.openai.capabilities import needs

HEADER: Final = "x-sluice-overflow"
"""Announces what was done."""

ERROR: Final = "error"
FALLBACK: Final = "fallback"
DROP_OLDEST: Final = "drop_oldest"
MIDDLE_OUT: Final = "middle_out"

_TRIES: Final = 2
_MARGINS: Final = (0.02, 0.1)
_UNCOUNTED_MARGINS: Final = (0.1, 0.5)
"""Of the room: what is left free at the first try and at the second; more where nobody has counted."""

_TRIM: Final = {DROP_OLDEST: drop_oldest, MIDDLE_OUT: middle_out}
_WEIGHTS: Final = TokenFactors()


class OverflowMetrics(NamedTuple):
    """Told of each overflow (model, action), and of each fallback (from model, to model)."""

    overflow: Callable[[str, str], None]
    fallback: Callable[[str, str], None]


class ContextOverflow:
    """The layer."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        actions: Mapping[str, str],
        windows: ContextWindows,
        finishes: TruncationRecorder,
        estimate: Callable[[Call], TokenEstimate],
        counts: OverflowMetrics,
    ) -> None:
        """`actions` is what models do, by name; `estimate` fills in `call.estimate` and gives it."""
        self.routes = tuple(routes.values())
        self.actions = actions
        self.windows = windows
        self.estimate = estimate
        self.counts = counts
        self._finishes = finishes

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        async def handle(call: Call) -> Reply | Rejection:
            if call.stream:
                call.lease.hold(self._finishes)
            try:
                reply = await inner(call)
            except UpstreamFailure as failure:
                if classify(failure).overflow is None:
                    raise
                reply = await _OverflowAttempt(self, inner, call, failure).resolve()
            if call.finish == LENGTH and isinstance(reply, Reply):
                self._finishes.whole(call)
            return reply

        return handle


class _OverflowAttempt:
    """One call that has overflowed."""

    def __init__(self, layer: ContextOverflow, inner: Handler, call: Call, failure: UpstreamFailure) -> None:
        if call.route is None:
            raise AssertionError("the gates above set the route")
        self._layer = layer
        self._inner = inner
        self._call = call
        self._failure = failure
        self._route = call.route
        self._need = self._needed()
        self._dropped_messages = 0
        self._dropped_tokens = 0
        self._called: set[str] = set()

    async def resolve(self) -> Reply | Rejection:
        """An answer by another way, or the Failure with all that its client should know."""
        action = self._layer.actions.get(self._route.name, ERROR)
        for attempt in range(_TRIES if action != ERROR else 0):
            if not (self._elsewhere() if action == FALLBACK else self._shorter(action, attempt)):
                break
            try:
                reply = await self._inner(self._call)
            except UpstreamFailure as failure:
                self._call.response_notes.pop(HEADER, None)
                if not self._goes_on(failure, action):
                    self._layer.counts.overflow(self._route.name, action)
                    raise
                continue
            if isinstance(reply, Rejection):
                del self._call.response_notes[HEADER]
            self._layer.counts.overflow(self._route.name, action)
            return reply
        self._layer.counts.overflow(self._route.name, ERROR)
        raise self._failure.copy(self._told(action))

    def _goes_on(self, failure: UpstreamFailure, action: str) -> bool:
        """Whether another try may follow this failure of the last one."""
        if classify(failure).overflow is not None:
            self._failure = failure
            self._need = self._needed()
            return True
        # A model that nobody had in mind for such calls may not even know the endpoint.
        return action == FALLBACK and failure.status in PASSED_THROUGH

    def _needed(self) -> PromptRequirement:
        told, candidate = classify(self._failure).overflow, self._call.candidate
        if told is None or candidate is None:
            raise AssertionError("an upstream has told of an overflow")
        self._layer.windows.met(candidate, told.limit)
        estimate = self._call.estimate or self._layer.estimate(self._call)
        return need(told, candidate.context_window, estimate)

    def _larger(self) -> Sequence[Route]:
        routes = (one for one in self._layer.routes if one.name not in self._called)
        return larger(self._call, routes, self._need, needs(self._call.body))

    def _elsewhere(self) -> bool:
        """Make the call one to the cheapest model with room. Its answer bears the name that was asked for."""
        call, found = self._call, self._larger()
        if not found:
            return False
        other = found[0]
        self._called.add(other.name)
        self._layer.counts.fallback(self._route.name, other.name)
        call.route = Route(self._route.name, self._route.encoded, other.candidates)
        call.candidate, call.candidates, call.max_wait_s, call.modified = (
            other.candidates[0],
            (),
            math.inf,
            True,
        )
        call.response_notes[HEADER] = f"{FALLBACK}; model={other.name}"
        return True

    def _shorter(self, action: str, attempt: int) -> bool:
        """Make its body shorter by the upstream's own numbers."""
        call, needed = self._call, self._need
        margin = (_MARGINS if needed.counted else _UNCOUNTED_MARGINS)[attempt]
        keep = min(needed.room / needed.prompt, 1.0) * (1.0 - margin) if needed.prompt else 0.0
        if keep <= 0.0:
            return False
        total = _WEIGHTS.tokens(payload.weigh(call.body))
        trimmed = _TRIM[action](call.body, total * (1.0 - keep), _weigh)
        if trimmed is None:
            return False
        self._dropped_messages += trimmed.messages
        self._dropped_tokens += round(trimmed.weight / total * needed.prompt)
        told = f"; dropped_messages={self._dropped_messages}" if action == DROP_OLDEST else ""
        call.response_notes[HEADER] = f"{action}{told}; dropped_tokens={self._dropped_tokens}"
        call.body, call.spans = trimmed.body, splice.model_spans(trimmed.body)
        call.estimate, call.modified = None, True  # an estimate of another body would be learned from
        return True

    def _told(self, action: str) -> str:
        rooms = [
            (other.name, max(one.context_window or 0 for one in other.candidates)) for other in self._larger()
        ]
        return explained(self._failure.message, self._need, rooms, shortened=action in _TRIM)


def _weigh(piece: bytes) -> float:
    """Tokens of a message or a text, by scripts; only its share in the whole body's matters."""
    weight = payload.weigh(b'{"messages":%b}' % piece)
    return _WEIGHTS.tokens(weight._replace(turns=max(0, weight.turns - 1)))  # one is the answer's opening
