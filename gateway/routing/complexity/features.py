"""What the scorer looks at in a prompt: its length, its marks, and which kinds of words stand in it.

Nothing here depends on case, on white space, on markdown or on politeness, and little on the language:
lengths are in letters of English, and a cue word counts for the same feature in English and in Korean.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from math import log
from string import digits
from typing import Final, NamedTuple

from gateway.routing.complexity.lexicon import CUES, FIRST_WIDE, GROUPS, NO_CUES, kinds, spaced
from gateway.routing.complexity.prompt_tail import told

WINDOW: Final = 600
"""Characters read at each end of a prompt, half of it of wide ones; the middle counts by its length."""

_MARKS: Final = {"mathematical marks": "=+×÷√∑∫≤≥≠π∞^%∈∀∃→±∂∇\\$²³", "code marks": "{}[];"}
NAMES: Final = ("length", "numbers", *CUES, *_MARKS, "turns", "context", "tools", "output cap", "schema")
"""The dense features, in their order."""

_NUMBERS: Final = 1
_FIRST_CUE: Final = 2
_SIMPLE: Final = NAMES.index("simple-task words")
_SIMPLE_KINDS: Final = frozenset(kinds(CUES["simple-task words"], ascii_only=True))
_COUNTED: Final = _FIRST_CUE + len(CUES) + len(_MARKS)
_MARKED: Final = {
    mark: at for at, marks in enumerate(_MARKS.values(), _FIRST_CUE + len(CUES)) for mark in marks
}
_MARK: Final = re.compile(f"[{re.escape(''.join(_MARKED))}]")
_NO_MARKS: Final = bytes(byte for byte in range(256) if chr(byte) not in _MARKED)
_DIGITS: Final = bytes(byte if chr(byte) in digits else ord(" ") for byte in range(256))
_ASIDE: Final = re.compile(r"<(system[-_]reminder|environment_(?:details|context))>")
_MOST_ASIDES: Final = 64
_SHORT: Final = 20
_MOST: Final = 8
_LOGS: Final = tuple(log(1 + min(count, _MOST)) for count in range(2 * WINDOW + 2))
"""Logarithms of counts. They end at 8, so that repeating a word or a mark cannot buy a tier."""


class Prompt(NamedTuple):
    """What of a request decides: the last user turn, and what stands around it."""

    text: str
    turns: int = 1
    context: int = 0  # bytes of the other messages
    tools: int = 0
    max_output: int = 0  # tokens; 0: not bounded
    schema: bool = False


class PromptReading(NamedTuple):
    """A prompt as the scorer sees it: dense features in the order of `NAMES`, and its words in theirs."""

    dense: tuple[float, ...]
    words: Sequence[str]


def read(prompt: Prompt) -> PromptReading:
    """The features of a prompt."""
    text = prompt.text
    # One character is found a hundred times faster than several, and many faster than two.
    if "<" in text and ("</system" in text or "</environment_" in text):
        text = _without_asides(text)
    text, more = _ends(text)
    text = text.lower()
    blank = spaced(text)
    words = blank.split()
    known = [*kinds(words, blank.isascii())]
    end, counted, kept, length = told(text, blank, words, known)
    counts = [0] * _COUNTED
    for kind in {*known[:counted]}.difference(NO_CUES):
        counts[_FIRST_CUE + GROUPS[kind]] += 1
    if counted < kept:  # what lowers a score counts anywhere
        counts[_SIMPLE] = len(_SIMPLE_KINDS.intersection(known))
    data = text[:end].encode("utf-8", "replace")
    marks = data.translate(None, _NO_MARKS).decode() if len(data) == end else _MARK.findall(text, 0, end)
    for mark in {*marks}:
        counts[_MARKED[mark]] += 1
    counts[_NUMBERS] = len(data.translate(_DIGITS, b".,").split())
    return PromptReading(
        (
            log(_SHORT + length * more),
            *[_LOGS[count] for count in counts[1:]],
            log(max(prompt.turns, 1)),
            log(1 + prompt.context / 1000),
            _LOGS[min(prompt.tools, _MOST)],
            log(prompt.max_output / 1000) if prompt.max_output else 0.0,
            float(prompt.schema),
        ),
        words[:kept],
    )


def _ends(text: str) -> tuple[str, float]:
    """Both ends of a long text, and how many times more it is than these."""
    if len(text) <= WINDOW:
        return text, 1.0
    # As much as the window of English: a text of Hangul or Han takes more than two bytes a character.
    window = WINDOW if len(text[:WINDOW].encode("utf-8", "replace")) < 2 * WINDOW else WINDOW // 2
    if len(text) <= 2 * window:
        return text, 1.0
    return f"{text[:window]}\n{text[-window:]}", len(text) / (2 * window)


def _without_asides(text: str) -> str:
    """Without what agents' tools put around a person's words: the first of it. What never ends is text."""
    parts, begin = [], 0
    for _ in range(_MOST_ASIDES):
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


def grams(words: Sequence[str]) -> Iterator[str | tuple[str, str]]:
    """Words and pairs of neighbours; of Hangul, Han and kana pairs of characters in place of words."""
    if not "".join(words).isascii():
        words = [piece for word in words for piece in (_pairs(word) if word >= FIRST_WIDE else (word,))]
    return chain(words, pairwise(words))


def _pairs(word: str) -> list[str]:
    return [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
