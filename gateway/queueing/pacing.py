"""Paces calls to an upstream that states a rate, so that it never has to reject one.

A call must satisfy two rules: a meter that spreads calls evenly with a burst of one second's worth (GCRA), and
an exact sliding window of the last minute.
"""

import math

from gateway.limits.gcra import Meter
from gateway.limits.sliding_window import Window


class Pace:
    """The pace of one upstream. `rpm` and `tpm` are this process's share; None is no limit.

    `now` must never go back. `largest` is the most tokens that a single call may need.
    """

    __slots__ = ("_calls", "_rpm", "_token_burst", "_tokens", "_tpm", "_window", "largest")

    def __init__(self, rpm: float | None, tpm: float | None) -> None:
        self._rpm = math.inf if rpm is None else rpm
        self._tpm = math.inf if tpm is None else tpm
        self.largest = self._tpm
        self._calls = None if rpm is None else Meter(rpm, max(1.0, rpm / 60))
        self._token_burst = max(1.0, self._tpm / 60)
        self._tokens = None if tpm is None else Meter(tpm, self._token_burst)
        self._window = Window(rpm, tpm)

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a call of `tokens` may go; 0.0 is now, `math.inf` never."""
        if tokens > self.largest:
            return math.inf
        wait = self._window.wait(tokens, now)
        if self._calls is not None:
            wait = max(wait, self._calls.wait(1.0, now))
        if self._tokens is not None:
            # A call larger than the burst goes when the meter is empty, and leaves it in debt.
            wait = max(wait, self._tokens.wait(min(tokens, self._token_burst), now))
        return wait

    def note(self, tokens: int, now: float) -> None:
        """Count a call that was sent."""
        self._window.note(tokens, now)
        if self._calls is not None:
            self._calls.take(1.0, now)
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def drain_time(self, calls: int, tokens: float) -> float:
        """Seconds that `calls` with `tokens` in total take at the stated rate."""
        return 60.0 * max(calls / self._rpm, tokens / self._tpm)
