"""How many lines may be under way: only as many as live calls leave room for.

Lines are sent only into free permits, so that they do not wait in the gateway's queues, where they would age
into the class of live calls. As many permits as live calls have needed at once lately stay free, and of the others
lines take only a part while there are live calls.
"""

import math
from typing import Final, NamedTuple

from msgspec import Struct

MOST_LINES: Final = 512
"""Lines under way in one process."""
_MEMORY_S: Final = 30.0
_MERGE_WEIGHT: Final = 0.1
_BESIDE_LIVE: Final = 4
"""Beside live calls, lines take one in so many of the permits that are left."""
_MERGED: Final = 1.05
_GROWTH: Final = 1.5


class Admission(NamedTuple):
    """What the admission of live calls knows about an upstream: permits, those that live calls hold, and all calls
    that wait, lines included.
    """

    permits: int
    live: int
    waiting: int
    paced: bool = False
    """Its rate lets nothing go now."""


class LivePeak(Struct):
    """The permits that live calls have needed at once; a peak fades within half a minute."""

    level: float = 0.0
    at: float = 0.0

    def note(self, live: int, now: float) -> float:
        """The peak after `live` permits are needed now."""
        faded = self.level * max(0.0, 1 - (now - self.at) / _MEMORY_S)
        if live >= faded:
            self.level, self.at = float(live), now
            return self.level
        return faded


class LinesPerPermit(Struct):
    """How many lines share a permit where calls are merged: a mean over the last ones."""

    mean: float = 1.0

    def note(self, size: int) -> None:
        """Count a line whose upstream call carried `size` callers (0 and 1: it was not merged)."""
        self.mean += _MERGE_WEIGHT * (max(1, size) - self.mean)


class UpstreamRoom:
    """The room at one upstream. Permits that lines hold count as their lines divided by `per_permit`."""

    def __init__(self) -> None:
        self.lines = 0  # under way
        self.per_permit = LinesPerPermit()
        self._peak = LivePeak()

    def free(self, admission: Admission, now: float) -> int:
        """How many more lines may be sent now."""
        live = admission.live + max(0, admission.waiting - self.lines)
        reserve = math.ceil(self._peak.note(live, now))
        if admission.paced:
            return 0
        allowed = max(0, admission.permits - max(reserve, live))
        if reserve:
            # What runs beside live calls slows them, in the engine and here, whether or not it shares permits.
            return max(0, min(MOST_LINES, allowed and max(1, allowed // _BESIDE_LIVE)) - self.lines)
        merged = self.per_permit.mean
        # Where lines are merged, some more than fit now let the next calls grow.
        most = min(MOST_LINES, math.floor(allowed * (merged * _GROWTH if merged > _MERGED else 1.0)))
        return max(0, most - self.lines)
