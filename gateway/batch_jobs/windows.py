"""When a batch may run and when it must be done: completion windows and hours of the day."""

from typing import Final

from gateway.core.units import parse_duration

LONGEST_S: Final = 366 * 86400


def parse_window(text: object) -> int:
    """Seconds of a completion window: `24h`, or any other duration. ValueError says what is allowed."""
    try:
        seconds = parse_duration(text) if isinstance(text, str) else 0.0
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= LONGEST_S:
        raise ValueError("must be a duration from 1s to 366d, such as 24h")
    return int(seconds)


class OpenHours:
    """The hours of a day in which lines may be sent, such as `20:00-07:00`."""

    def __init__(self, text: str) -> None:
        self._begin, self._end = (_minute(time) for time in text.split("-"))

    def open(self, minute: int) -> bool:
        """Whether lines may be sent in this minute of the day, from 0 to 1439, local time."""
        if self._begin < self._end:
            return self._begin <= minute < self._end
        return minute >= self._begin or minute < self._end


def _minute(time: str) -> int:
    hours, minutes = time.split(":")
    return 60 * int(hours) + int(minutes)


def late(now: float, began: float, done: int, total: int, expires: float) -> bool:
    """Whether a batch that began at `began` will not be done by `expires` if it goes on at its mean pace.

    In its first tenth it is too early to tell.
    """
    if done >= total or now - began < 0.1 * (expires - began):
        return False
    if not done:
        return True
    return began + (now - began) * total / done > expires
