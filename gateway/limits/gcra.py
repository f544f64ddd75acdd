"""GCRA: a weighted per-minute rate limit with a burst of a whole minute and no window edges.

The generic cell rate algorithm of ITU-T I.371, in the form with a single number, the theoretical arrival
time. Equivalently a leaky bucket that `take` fills and time drains; its content is `used`. Units that were
reserved and not used can be returned while they are still in the bucket: after a refund the bucket holds at
least all that was taken later, so no window ever sees more than limit + rate x time.

Every call of a limited key runs through here, so the code compares instead of calling `max`, which costs more
than all the arithmetic.
"""

import math
from typing import Final

MINUTE: Final = 60.0
SLACK_S: Final = 1e-6
"""Seconds by which a call may be early: less than clocks resolve, more than float rounding."""


def whole(units: float) -> int:
    """Whole units of `units` >= 0; a unit short by a rounding error counts as whole."""
    return int(units + 1e-6)


class Meter:
    """Units of one kind. Times are monotonic seconds; `limit` is in units per minute and `burst` in units."""

    __slots__ = ("_full_s", "_unit_s", "admitted", "limit", "tat")

    def __init__(self, limit: float, burst: float | None = None) -> None:
        self.limit = limit
        self.tat = -math.inf  # theoretical arrival time: when the bucket will be empty
        self.admitted = 0.0  # total ever taken; marks a call's position in the bucket
        self._unit_s = MINUTE / limit
        self._full_s = (limit if burst is None else burst) * self._unit_s

    def used(self, now: float) -> float:
        """Units in the bucket; in debt, more than fit in it."""
        tat = self.tat
        return (tat - now) / self._unit_s if tat > now else 0.0

    def left(self, now: float) -> float:
        """Units that may be taken at once; never below 0."""
        tat = self.tat
        free_s = self._full_s - (tat - now) if tat > now else self._full_s
        return free_s / self._unit_s if free_s > 0.0 else 0.0

    def state(self, now: float) -> tuple[int, float]:
        """`left` in whole units, and `reset`."""
        reset = self.tat - now
        if reset < 0.0:
            reset = 0.0
        left = (self._full_s - reset) / self._unit_s
        return whole(left) if left > 0.0 else 0, reset

    def reset(self, now: float) -> float:
        """Seconds until the bucket is empty if nothing more is taken."""
        tat = self.tat
        return tat - now if tat > now else 0.0

    def wait(self, units: float, now: float) -> float:
        """Seconds until `units` fit; 0.0 means now, infinity never."""
        cost = units * self._unit_s
        if cost > self._full_s + SLACK_S:
            return math.inf
        tat = self.tat
        early = (tat if tat > now else now) + cost - now - self._full_s
        return early if early > SLACK_S else 0.0

    def take(self, units: float, now: float) -> float:
        """Put units into the bucket, whether they fit or not; returns the mark for `give_back`."""
        tat = self.tat
        self.tat = (tat if tat > now else now) + units * self._unit_s
        self.admitted += units
        return self.admitted

    def give_back(self, unused: float, mark: float, now: float) -> None:
        """Return units that a call reserved and did not use, as far as they have not drained yet."""
        refund = self.used(now) - (self.admitted - mark)  # what is left of the units taken up to the mark
        if refund > unused:
            refund = unused
        if refund > 0:
            self.tat -= refund * self._unit_s
