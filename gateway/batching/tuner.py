"""What calls of one kind cost, and how many and how large batches of them may be now."""

import math
from typing import Final, Literal

BatchOutcome = Literal["ok", "failed", "overloaded"]
OK: Final = "ok"
FAILED: Final = "failed"
OVERLOADED: Final = "overloaded"  # a 429, or an upstream that says it is full

_KEPT: Final = 0.99
"""Each newer call leaves this much of the older ones' weight: about the last hundred count."""
_SPREAD: Final = 1e-3
"""Of the mean square: with less the calls are all of one size, and tell nothing of the cost of a token."""
_GAP_S: Final = 0.010
"""The next of those who were answered together comes back within it, or none does."""


class BatchTuner:
    """`size` stays within 1 and `max_size`, `inflight` within 1 and `max_inflight`.

    The cost is a + b x tokens seconds, fitted by least squares with exponential forgetting over the calls
    that went well. An overload halves both bounds, once for all that were sent before it; each success gives
    a member back, and when the size is whole again a batch under way.

    `together`: half of `max_inflight`, and a free slot waits a moment for those who were just answered
    together (`awaits`). An engine that does one call after the other wants fewer and larger batches, and
    callers in step come back in step.
    """

    __slots__ = (
        "_cut_at", "_max_inflight", "_max_size", "_most", "_n", "_s", "_t", "_ts", "_tt", "awaits",
        "inflight", "size",
    )  # fmt: skip

    def __init__(self, max_size: int, max_inflight: int) -> None:
        self._max_size = self.size = max_size
        self._max_inflight = self._most = self.inflight = max_inflight
        self.awaits = False
        self._cut_at = -math.inf
        # Weighted sums over the calls: of 1, tokens, seconds, and their products.
        self._n = self._t = self._s = self._tt = self._ts = 0.0

    def together(self, wanted: bool) -> None:
        """Whether fewer batches are to leave, of callers that come back together."""
        self.awaits = wanted
        self.inflight = min(self._most, max(1, self._max_inflight // 2)) if wanted else self._most

    def cost(self, tokens: int) -> float:
        """Expected seconds of a call with so many tokens; 0.0 while nothing is known."""
        a, b = self._line()
        return a + b * tokens

    def ended(self, calls: int, tokens: int, seconds: float, outcome: BatchOutcome, now: float) -> None:
        """Learn from an upstream call with so many members that is over `seconds` after it was sent."""
        if outcome == OK:
            self._n = self._n * _KEPT + 1.0
            self._t = self._t * _KEPT + tokens
            self._s = self._s * _KEPT + seconds
            self._tt = self._tt * _KEPT + tokens * tokens
            self._ts = self._ts * _KEPT + tokens * seconds
            if self.size < self._max_size:
                self.size += 1
            elif self._most < self._max_inflight:
                self._most += 1
                self.together(self.awaits)
        elif outcome == OVERLOADED and calls > 1 and now - seconds >= self._cut_at:
            self._cut_at = now
            self.size = max(1, min(self.size, calls) // 2)
            self._most = self.inflight = max(1, self.inflight // 2)

    def patience(self) -> tuple[float, float]:
        """Seconds between two who come back, and for all of them: a part of what a call takes."""
        mean = self._s / self._n if self._n else 0.0
        return min(_GAP_S, mean / 8), mean / 3

    def view(self) -> dict[str, float | int]:
        """For /admin/upstreams: `size`, `inflight`, `call_ms` (a) and `token_us` (b)."""
        a, b = self._line()
        return {
            "size": self.size,
            "inflight": self.inflight,
            "call_ms": round(a * 1e3, 3),
            "token_us": round(b * 1e6, 3),
        }

    def _line(self) -> tuple[float, float]:
        """a and b, neither below zero."""
        n, t, s = self._n, self._t, self._s
        if not n:
            return 0.0, 0.0
        spread = n * self._tt - t * t
        if spread <= _SPREAD * n * self._tt:
            return s / n, 0.0
        b = max(0.0, (n * self._ts - t * s) / spread)
        a = (s - b * t) / n
        return (a, b) if a >= 0.0 else (0.0, self._ts / self._tt)
