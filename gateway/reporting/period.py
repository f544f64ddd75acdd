"""The days of a report."""

import argparse
import datetime
from typing import NamedTuple

DAYS = 30
LONGEST = 3660


class PeriodError(ValueError):
    """These days cannot be reported; the text says why."""


class Period(NamedTuple):
    """From the first to the last day, both included, as `2026-11-29`, in a time zone."""

    first: str
    last: str
    zone: str = "UTC"

    @property
    def days(self) -> int:
        """How many."""
        return (_date(self.last) - _date(self.first)).days + 1


def last_days(text: str, today: str, zone: str) -> Period:
    """So many days, today included. PeriodError for what is no number of days."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LONGEST):
        raise PeriodError(f"days must be a whole number from 1 to {LONGEST}")
    return Period((_date(today) - datetime.timedelta(int(text) - 1)).isoformat(), today, zone)


def between(first: str | None, last: str | None, today: str, zone: str) -> Period:
    """From one day to another, by default 30 days up to today. PeriodError for days in the wrong order."""
    end = last or today
    begin = first or (_date(end) - datetime.timedelta(DAYS - 1)).isoformat()
    if begin > end:
        raise PeriodError(f"--from {begin} is after --to {end}")
    period = Period(begin, end, zone)
    if period.days > LONGEST:
        raise PeriodError(f"a report covers at most {LONGEST} days")
    return period


def day(text: str) -> str:
    """A day as it is written, for argparse."""
    try:
        return _date(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError("give a day such as 2026-11-29") from None


def _date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)
