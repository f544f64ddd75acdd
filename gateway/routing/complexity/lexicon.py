"""The lists of words in `lexicon.txt`: cues by feature, and those that weigh nothing."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import compress, repeat
from string import punctuation
from typing import Final

_NEUTRAL: Final = "neutral"


def _read() -> dict[str, list[str]]:
    """The words of every section."""
    words: list[str] = []
    sections: dict[str, list[str]] = {}
    for line in files("gateway.routing.complexity").joinpath("lexicon.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            words = sections[line.strip("[]")] = []
        elif not line.startswith("#"):
            words += line.split()
    return sections


CUES: Final = _read()
NEUTRAL: Final = frozenset(CUES.pop(_NEUTRAL))

WIDE_LETTERS: Final = 2.0
"""Letters of English that say as much as one Hangul syllable, Han or kana character."""

FIRST_WIDE: Final = "\u1100"
"""Words that begin with this or a later character are known by their first two."""

NO_CUES: Final = (0, 1)
"""The kinds of neutral words, and of those that no list knows."""

_CUES: Final = [(word, group) for group, words in enumerate(CUES.values()) for word in words]
_KINDS: Final = dict.fromkeys(NEUTRAL, 0) | {word: kind for kind, (word, _) in enumerate(_CUES, len(NO_CUES))}
GROUPS: Final = (-1, -1, *[group for _, group in _CUES])
"""By kind: the number of its list in `CUES`."""

_BLANK: Final = bytes([*range(ord("0")), *punctuation.encode(), 0x7F])
_BLANKS: Final = bytes.maketrans(_BLANK, b" " * len(_BLANK))
_WIDE_BLANK: Final = re.compile("[\x80-\xbf×÷\u2000-\u2bff\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]")


def spaced(text: str) -> str:
    """The same with a space for each character that is in no word; as long as before."""
    if not text.isascii():
        text = _WIDE_BLANK.sub(" ", text)
    # A table of bytes is several times faster than one of characters.
    return text.encode("utf-8", "replace").translate(_BLANKS).decode()


def kinds(words: Iterable[str], ascii_only: bool) -> Iterable[int]:
    """What each word is: each cue has a number of its own, neutral words have 0."""
    if ascii_only:
        return map(_KINDS.get, words, repeat(1))
    return [_KINDS.get(word[:2] if word >= FIRST_WIDE else word, 1) for word in words]


def letters(words: Sequence[str], known: Sequence[int]) -> float:
    """The length of these words in letters of English, `known` being their kinds; neutral ones have none."""
    said = "".join(compress(words, known))
    wide = (len(said.encode("utf-8", "replace")) - len(said)) // 2  # these take three bytes each
    return len(said) + (WIDE_LETTERS - 1) * wide
