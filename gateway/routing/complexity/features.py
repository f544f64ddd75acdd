"""The features of a prompt: its length, its marks, and the kinds of words in it.

They do not depend on case, white space, markdown or politeness, and little on the language: lengths are in
English letters, and a cue word counts for the same feature in English and in Korean.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from math import log
from string import digits
from typing import Final, NamedTuple

from gateway.routing.complexity.lexicon import (
    CUES,
    FIRST_WIDE,
    GROUPS,
    HARD_KINDS,
    LENGTHENS,
    NO_CUES,
    kinds,
    letters,
    spaced,
)
from gateway.routing.complexity.prompt_tail import instruction

WINDOW: Final = 600
"""Characters read at each end of a prompt, half as many if they are wide; the middle only adds length."""

_MARKS: Final = {"mathematical marks": "=+×÷√∑∫≤≥≠π∞^∈∀∃→±∂∇\\²³", "code marks": "{}[];"}
NAMES: Final = ("length", "numbers", *CUES, *_MARKS, "turns", "context", "tools", "output cap", "schema")
"""Names of the dense features, in order."""

_FIRST_CUE: Final = 2
_SIMPLE: Final = NAMES.index("simple-task words")
_FACTS: Final = NAMES.index("fact questions")
_SIMPLE_KINDS: Final = frozenset(kinds(CUES["simple-task words"], ascii_only=False))
_OPENERS: Final = frozenset(kinds(filter(str.isascii, CUES["fact questions"]), ascii_only=True))
"""English words that ask for a fact only where they open a prompt."""

_NO_FEATURE: Final = frozenset(NO_CUES) | _OPENERS
_COUNTED: Final = _FIRST_CUE + len(CUES) + len(_MARKS)
_MARKED: Final = {mark: at for at, marks in enumerate(_MARKS.values(), _FIRST_CUE + len(CUES)) for mark in marks}
_WIDE_MARKS: Final = tuple(mark for mark in _MARKED if not mark.isascii())
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte > 127 or chr(byte) not in _MARKED)
_DIGITS: Final = bytes(byte if chr(byte) in digits else ord(" ") for byte in range(256))
_ASIDE: Final = re.compile(r"<(system[-_]reminder|environment_(?:details|context))>")
_MAX_ASIDES: Final = 64
LENGTH_OFFSET: Final = 60
SHORT: Final = 84
"""Letters; up to here a prompt is short, and its length says nothing."""

_FIRST_WORDS: Final = 8
_LAST_WORDS: Final = 16
"""Cue words and marks count in the first words, and in longer texts up to the last ones."""

_GRAM_WORDS: Final = 40
"""The first words, which calibrated weights read; more of them tell no more, and take time."""

_LONG: Final = 4 * WINDOW
_SPACES: Final = tuple(filter(str.isspace, map(chr, range(0x3001))))
_ASCII_SPACES: Final = tuple(filter(str.isascii, _SPACES))
_MAX_COUNT: Final = 8
_MAX_CUES: Final = 2
_LOGS: Final = tuple(log(1 + min(count, _MAX_COUNT)) for count in range(2 * WINDOW + 2))
_CUE_LOGS: Final = tuple(log(1 + min(count, _MAX_CUES)) for count in range(2 * WINDOW + 2))
"""Logarithms of clamped counts, so that repeating a word or a mark cannot buy a tier."""


class Prompt(NamedTuple):
    """The scored part of a request: the last user turn, and numbers about the rest."""

    text: str
    turns: int = 1
    context: int = 0  # bytes of the other messages
    tools: int = 0
    max_output: int = 0  # tokens; 0: no cap
    schema: bool = False


class PromptReading(NamedTuple):
    """A prompt's dense features in the order of `NAMES`, and its first words in order."""

    dense: tuple[float, ...]
    words: Sequence[str]


