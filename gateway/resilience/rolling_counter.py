"""A rolling count of events, in ten one-second buckets."""

from collections import deque
from typing import Final

SPAN_S: Final = 10
"""Length of the window in seconds; as it moves by whole seconds, up to one second less is counted."""


class RollingCounter:
    """Counts the events of the last SPAN_S seconds. `now` is in monotonic seconds and never goes back."""

    __slots__ = ("_before", "_end", "_latest", "_older")

    def __init__(self) -> None:
        self._before = 0  # events before the latest second
        self._end = 0.0  # of the latest second
        self._latest = 0
        self._older = deque([0], maxlen=SPAN_S - 1)

    def add(self, now: float) -> None:
        """Counts one event."""
        if now >= self._end:
            self._advance(now)
        self._latest += 1

    def count(self, now: float) -> int:
        """The events in the window."""
        if now >= self._end:
            self._advance(now)
        return self._latest + sum(self._older)

    @property
    def total(self) -> int:
        """The events since the beginning."""
        return self._before + self._latest

    def _advance(self, now: float) -> None:
        seconds = int(now - self._end) + 1
        self._older.append(self._latest)
        self._older.extend([0] * min(seconds - 1, SPAN_S))
        self._before += self._latest
        self._latest = 0
        self._end += seconds
