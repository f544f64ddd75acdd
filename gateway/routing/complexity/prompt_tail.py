"""What of a prompt counts: a short last sentence is left out where people append what moves decisions."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gateway.routing.complexity.lexicon import kinds, letters

_MARK: Final = re.compile("[.?!\n。？！]")
_ALWAYS_ENDS: Final = frozenset("\n。？！")
_CLOSERS: Final = "\"'*)`"
_TAIL: Final = 250
_ASKS: Final = frozenset("?？")
_QUESTION: Final = re.compile("[?？]+")
_BREAKS: Final = ("\n", ". ", "! ", "。", "！")
_MOST_QUESTIONS: Final = 8
_SHORT_SENTENCE: Final = 80
"""Letters, neutral words not counted."""


class Instruction(NamedTuple):
    """How many characters and words count, how many words are known at all, letters of those that count."""

    end: int
    words: int
    known: int
    letters: float


def told(text: str, blank: str, words: Sequence[str], known: Sequence[int]) -> Instruction:
    """What counts of a text in lower case. `blank` is what `spaced` makes of it, `known` its words' kinds.

    A short last sentence does not count behind a question, or where it is no more than three quarters of all.
    The only question stays. Neutral words make no sentence.
    """
    size = behind = len(text)
    count, closed = len(words), ""
    for at, end in _ends(text):
        begin = count - len(blank[end:behind].split())
        if begin < count and (last := letters(words[begin:count], known[begin:count])):
            if last > _SHORT_SENTENCE:
                break
            before = letters(words[:begin], known[:begin])
            asks, short = closed in _ASKS, last <= 3 * before
            if before and (short if short is not asks else _has_question(text, blank, end)):
                return Instruction(end, begin, count, before)
            return Instruction(size, count, count, before + last)
        behind, count, closed = at, begin, text[at]
    return Instruction(size, len(words), len(words), letters(words, known))


def _ends(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences near the end have their marks, and where they end, the last one first.

    Behind some marks come quotes and brackets; then there must be white space or nothing.
    """
    behind = text[-_TAIL:][::-1]  # most often the first two decide
    for mark in _MARK.finditer(behind):
        at = mark.start()
        if mark[0] not in _ALWAYS_ENDS:
            rest = behind[:at].rstrip(_CLOSERS)
            if rest and not rest[-1].isspace():
                continue
            at = len(rest)
        yield len(text) - mark.end(), len(text) - at


def _has_question(text: str, blank: str, end: int) -> bool:
    """Whether, before `end`, a sentence that says something is a question; the first few are looked at."""
    after = 0
    for _ in range(_MOST_QUESTIONS):
        mark = _QUESTION.search(text, after, end)
        if mark is None:
            return False
        at = mark.start()
        begin = after
        for sign in _BREAKS:
            begin = text.rfind(sign, begin, at) + 1 or begin
        if any(kinds(blank[begin:at].split(), blank.isascii())):
            return True
        after = mark.end()
    return False