def read(prompt: Prompt) -> PromptReading:
    """Return the features of a prompt."""
    text = prompt.text
    # Searching one character is a hundred times faster than a pattern, and a long string beats a short one.
    if "<" in text and ("</system" in text or "</environment_" in text):
        text = _without_asides(text)
    text, more = _ends(text)
    text = text.lower()
    blank = spaced(text)
    words = blank.split()
    word_kinds = [*kinds(words, blank.isascii())]
    end, counted = instruction(text, blank, words, word_kinds)
    first, heard = _heard(word_kinds, counted)
    distinct = {*word_kinds}
    if heard == len(words):
        cues, end = distinct, len(blank[:end].rstrip())
    else:  # up to the last heard word, without the brackets of the next one
        cues, end = {*word_kinds[:heard]}, len(blank.rsplit(None, len(words) - heard)[0]) if heard else 0
    counts = [0] * _COUNTED
    for kind in cues.difference(_NO_FEATURE):
        counts[_FIRST_CUE + GROUPS[kind]] += 1
    if not heard:  # a greeting, thanks
        counts[_SIMPLE] = 1
    else:
        if cues is not distinct:  # cues that lower the score count anywhere
            counts[_SIMPLE] = len(_SIMPLE_KINDS.intersection(distinct))
        if word_kinds[first] in _OPENERS:
            counts[_FACTS] += 1
    plain = distinct.isdisjoint(HARD_KINDS)
    length = letters(words[:counted], word_kinds if plain else map(LENGTHENS.__getitem__, word_kinds))
    numbers = _count_marks(text[:end], counts)
    return PromptReading(
        (
            log(LENGTH_OFFSET + max(length * more, SHORT)),
            _LOGS[numbers],
            *[_CUE_LOGS[count] for count in counts[_FIRST_CUE:]],
            log(max(prompt.turns, 1)),
            log(1 + prompt.context / 1000),
            _LOGS[min(prompt.tools, _MAX_COUNT)],
            log(prompt.max_output / 1000) if prompt.max_output else 0.0,
            float(prompt.schema),
        ),
        words[: min(counted, _GRAM_WORDS)],
    )


def _heard(word_kinds: Sequence[int], counted: int) -> tuple[int, int]:
    """Return the first word with content, and how many words cues count in; neutral ends do not count."""
    first, last = 0, counted
    while first < last and not word_kinds[first]:
        first += 1
    while last > first and not word_kinds[last - 1]:
        last -= 1
    if first == last:
        return 0, 0
    return first, min(max(first + _FIRST_WORDS, last - _LAST_WORDS), last)


def _count_marks(text: str, counts: list[int]) -> int:
    """Count the marks in the text, and return the number of its numbers."""
    data = text.encode("utf-8", "replace")
    for mark in {*data.translate(None, _NO_MARKS).decode()}:
        counts[_MARKED[mark]] += 1
    if len(data) > len(text):
        for mark in filter(text.__contains__, _WIDE_MARKS):
            counts[_MARKED[mark]] += 1
    return len(data.translate(_DIGITS, b".,").split())


def _ends(text: str) -> tuple[str, float]:
    """Return both ends of a long text with single spaces, and the ratio of its length to theirs.

    White space counts nowhere: neither in the ends nor in the length.
    """
    if len(text) <= _LONG or (size := _solid(text)) <= _LONG:
        pieces = text.split()
        head = tail = text = " ".join(pieces)
        size = len(text) - len(pieces) + 1
        if len(text) <= WINDOW:
            return text, 1.0
    else:  # without splitting all of it
        head = " ".join(text[: 2 * WINDOW].split())
        tail = " ".join(text[-2 * WINDOW :].split())
        if len(head) < WINDOW or len(tail) < WINDOW:  # mostly white space
            head = " ".join(text.split(None, WINDOW)[:WINDOW])
            tail = " ".join(text.rsplit(None, WINDOW)[-WINDOW:])
    # Hangul and Han, with more than two bytes a character, say as much in half as many characters.
    start = head[:WINDOW]
    window = WINDOW if start.isascii() or len(start.encode("utf-8", "replace")) < 2 * WINDOW else WINDOW // 2
    if size <= 2 * window and len(text) <= 2 * window:
        return text, 1.0
    ends = f"{head[:window]} {tail[-window:]}"
    return ends, max(size / (len(ends) - ends.count(" ")), 1.0)


def _solid(text: str) -> int:
    """Return the number of characters that are not white space."""
    present = filter(text.__contains__, _ASCII_SPACES if text.isascii() else _SPACES)  # faster than a count
    return len(text) - sum(map(text.count, present))


def _without_asides(text: str) -> str:
    """Remove the blocks that agents' tools add to a person's text; an unclosed block is text."""
    parts, begin = [], 0
    for _ in range(_MAX_ASIDES):
        opened = _ASIDE.search(text, begin)
        if opened is None:
            break
        closing = f"</{opened[1]}>"
        end = text.find(closing, opened.end())
        if end < 0:
            break
        parts.append(text[begin : opened.start()])
        begin = end + len(closing)
    return " ".join([*parts, text[begin:]])


_WHOLE: Final = (slice(None),)
_PAIRS: Final = tuple(tuple(slice(at, at + 2) for at in range(max(size - 1, 1))) for size in range(24))
"""By the length of a wide word: where its pairs of characters are. Longer words count by their start."""


def grams(words: Sequence[str]) -> Iterator[str | tuple[str, str]]:
    """Yield words and adjacent pairs; Hangul, Han and kana words are split into character pairs."""
    if not "".join(words).isascii():
        words = [
            word[part]
            for word in words
            for part in (_PAIRS[min(len(word), len(_PAIRS) - 1)] if word >= FIRST_WIDE else _WHOLE)
        ][:_GRAM_WORDS]
    return chain(words, pairwise(words))
