"""How often something has happened lately, in ten numbers."""

from collections import deque
from typing import Final

SPAN_S: Final = 10
"""Seconds that are looked back upon. They are counted by the second, so that up to one less is seen."""


class RollingCounter:
    """Counts what happened in the last SPAN_S seconds. `now` is in monotonic seconds and never goes back."""

    __slots__ = ("_before", "_end", "_latest", "_older")

    def __init__(self) -> None:
        self._before = 0  # all of them, without the latest second
        self._end = 0.0  # of the second that is being counted
        self._latest = 0
        self._older = deque([0], maxlen=SPAN_S - 1)

    def add(self, now: float) -> None:
        """It has happened."""
        if now >= self._end:
            self._turn(now)
        self._latest += 1

    def count(self, now: float) -> int:
        """How often it has happened."""
        if now >= self._end:
            self._turn(now)
        return self._latest + sum(self._older)

    @property
    def ever(self) -> int:
        """How often it has happened since the beginning."""
        return self._before + self._latest

    def _turn(self, now: float) -> None:
        begun = int(now - self._end) + 1
        self._older.append(self._latest)
        self._older.extend([0] * min(begun - 1, SPAN_S))
        self._before += self._latest
        self._latest = 0
        self._end += begun
