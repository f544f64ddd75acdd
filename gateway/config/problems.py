"""Problems of a config: where they are and what to do, on one line each, without any secret."""

import difflib
from collections.abc import Iterable
from typing import Final, NamedTuple

_LONGEST: Final = 60


class Problem(NamedTuple):
    """One mistake: its path, such as `models.auto.candidates[1].upstream`, and what to do about it."""

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
    """The path of a field or named entry below `path`."""
    return f"{path}.{plain(name)}" if path else plain(name)


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like a wrong one, case aside; None when none is near."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong[:_LONGEST].lower(), names, n=1, cutoff=0.6)
    return names[close[0]] if close else None


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean "small"?` when a known name is near, `""` when none is."""
    name = nearest(wrong, known)
    return f"; did you mean {quoted(name)}?" if name is not None else ""
