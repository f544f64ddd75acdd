"""A limit on the calls in flight that finds itself: additive increase, multiplicative decrease.

It grows while calls wait for it and nothing suffers: first by doubling, from the first congestion on by a few a
second. It shrinks at once when the engine queues or preempts calls or, with a server that tells neither, when the
time to the first token (per prompt token) or the time between tokens is a multiple of what it is when not full.
"""

import math
from statistics import median
from typing import Final

FIRST: Final = 64
CEILING: Final = 1024
PERIOD_S: Final = 1.0
"""The limit changes at most once in this many seconds."""
STALE_S: Final = 3.0
"""Older readings of an engine freeze the limit."""
DECREASE: Final = 0.8
_INCREASE: Final = 4.0
_SLOW_FIRST_TOKEN: Final = 4.0
_SLOW_TOKENS: Final = 4.0
_PROMPT_OFFSET: Final = 200  # tokens whose prefill takes about as long as what every call costs
_QUICK_S: Final = 0.1  # times to a first token below this are no sign of a queue
_ENOUGH: Final = 5
_BASE_FADES: Final = 1.002  # a second: what was fast once is forgotten, as load and lengths change
_WAITING: Final = 0.1  # the part of the calls in flight that may wait inside the engine
_FEW_WAITING: Final = 5  # so many may wait in any case: for their prefill, not for a slot


class EngineReading:
    """What an engine's metrics say: calls `running` and `waiting` in it, and calls `preempted` since it started."""

    __slots__ = ("at", "preempted", "running", "waiting")

    def __init__(self, running: int, waiting: int, preempted: int, at: float) -> None:
        self.running = running
        self.waiting = waiting
        self.preempted = preempted
        self.at = at


class _Pace:
    """Samples of one period against the best that a period has shown."""

    __slots__ = ("best", "samples")

    def __init__(self) -> None:
        self.best = math.inf
        self.samples: list[float] = []

    def closed(self, periods: float) -> float | None:
        """This period's median as a multiple of the best; None with too few samples, which stay for the next."""
        if len(self.samples) < _ENOUGH:
            return None
        seen, self.samples = median(self.samples), []
        self.best = min(seen, self.best * _BASE_FADES**periods)
        return seen / self.best if self.best > 0.0 else 1.0


class ConcurrencyLimit:
    """The limit of one upstream in one process, between 1 and `ceiling`. `now` is in monotonic seconds."""

    def __init__(self, ceiling: int = CEILING, first: int = FIRST) -> None:
        self._ceiling = ceiling
        self._first = self._value = float(min(first, ceiling))
        self._probing = True  # no congestion yet
        self._first_token = _Pace()
        self._between = _Pace()
        self._slow_first_token = 0  # samples of this period that are slow by the clock too
        self._changed_at = -math.inf
        self._reading: EngineReading | None = None
        self._preempted = False
        self._saturated = False

    @property
    def value(self) -> int:
        """The calls that may be in flight."""
        return int(self._value)

    def restart(self) -> None:
        """Learn anew: the engine has restarted."""
        self._value, self._probing = self._first, True
        self._first_token, self._between = _Pace(), _Pace()

    def answered(self, first_token_s: float, prompt: int, between_s: float | None) -> None:
        """Learn from a stream: seconds to its first token, its prompt's tokens, seconds between its tokens."""
        self._first_token.samples.append(first_token_s / (prompt + _PROMPT_OFFSET))
        self._slow_first_token += first_token_s > _QUICK_S
        if between_s is not None:
            self._between.samples.append(between_s)

    def read(self, reading: EngineReading) -> bool:
        """Take the engine's metrics; return whether calls were preempted since the last ones."""
        before, self._reading = self._reading, reading
        if before is not None and reading.preempted < before.preempted:
            self.restart()
            return False
        preempted = before is not None and reading.preempted > before.preempted
        self._preempted = self._preempted or preempted
        return preempted

    def refused(self, in_flight: int, now: float) -> None:
        """The engine has refused a call because it is full: with one call less it was not."""
        self._probing = False
        self._value = max(1.0, min(self._value, in_flight - 1))
        self._changed_at = now

    def waited(self) -> None:
        """A call has waited for the limit, so that a higher one would be used."""
        self._saturated = True

    def adjust(self, in_flight: int, now: float) -> bool:
        """Change the limit if it is time; return whether it has changed."""
        if now - self._changed_at < PERIOD_S:
            return False
        reading, periods = self._reading, min(60.0, now - self._changed_at)
        if reading is not None and now - reading.at > STALE_S:
            return False
        self._changed_at = now
        before, saturated, preempted = self.value, self._saturated, self._preempted
        self._saturated = self._preempted = False
        several = 2 * self._slow_first_token > len(self._first_token.samples)
        first_token, between = self._first_token.closed(periods), self._between.closed(periods)
        self._slow_first_token = 0 if first_token is not None else self._slow_first_token
        queued = 0 if reading is None or reading.waiting <= max(_FEW_WAITING, _WAITING * in_flight) else reading.waiting
        # An engine that tells what waits in it needs no guess: its times grow with long prompts too.
        slow = reading is None and (
            (first_token is not None and several and first_token > _SLOW_FIRST_TOKEN)
            or (between is not None and between > _SLOW_TOKENS)
        )
        if queued or preempted or slow:
            self._probing = False
            used = min(self._value, max(1.0, float(in_flight)))
            self._value = max(1.0, max(used - queued, 0.5 * used) if queued else DECREASE * used)
        elif saturated:
            step = self._value if self._probing else max(_INCREASE, 0.02 * self._value)
            self._value = min(float(self._ceiling), self._value + step)
        return self.value != before
