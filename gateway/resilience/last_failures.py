"""What an operator asks about an upstream: does every call fail, and what did the last one die of?"""

from typing import Final

_SEVERAL: Final = 3
"""Failures in a row that mean something although the upstream has answered before."""


class LastFailures:
    """The last failure of an upstream, and whether anything has been answered since. Times are monotonic."""

    __slots__ = ("_answered", "_in_a_row", "at", "sentence", "unanswered")

    def __init__(self) -> None:
        self.at = 0.0
        self.sentence = ""
        """Why the last failed attempt failed; empty while none has."""
        self.unanswered = True
        """Whether nothing has been answered since the last failure, or at all."""
        self._answered = False
        self._in_a_row = 0

    @property
    def failing(self) -> bool:
        """Whether every call fails: all of them so far, or several in a row."""
        return self._in_a_row >= (_SEVERAL if self._answered else 1)

    def failed(self, now: float, sentence: str) -> None:
        """An attempt has failed, and the upstream or its account is at fault."""
        self.at, self.sentence = now, sentence
        self._in_a_row += 1
        self.unanswered = True

    def answered(self) -> None:
        """A call has been answered to its end."""
        self._answered, self._in_a_row, self.unanswered = True, 0, False
