"""Reads how long an upstream asks to wait: in its headers, or only in the words of its error."""

import math
import re
from calendar import timegm
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_S: Final = 86_400.0
"""Seconds; a longer wait counts as this one."""


def retry_after(headers: Mapping[str, str], unix_now: int) -> float | None:
    """Seconds to wait, or None. `retry-after-ms` wins; a date is relative to the answer's own `Date`.

    A value that is invalid, infinite, zero or in the past is ignored.
    """
    value = headers.get("retry-after")
    seconds = _wait(_number(headers.get("retry-after-ms"), 0.001))
    if seconds is None and value is not None:
        seconds = _wait(_number(value, 1.0))
        if seconds is None and (at := _date(value)) is not None:
            answered = _date(headers.get("date", ""))
            seconds = _wait(at - (unix_now if answered is None else answered))
    return seconds


_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?)\s*(?:(ms|milliseconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(s|secs?|seconds?))(?![a-z])",
    re.IGNORECASE,
)
_ADVICE: Final = re.compile(
    r"(?:(?:re)?try(?:ing)?(?: your request)?(?: again)?|wait(?:ing)?(?: for)?|available(?: again)?|resets?|reset)"
    r"(?: again)?(?: in| after| at least| for| about)*[:\s]+(?:another |approximately |~)?"
    r"((?:\d{1,9}(?:\.\d{1,9})?\s*(?:ms|milliseconds?|mins?|minutes?|m|hours?|hrs?|h|secs?|seconds?|s)"
    r"(?![a-z])[\s,]*(?:and )?)+)",
    re.IGNORECASE,
)
_SECONDS_BEFORE_RETRY: Final = re.compile(
    r"retry_?-?after(?:_?seconds)?[\"']?\s*[:=]\s*(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE
)
_MAX_SEARCHED: Final = 4000  # characters of a message


def wait_in_text(text: str) -> float | None:
    """Seconds from words such as `Please try again in 7.66s`, `retry after 1 minute`, `wait 250ms`; or None."""
    text = text[:_MAX_SEARCHED]
    if (advice := _ADVICE.search(text)) is not None:
        return _wait(sum(_seconds(part) for part in _PART.finditer(advice[1])))
    plain = _SECONDS_BEFORE_RETRY.search(text)
    return _wait(float(plain[1])) if plain is not None else None


def wait_of_delay(text: object) -> float | None:
    """Seconds from a duration of Google's (`37s`, `1.5s`) or a plain number; None from anything else."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _wait(float(text))
    if not isinstance(text, str):
        return None
    parts = list(_PART.finditer(text))
    if parts and not _PART.sub("", text).strip():
        return _wait(sum(map(_seconds, parts)))
    return _wait(_number(text, 1.0))


def _seconds(part: re.Match[str]) -> float:
    unit = "ms" if part[2] else "m" if part[3] else "h" if part[4] else "s"
    return float(part[1]) * _UNIT_S[unit]


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
    """Unix seconds of an HTTP date. A date without a zone is in GMT (RFC 9110, section 5.6.7)."""
    try:
        return timegm(parsedate_to_datetime(text).utctimetuple())
    except (ValueError, OverflowError):
        return None
