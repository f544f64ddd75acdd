"""What an operator asks about an upstream: does every call fail, and what did the last one die of?"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_SEVERAL: Final = 3
"""Failures in a row that mean something although the upstream has answered before."""
_NEVER: Final = float("-inf")


class FailureRun(Struct, frozen=True):
    """The failures of one process since its last answer: how many, and when the first and the last one were.

    `answered_at` is when a call was answered last. All times are of one clock, None for never.
    """

    count: int = 0
    first_at: float | None = None
    last_at: float | None = None
    answered_at: float | None = None

    @property
    def failing(self) -> bool:
        """Whether every call fails: all of them so far, or several in a row."""
        return self.count >= (1 if self.answered_at is None else _SEVERAL)

    def moved(self, seconds: float) -> "FailureRun":
        """The same on a clock that is ahead by so much."""
        moments = (self.first_at, self.last_at, self.answered_at)
        return FailureRun(self.count, *(None if moment is None else moment + seconds for moment in moments))

    def since(self, moment: float) -> int:
        """How many failures are known to be later than a moment."""
        if not self.count or self.first_at is None or self.last_at is None:
            return 0
        return self.count if self.first_at > moment else int(self.last_at > moment)


def combined_run(runs: Iterable[FailureRun]) -> FailureRun:
    """What several processes have seen, as if they were one."""
    runs = list(runs)
    answered_at = max((run.answered_at for run in runs if run.answered_at is not None), default=None)
    since = _NEVER if answered_at is None else answered_at
    later = [run for run in runs if run.since(since)]
    return FailureRun(
        sum(run.since(since) for run in later),
        min((run.first_at for run in later if run.first_at is not None and run.first_at > since), default=None),
        max((run.last_at for run in runs if run.last_at is not None), default=None),
        answered_at,
    )


class LastFailures:
    """The failures of an upstream since it last answered. Times are monotonic."""

    __slots__ = ("_run", "answered_at", "sentence", "unanswered")

    def __init__(self) -> None:
        self.sentence = ""
        """Why the last failed attempt failed; empty while none has."""
        self.unanswered = True
        """Whether nothing has been answered since the last failure, or at all."""
        self.answered_at: float | None = None
        """When a call was answered last; whoever answers a call sets it, with or without calling `answered`."""
        self._run = FailureRun()

    @property
    def run(self) -> FailureRun:
        """The failures since the last answer."""
        return replace(self._run, answered_at=self.answered_at)

    def failed(self, now: float, sentence: str) -> None:
        """An attempt has failed, and the upstream or its account is at fault."""
        before = self._run
        self._run = FailureRun(before.count + 1, before.first_at if before.count else now, now)
        self.sentence = sentence
        self.unanswered = True

    def answered(self, now: float) -> None:
        """A call has been answered to its end."""
        self.answered_at = now
        self._run = replace(self._run, count=0)
        self.unanswered = False
