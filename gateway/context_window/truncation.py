"""Answers that were cut short: whether the cap on the output did it, or the context window."""

from collections.abc import Callable
from typing import Final

from gateway.context_window.windows import ContextWindows, cause
from gateway.core.call import Call, TokenEstimate

LENGTH: Final = "length"
"""The finish_reason of an answer that was cut short."""


class TruncationRecorder:
    """Holder for streams, which are known only when they are over; whole answers are told to their client."""

    def __init__(
        self,
        windows: ContextWindows,
        estimate: Callable[[Call], TokenEstimate],
        count: Callable[[str, str], None],
    ) -> None:
        """`estimate` fills in `call.estimate` and gives it; `count(model, cause)` is told of each."""
        self._windows = windows
        self._estimate = estimate
        self._count = count

    def whole(self, call: Call) -> None:
        """A whole answer is there, and was cut short."""
        call.response_notes["x-sluice-truncated"] = f"{LENGTH}; cause={self._counted(call)}"

    def settle(self, call: Call, now: float) -> None:
        """Holder: a stream is over."""
        if call.finish == LENGTH:
            self._counted(call)

    def _counted(self, call: Call) -> str:
        window = self._windows.of(call.candidate) if call.candidate is not None else None
        met = cause(call.tokens, call.estimate or self._estimate(call), window)
        self._count(call.model, met)
        return met
