"""How long an upstream asks us to wait: seconds, milliseconds, fractions, dates; nonsense is nothing."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_S: Final = 86_400.0
"""A longer wait is taken for nonsense."""


def retry_after(headers: Mapping[str, str], unix_now: int) -> float | None:
    """Seconds to wait, or None. `retry-after-ms` wins; a date counts from the answer's own `Date`."""
    seconds = _number(headers.get("retry-after-ms"), 0.001)
    if seconds is None:
        told = headers.get("retry-after")
        seconds = _number(told, 1.0)
        if seconds is None and told is not None:
            at, now = _date(told), _date(headers.get("date", ""))
            seconds = None if at is None else at - (unix_now if now is None else now)
    return seconds if seconds is not None and 0 < seconds <= LONGEST_S else None


def _number(text: str | None, scale: float) -> float | None:
    try:
        return float(text) * scale if text is not None else None
    except ValueError:
        return None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
