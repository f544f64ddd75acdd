"""The calendar of budgets: maps the monotonic clock to days in the configured time zone.

Days begin at local midnight, so a day with a clock change has 23 or 25 hours.
"""

import datetime
import math
from typing import Final
from zoneinfo import ZoneInfo

_HOLD: Final = 3600.0  # seconds; a wall clock set back by less than this does not return to yesterday


class Calendar:
    """Turns monotonic seconds into days. A lookup is one comparison; the real work happens once a day."""

    def __init__(self, tz: str, unix: float, monotonic: float) -> None:
        """`tz` is a time zone's name; `unix` and `monotonic` are seconds read at the same moment.

        Raises zoneinfo's ValueError, KeyError or OSError for an unknown name.
        """
        # UTC needs no time zone database.
        self._zone: datetime.tzinfo = datetime.UTC if tz == "UTC" else ZoneInfo(tz)
        self._place(unix)
        self.anchor(unix, monotonic)

    def anchor(self, unix: float, monotonic: float) -> None:
        """Realign with the wall clock, which may have been corrected.

        A correction of less than an hour back over midnight does not reopen yesterday: its budget could be
        spent twice.
        """
        self._offset = unix - monotonic
        self._measure()

    def unix(self, now: float) -> float:
        """Seconds since 1970 at `now`."""
        return now + self._offset

    def day(self, now: float) -> str:
        """The day at `now`, as `2026-11-29`."""
        if not self._earliest <= now < self._end:
            self._place(now + self._offset)
            self._measure()
        return self._day

    def left(self, now: float) -> float:
        """Seconds from `now` until that day ends."""
        self.day(now)
        return self._end - now

    def before(self, now: float, days: int) -> str:
        """The date `days` days before the day at `now`."""
        today = datetime.date.fromisoformat(self.day(now))
        return (today - datetime.timedelta(days=days)).isoformat()

    def _place(self, unix: float) -> None:
        """Set the day that contains a Unix time, and its bounds."""
        date = datetime.datetime.fromtimestamp(math.floor(unix), self._zone).date()
        if unix >= self._midnight(_next(date)):  # the clock was set back over a midnight already passed
            date = _next(date)
        self._day = date.isoformat()
        self._begins, self._ends = self._midnight(date), self._midnight(_next(date))

    def _measure(self) -> None:
        self._earliest = self._begins - _HOLD - self._offset
        self._end = self._ends - self._offset

    def _midnight(self, date: datetime.date) -> float:
        """Unix seconds at which a date begins: the first of two midnights, or the gap that skips midnight."""
        return datetime.datetime.combine(date, datetime.time.min, self._zone).timestamp()


def _next(date: datetime.date) -> datetime.date:
    return date + datetime.timedelta(days=1)
