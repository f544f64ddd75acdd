"""How long an upstream asks us to wait: seconds, milliseconds, fractions, dates; nonsense is nothing."""

import math
from calendar import timegm
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_S: Final = 86_400.0
"""A longer wait counts as this one: nobody waits for either, but neither may be cut to nothing."""


def retry_after(headers: Mapping[str, str], unix_now: int) -> float | None:
    """Seconds to wait, or None. `retry-after-ms` wins; a date counts from the answer's own `Date`.

    What is no number, no date, not finite, in the past or zero is no advice.
    """
    told = headers.get("retry-after")
    seconds = _wait(_number(headers.get("retry-after-ms"), 0.001))
    if seconds is None and told is not None:
        seconds = _wait(_number(told, 1.0))
        if seconds is None and (at := _date(told)) is not None:
            answered = _date(headers.get("date", ""))
            seconds = _wait(at - (unix_now if answered is None else answered))
    return seconds


def _wait(seconds: float | None) -> float | None:
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return None
    return min(seconds, LONGEST_S)


def _number(text: str | None, scale: float) -> float | None:
    try:
        return float(text) * scale if text is not None else None
    except ValueError:
        return None


def _date(text: str) -> int | None:
    """Unix seconds. A date without a zone is in GMT, as HTTP's own are (RFC 9110, section 5.6.7)."""
    try:
        return timegm(parsedate_to_datetime(text).utctimetuple())
    except (ValueError, OverflowError):
        return None
