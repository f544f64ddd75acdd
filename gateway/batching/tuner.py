"""The cost of similar calls, and the size and number of their batches, tuned by what the upstream returns."""

import math
from typing import Final, Literal

BatchOutcome = Literal["ok", "failed", "overloaded"]
OK: Final = "ok"
FAILED: Final = "failed"
OVERLOADED: Final = "overloaded"  # a 429, or an upstream that says it is full

_DECAY: Final = 0.99
"""The weight that older calls retain with each new call: about the last hundred count."""
_MIN_SPREAD: Final = 1e-3
"""Least variance of the tokens relative to the mean square; below it no cost of a token can be fitted."""
_NARROW_EVERY: Final = 3
"""Calls after which a ramp that narrows takes a slot away ..."""
_NARROW_FIRST: Final = 8
"""... and in its first quarter, in which a loss must show before many calls suffer from it."""
_GAP_S: Final = 0.010
"""Longest time between two returning callers."""


class BatchTuner:
    """`size` stays within 1 and `max_size`, `inflight` within 1 and `max_inflight`.

    The cost is a + b x tokens seconds, fitted by least squares with exponential forgetting over successful
    calls. An overload halves both limits, once for all calls sent before it. Each success then raises the
    size by a call and, once the size is restored, the number of batches in flight.

    In lockstep, `inflight` is half of `max_inflight`, and a free slot waits a moment for callers that were
    just answered together (`waits_for_returns`). An engine that serves its calls one after another does
    better with fewer, larger batches, and callers in step return in step.

    Merging begins and ends gradually. `narrow` lets as many calls pass as are present, and then fewer and
    fewer until `inflight` is reached: batches grow from single calls, and no caller waits for a whole round of
    the others. `widen` is the way back, as far as `widening` says.
    """

    __slots__ = (
        "_cut_at",
        "_ended",
        "_hurry_below",
        "_inflight_limit",
        "_max_inflight",
        "_max_size",
        "_n",
        "_restored_size",
        "_s",
        "_t",
        "_ts",
        "_tt",
        "_until",
        "inflight",
        "lockstep",
        "ramping",
        "size",
        "waits_for_returns",
    )

    def __init__(self, max_size: int, max_inflight: int) -> None:
        self._max_size = self.size = max_size
        self._max_inflight = self._inflight_limit = self.inflight = max_inflight
        self.lockstep = self.waits_for_returns = False
        self.ramping = False  # whether `inflight` is on its way to _until
        self._until = max_inflight
        self._restored_size = 1  # of the batches before `release`
        self._ended = 0  # calls, while ramping down
        self._hurry_below = 0.0  # slots
        self._cut_at = -math.inf
        # Weighted sums over the calls: of 1, tokens, seconds, and their products.
        self._n = self._t = self._s = self._tt = self._ts = 0.0

    def set_lockstep(self, enabled: bool) -> None:
        """Switch between lockstep and normal operation."""
        self.lockstep = enabled
        if not self.ramping:
            self.waits_for_returns = enabled
            self.inflight = self._target()
        elif not self.widening:
            self._until = self._target()

    @property
    def widening(self) -> bool:
        """Whether more and more calls pass, until all do."""
        return self.ramping and self._until > self._max_inflight

    def narrow(self, load: int) -> None:
        """Begin to merge while `load` calls are present."""
        self.size = max(self.size, self._restored_size)
        if self.widening or load <= self._target():
            self.end_ramp()  # not all of them pass yet, so the way back is short
        else:
            self.ramping, self.waits_for_returns = True, False
            self.inflight, self._until = load, self._target()
            self._hurry_below, self._ended = 0.75 * load, 0

    def widen(self, load: int) -> None:
        """Begin to let `load` calls pass, more and more of them singly."""
        if load > self._max_inflight:
            self.ramping, self.waits_for_returns = True, False
            self._until = load

    def release(self, load: int) -> None:
        """Merge no more: the calls that still wait leave singly, as soon as another ends."""
        self.ramping = self.waits_for_returns = self.lockstep = False
        self._restored_size, self.size = max(self.size, self._restored_size), 1
        self.inflight = max(load, self._target())

    def end_ramp(self) -> None:
        """Merge as usual from now on."""
        self.ramping, self.waits_for_returns = False, self.lockstep
        self.inflight = self._target()

    def _target(self) -> int:
        """The batches in flight of normal operation, or of lockstep."""
        limit = self._inflight_limit
        return min(limit, max(1, self._max_inflight // 2)) if self.lockstep else limit

    def _ramp(self) -> None:
        """Take a step after a call: one slot more, or one less after every few calls."""
        if self.widening:
            self.inflight += 1
            self.ramping = self.inflight < self._until
            return
        self._ended += 1
        every = _NARROW_EVERY if self.inflight < self._hurry_below else _NARROW_FIRST
        self.inflight -= self._ended % every == 0
        if self.inflight <= self._until:
            self.end_ramp()

    def cost(self, tokens: int) -> float:
        """Expected seconds of a call with `tokens`; 0.0 before the first success."""
        a, b = self._fit()
        return a + b * tokens

    def ended(self, calls: int, tokens: int, seconds: float, outcome: BatchOutcome, now: float) -> None:
        """Learn from an upstream call with `calls` members that ended `seconds` after it was sent."""
        if outcome == OK:
            self._n = self._n * _DECAY + 1.0
            self._t = self._t * _DECAY + tokens
            self._s = self._s * _DECAY + seconds
            self._tt = self._tt * _DECAY + tokens * tokens
            self._ts = self._ts * _DECAY + tokens * seconds
            if self.size < self._max_size:
                self.size += 1
            elif self._inflight_limit < self._max_inflight:
                self._inflight_limit += 1
                self.set_lockstep(self.lockstep)
        elif outcome == OVERLOADED and calls > 1 and now - seconds >= self._cut_at:
            self._cut_at, self._restored_size = now, 1
            self.end_ramp()
            self.size = max(1, min(self.size, calls) // 2)
            self._inflight_limit = self.inflight = max(1, self.inflight // 2)
        if self.ramping:
            self._ramp()

    def patience(self) -> tuple[float, float]:
        """Seconds to wait for the next returning caller, and for all: fractions of a call's duration."""
        mean = self._s / self._n if self._n else 0.0
        return min(_GAP_S, mean / 8), mean / 3

    def view(self) -> dict[str, float | int]:
        """Return `size`, `inflight`, `call_ms` (a) and `token_us` (b) for /admin/upstreams."""
        a, b = self._fit()
        return {
            "size": self.size,
            "inflight": min(self.inflight, self._max_inflight),
            "call_ms": round(a * 1e3, 3),
            "token_us": round(b * 1e6, 3),
        }

    def _fit(self) -> tuple[float, float]:
        """a and b, neither below zero."""
        n, t, s = self._n, self._t, self._s
        if not n:
            return 0.0, 0.0
        spread = n * self._tt - t * t
        if spread <= _MIN_SPREAD * n * self._tt:
            return s / n, 0.0
        b = max(0.0, (n * self._ts - t * s) / spread)
        a = (s - b * t) / n
        return (a, b) if a >= 0.0 else (0.0, self._ts / self._tt)
