"""The word lists of `lexicon.txt`: cue words by feature, and neutral words."""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import compress, repeat
from string import punctuation
from typing import Final

_NEUTRAL: Final = "neutral"
_AS_WRITTEN: Final = "="
_VOWELS: Final = frozenset("aeiou")

HARD: Final = (
    "proof words",
    "building words",
    "analysis words",
    "mathematics words",
    "science words",
    "code words",
)
"""Lists whose words never lower a score. They add no length: a word counts once."""


def _read() -> dict[str, list[str]]:
    """Return the words of every section, with their inflections."""
    words: dict[str, None] = {}
    sections: dict[str, dict[str, None]] = {}
    inflected = True
    for line in files("gateway.routing.complexity").joinpath("lexicon.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            words, inflected = sections.setdefault(line.strip("[]"), {}), True
        elif not line.startswith("#"):
            for word in line.split():
                if word == _AS_WRITTEN:
                    inflected = False
                    continue
                words[word] = None
                if inflected and word.isascii():
                    words.update(dict.fromkeys(inflections(word)))
    return {name: [*listed] for name, listed in sections.items()}


def inflections(word: str) -> Iterator[str]:
    """Yield the regular forms of an English verb or noun; those that do not exist do no harm."""
    stem, last = word[:-1], word[-1]
    if last == "e":
        yield from (f"{word}s", f"{word}d", f"{stem}ing")
        if word.endswith(("ise", "yse")):
            american = f"{word[:-2]}ze"
            yield american
            yield from inflections(american)
    elif last == "y" and stem[-1] not in _VOWELS:
        yield from (f"{stem}ies", f"{stem}ied", f"{word}ing")
    elif last in "sxzh":
        yield from (f"{word}es", f"{word}ed", f"{word}ing")
    else:
        yield from (f"{word}s", f"{word}ed", f"{word}ing")
        if last not in _VOWELS and stem[-1] in _VOWELS and stem[-2:-1] not in _VOWELS:
            yield from (f"{word}{last}ed", f"{word}{last}ing")


CUES: Final = _read()
NEUTRAL: Final = frozenset(CUES.pop(_NEUTRAL))

WIDE_LETTERS: Final = 2.0
"""English letters equivalent to one Hangul syllable, Han or kana character."""

FIRST_WIDE: Final = "\u1100"
"""Words that start with this or a later character are matched by their first two characters."""

NO_CUES: Final = (0, 1)
"""The kinds of neutral words, and of words in no list."""

_CUES: Final = [(word, group) for group, words in enumerate(CUES.values()) for word in words]
_KINDS: Final = dict.fromkeys(NEUTRAL, 0) | {word: kind for kind, (word, _) in enumerate(_CUES, len(NO_CUES))}
GROUPS: Final = (-1, -1, *[group for _, group in _CUES])
"""By kind: the index of its list in `CUES`."""

HARD_KINDS: Final = frozenset(kind for kind, group in enumerate(GROUPS) if group >= 0 and [*CUES][group] in HARD)
LENGTHENS: Final = tuple(kind > 0 and kind not in HARD_KINDS for kind in range(len(GROUPS)))
"""By kind: whether its words add to the length of a prompt."""

_BLANK: Final = bytes([*range(ord("0")), *punctuation.encode(), 0x7F])
_BLANKS: Final = bytes.maketrans(_BLANK, b" " * len(_BLANK))
_WIDE_BLANK: Final = re.compile("[\x80-\xbf×÷\u2000-\u2bff\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]")


def spaced(text: str) -> str:
    """Replace every character outside a word with a space; the length stays."""
    if not text.isascii():
        text = _WIDE_BLANK.sub(" ", text)
    # Translating bytes is several times faster than translating characters.
    return text.encode("utf-8", "replace").translate(_BLANKS).decode()


def kinds(words: Iterable[str], ascii_only: bool) -> Iterable[int]:
    """Return each word's kind: every cue word has a unique number, neutral words have 0."""
    if ascii_only:
        return map(_KINDS.get, words, repeat(1))
    return [_KINDS.get(word[:2] if word >= FIRST_WIDE else word, 1) for word in words]


def letters(words: Sequence[str], counted: Iterable[int]) -> float:
    """Return the length in English letters of the words whose `counted` is not 0, such as their kinds."""
    text = "".join(compress(words, counted))
    if text.isascii():
        return len(text)
    wide = (len(text.encode("utf-8", "replace")) - len(text)) // 2  # wide characters have three bytes
    return len(text) + (WIDE_LETTERS - 1) * wide
