"""What is wrong with a config and where, in words that fit on one line and quote no secret."""

import difflib
from collections.abc import Iterable
from typing import Final, NamedTuple

_LONGEST: Final = 60


class Problem(NamedTuple):
    """One mistake: its place, such as `models.auto.candidates[1].upstream`, and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def quoted(text: str) -> str:
    """The user's text in quotes, on one line, cut when long."""
    return f'"{plain(text)}"'


def plain(text: str) -> str:
    """The user's text on one line, with unprintable characters escaped, cut when long."""
    return printable(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")


def printable(text: str) -> str:
    """The text on one line, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def join(path: str, name: str) -> str:
    """The place of a field or named entry below `path`."""
    return f"{path}.{plain(name)}" if path else plain(name)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean "port"?` when a known name is close, `""` when none is."""
    close = difflib.get_close_matches(wrong[:_LONGEST], list(known), n=1, cutoff=0.6)
    return f"; did you mean {quoted(close[0])}?" if close else ""
