"""The lists of words in `lexicon.txt`: cues by feature, and those that weigh nothing."""

from importlib.resources import files
from typing import Final

_NEUTRAL: Final = "neutral"


def _read() -> dict[str, list[str]]:
    """The words of every section."""
    words: list[str] = []
    sections: dict[str, list[str]] = {}
    for line in files("gateway.complexity").joinpath("lexicon.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            words = sections[line.strip("[]")] = []
        elif not line.startswith("#"):
            words += line.split()
    return sections


CUES: Final = _read()
NEUTRAL: Final = frozenset(CUES.pop(_NEUTRAL))
