"""Finds the part of a prompt to score, without short last sentences appended to influence the choice."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from gateway.routing.complexity.lexicon import kinds, letters

_MARK: Final = re.compile(r"\.(?![a-z0-9](?:[ (]|$))|[?!。？！]|:rewsna(?!\w)")
"""Backwards: the end of a sentence, not of an initial or a list's number, and of `Question: ... Answer:`."""

_OPTION: Final = re.compile(r"(?:^|\s)\(?[a-z0-9][.)]\s")
_SURE_ENDS: Final = frozenset("。？！")
_CLOSERS: Final = "\"'*)`"
_QUESTION_MARKS: Final = frozenset("?？")
_ANSWER: Final = ":rewsna"
_BREAKS: Final = (". ", "? ", "! ", "。", "？", "！")
_TAIL: Final = 400
"""Characters at the end in which sentences are looked for."""

_MAX_MARKS: Final = 16
"""End marks that are looked at, the last ones."""

_BEFORE: Final = 64
"""Words at the start that are enough to tell whether a sentence is short beside them."""

_SHORT: Final = 80
"""Letters, without neutral words."""

_ASKING: Final = frozenset(
    (
        "who", "whom", "whose", "what", "when", "where", "which", "why", "how", "is", "are", "was",
        "were", "am", "do", "does", "did", "can", "could", "would", "should", "shall", "will", "may",
        "might", "must", "have", "has", "had", "isn", "aren", "wasn", "weren", "don", "doesn", "didn",
        "couldn", "wouldn", "shouldn", "won", "haven", "hasn", "hadn",
    )
)  # fmt: skip
"""English words that make a sentence a question."""


class Instruction(NamedTuple):
    """The scored part of a prompt: the end of its characters, and its number of words."""

    end: int
    words: int


def instruction(text: str, blank: str, words: Sequence[str], word_kinds: Sequence[int]) -> Instruction:
    """Return the scored part of a lower-case text with single spaces; `blank` is `spaced(text)`.

    Short last sentences do not count after a question; a short last sentence does not count if it is at most
    three quarters of the text. The only question of a text always counts, and so do the options of a multiple
    choice. Neutral words make no sentence.
    """
    size, count = len(text), len(words)
    found = Instruction(size, count)
    asked = trimmed = False
    behind = text[-_TAIL:][::-1]  # usually the first two marks decide
    for mark in islice(_MARK.finditer(behind), _MAX_MARKS):
        sign, at = mark[0], mark.start()
        if sign not in _SURE_ENDS and sign != _ANSWER:
            rest = behind[:at].rstrip(_CLOSERS)
            if rest and rest[-1] != " ":
                continue
            at = len(rest)
        end = size - at
        question = sign in _QUESTION_MARKS
        begin = count - len(blank[end:].split())
        last = letters(words[begin:], word_kinds[begin:])
        if not last:
            asked = asked or question
            continue
        if last > _SHORT or len(_OPTION.findall(text, end)) > 1:
            break
        before = letters(words[: min(begin, _BEFORE)], word_kinds)
        if not before:
            break
        if question:
            if _asks(text, blank, size - mark.end()):
                found, asked = Instruction(end, begin), True
        elif not asked and not trimmed and last <= 3 * before:
            found, trimmed = Instruction(end, begin), True
    return found


def _asks(text: str, blank: str, at: int) -> bool:
    """Return whether the sentence that ends here has content and is a question by its words too."""
    begin = max(text.rfind(sign, 0, at) for sign in _BREAKS) + 1
    sentence = blank[begin:at]
    words = sentence.split()
    ascii_only = sentence.isascii()
    return any(kinds(words, ascii_only)) and not (ascii_only and _ASKING.isdisjoint(words))
