"""The days of a report."""

import argparse
import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAYS = 30
MAX_DAYS = 3660


class PeriodError(ValueError):
    """The days are invalid; the message says why."""


class Period(NamedTuple):
    """The days from `first` to `last`, both included, as `2026-11-29`, in a time zone."""

    first: str
    last: str
    zone: str = "UTC"

    @property
    def days(self) -> int:
        """Number of days."""
        return (_date(self.last) - _date(self.first)).days + 1

    @property
    def begins(self) -> float:
        """Unix seconds at which the first day begins."""
        return self._midnight(_date(self.first))

    @property
    def ends(self) -> float:
        """Unix seconds at which the last day ends."""
        return self._midnight(_date(self.last) + datetime.timedelta(1))

    def _midnight(self, date: datetime.date) -> float:
        zone = datetime.UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        return datetime.datetime.combine(date, datetime.time.min, zone).timestamp()


def last_days(text: str, today: str, zone: str) -> Period:
    """Return the last N days, today included. Raises PeriodError if `text` is not a number of days."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_DAYS):
        raise PeriodError(f"days must be a whole number from 1 to {MAX_DAYS}")
    return Period((_date(today) - datetime.timedelta(int(text) - 1)).isoformat(), today, zone)


def between(first: str | None, last: str | None, today: str, zone: str) -> Period:
    """Return the days from `first` to `last`; default: 30 days up to today. Raises PeriodError."""
    end = last or today
    begin = first or (_date(end) - datetime.timedelta(DAYS - 1)).isoformat()
    if begin > end:
        raise PeriodError(f"--from {begin} is after --to {end}")
    period = Period(begin, end, zone)
    if period.days > MAX_DAYS:
        raise PeriodError(f"a report covers at most {MAX_DAYS} days")
    return period


def day(text: str) -> str:
    """Parse a day for argparse."""
    try:
        return _date(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError("give a day such as 2026-11-29") from None


def _date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)
