"""Records truncated answers, and whether the output cap or the context window was the cause."""

from collections.abc import Callable
from typing import Final

from gateway.context_window.windows import ContextWindows, cause
from gateway.core.call import Call, TokenEstimate

LENGTH: Final = "length"
"""The finish_reason of a truncated answer."""


class TruncationRecorder:
    """Counts truncated answers: complete ones with a header, streams as a Holder at their end."""

    def __init__(
        self,
        windows: ContextWindows,
        estimate: Callable[[Call], TokenEstimate],
        count: Callable[[str, str], None],
    ) -> None:
        """`estimate` fills in `call.usage.estimate` and returns it; `count(model, cause)` counts each answer."""
        self._windows = windows
        self._estimate = estimate
        self._count = count

    def record(self, call: Call) -> None:
        """Count a complete answer that was truncated, and set its header."""
        call.response.notes["x-sluice-truncated"] = f"{LENGTH}; cause={self._counted(call)}"

    def settle(self, call: Call, now: float) -> None:
        """Count a stream that was truncated."""
        if call.response.finish == LENGTH:
            self._counted(call)

    def _counted(self, call: Call) -> str:
        window = self._windows.of(call.routing.candidate)
        reason = cause(call.usage.tokens, call.usage.estimate or self._estimate(call), window)
        self._count(call.routing.route.name, reason)
        return reason
