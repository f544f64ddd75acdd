"""Logs a repeated event once a minute for each subject, with the number of times that it happened."""

from typing import Final

PERIOD_S: Final = 60.0
_MOST: Final = 1024


class Sampled:
    """Counts events by subject, such as a client's address. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}  # when the subject is due again, and what is not logged yet

    def count(self, subject: str, now: float) -> int:
        """Count one event. Returns how many to log now, 0 while the subject is not due."""
        due, unlogged = self._seen.get(subject, (now, 0))
        if now < due:
            self._seen[subject] = due, unlogged + 1
            return 0
        if subject not in self._seen and len(self._seen) >= _MOST:
            del self._seen[next(iter(self._seen))]
        self._seen[subject] = now + PERIOD_S, 0
        return unlogged + 1
