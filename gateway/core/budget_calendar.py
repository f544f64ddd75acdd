"""Which day it is where budgets are counted, told by the monotonic clock.

Days begin at local midnight, so one in which the clocks are changed has 23 or 25 hours.
"""

import datetime
import math
from typing import Final
from zoneinfo import ZoneInfo

_HOLD: Final = 3600.0  # a wall clock that is set back by less than this does not bring yesterday back


class Calendar:
    """Turns monotonic seconds into days; one comparison a call, and real work once a day."""

    def __init__(self, tz: str, unix: float, monotonic: float) -> None:
        """`tz` is a time zone's name; `unix` and `monotonic` are seconds read at the same moment.

        ValueError, KeyError or OSError (zoneinfo's) for a name that is unknown.
        """
        # UTC needs no time zone database.
        self._zone: datetime.tzinfo = datetime.UTC if tz == "UTC" else ZoneInfo(tz)
        self._place(unix)
        self.anchor(unix, monotonic)

    def anchor(self, unix: float, monotonic: float) -> None:
        """Set it again by the wall clock, which may have been corrected.

        A day that has begun stays when that moves the clock back over midnight by less than an hour: else
        its money could be spent twice.
        """
        self._offset = unix - monotonic
        self._measure()

    def day(self, now: float) -> str:
        """The day at `now`, as `2026-11-29`."""
        if not self._earliest <= now < self._end:
            self._place(now + self._offset)
            self._measure()
        return self._day

    def left(self, now: float) -> float:
        """Seconds from `now` to the end of its day."""
        self.day(now)
        return self._end - now

    def before(self, now: float, days: int) -> str:
        """The day that lies `days` days before the one at `now`."""
        today = datetime.date.fromisoformat(self.day(now))
        return (today - datetime.timedelta(days=days)).isoformat()

    def _place(self, unix: float) -> None:
        """Find the day of a moment, and where it begins and ends."""
        date = datetime.datetime.fromtimestamp(math.floor(unix), self._zone).date()
        if unix >= self._midnight(_next(date)):  # set back over a midnight that was passed: it counts once
            date = _next(date)
        self._day = date.isoformat()
        self._begins, self._ends = self._midnight(date), self._midnight(_next(date))

    def _measure(self) -> None:
        self._earliest = self._begins - _HOLD - self._offset
        self._end = self._ends - self._offset

    def _midnight(self, date: datetime.date) -> float:
        """Unix seconds at which a date begins: the first of two midnights, or the jump over a missing one."""
        return datetime.datetime.combine(date, datetime.time.min, self._zone).timestamp()


def _next(date: datetime.date) -> datetime.date:
    return date + datetime.timedelta(days=1)
