"""How much a key may use per minute: GCRA, weighted, with a burst of one whole minute and no window edges.

The meter is the generic cell rate algorithm of ITU-T I.371 in the form with one number, the theoretical
arrival time. Seen the other way round it is a bucket that `take` fills and time drains; what stands in it is
`used`. What was reserved and not used may go back, as long as it is still in the bucket: after a refund the
bucket holds at least all that was taken later, so that no window ever sees more than limit + rate x time.

Every call of a limited key runs through here, so the larger of two is told by a comparison: `max` costs more
than all the arithmetic.
"""

import math
from typing import Final

MINUTE: Final = 60.0
SLACK_S: Final = 1e-6
"""Seconds by which a call may be early: less than a clock shows, more than floats err."""


def whole(units: float) -> int:
    """Whole units, of 0 or more; what is a rounding error short of one counts as one."""
    return int(units + 1e-6)


class Meter:
    """Units of one kind. Times are monotonic seconds; `limit` is in units per minute and `burst` in units."""

    __slots__ = ("_full_s", "_unit_s", "admitted", "limit", "tat")

    def __init__(self, limit: float, burst: float | None = None) -> None:
        self.limit = limit
        self.tat = -math.inf  # when the bucket will be empty
        self.admitted = 0.0  # all that was ever taken: marks a call's place in the bucket
        self._unit_s = MINUTE / limit
        self._full_s = (limit if burst is None else burst) * self._unit_s

    def used(self, now: float) -> float:
        """Units in the bucket; after a debt more than fit in it."""
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
        """Seconds until so many units fit; 0.0 means now, infinity never."""
        cost = units * self._unit_s
        if cost > self._full_s + SLACK_S:
            return math.inf
        tat = self.tat
        early = (tat if tat > now else now) + cost - now - self._full_s
        return early if early > SLACK_S else 0.0

    def take(self, units: float, now: float) -> float:
        """Put units into the bucket, whether they fit or not; gives the mark for `give_back`."""
        tat = self.tat
        self.tat = (tat if tat > now else now) + units * self._unit_s
        self.admitted += units
        return self.admitted

    def give_back(self, unused: float, mark: float, now: float) -> None:
        """Take out what a call reserved and did not use, as far as it has not drained yet."""
        refund = self.used(now) - (self.admitted - mark)  # the rest of what was taken before has drained
        if refund > unused:
            refund = unused
        if refund > 0:
            self.tat -= refund * self._unit_s
