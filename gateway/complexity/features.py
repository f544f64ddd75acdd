"""What the scorer looks at in a prompt: its length, its marks, and which kinds of words stand in it.

Nothing here depends on case, on white space, on markdown or on politeness, and little on the language:
lengths are in letters of English, and a cue word counts for the same feature in English and in Korean.
"""

import re
from collections.abc import Sequence
from itertools import chain, filterfalse, pairwise
from math import log
from string import ascii_letters, digits, punctuation
from typing import Final, NamedTuple

from gateway.complexity.lexicon import CUES, NEUTRAL

WINDOW: Final = 600
"""Characters read at each end of a prompt, half of it of wide ones; the middle counts by its length."""

WIDE_LETTERS: Final = 2.0
"""Letters of English that say as much as one Hangul syllable, Han or kana character."""

_MARKS: Final = {"mathematical marks": "=+×÷√∑∫≤≥≠π∞^%∈∀∃→±∂∇\\$²³", "code marks": "{}[];"}
NAMES: Final = ("length", "numbers", *CUES, *_MARKS, "turns", "context", "tools", "output cap", "schema")
"""The dense features, in their order."""

_NUMBERS: Final = 1
_FIRST_CUE: Final = 2
_SIMPLE: Final = NAMES.index("simple-task words")
_SIMPLE_WORDS: Final = frozenset(CUES["simple-task words"])
_COUNTED: Final = _FIRST_CUE + len(CUES) + len(_MARKS)
_GROUP: Final = {
    word: at for at, words in enumerate([*CUES.values(), *_MARKS.values()], _FIRST_CUE) for word in words
}
_SPACES: Final = str.maketrans(dict.fromkeys(punctuation, " "))
_WORD: Final = re.compile("[^\\x00-/:-@\\[-`{-\xbf×÷\u2000-\u2bff\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]+")
_DIGITS: Final = bytes(byte if chr(byte) in digits else ord(" ") for byte in range(256))
_NO_MARKS: Final = f"{ascii_letters}{digits} \n".encode()
_MARK: Final = re.compile(f"[{re.escape(''.join(_MARKS.values()))}]")
_FIRST_WIDE: Final = "\u1100"
_ASIDE: Final = re.compile(r"<(system[-_]reminder|environment_(?:details|context))>")
_END: Final = re.compile(r"[.?!][\"'*)`]*(?=\s|$)|[。？！\n]")
_TAIL: Final = 250
_ASKS: Final = frozenset("?？")
_QUESTION: Final = re.compile("[?？]")
_BREAKS: Final = ("\n", ". ", "? ", "! ", "。", "？", "！")
_SHORT: Final = 20
_SHORT_SENTENCE: Final = 80
"""Letters, neutral words not counted."""

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


class Reading(NamedTuple):
    """A prompt as the scorer sees it: dense features in the order of `NAMES`, and its words in theirs."""

    dense: tuple[float, ...]
    words: Sequence[str]


class _Part(NamedTuple):
    """Some text as words, what the lists know these by, and their length in letters of English."""

    words: list[str]
    keys: list[str]
    letters: float


def read(prompt: Prompt) -> Reading:
    """The features of a prompt."""
    text = prompt.text
    if "<" in text and "</" in text:  # one character is found a hundred times faster than two
        text = _without_asides(text)
    more = 1.0  # times what is read
    if len(text) > WINDOW:
        # As much as the window of English: a text of Hangul or Han takes more than two bytes a character.
        window = WINDOW if len(text[:WINDOW].encode("utf-8", "replace")) < 2 * WINDOW else WINDOW // 2
        if len(text) > 2 * window:
            more = len(text) / (2 * window)
            text = f"{text[:window]}\n{text[-window:]}"
    text = text.lower()
    end, told, left_out = _told(text)
    counts = [0] * _COUNTED
    data = text[:end].encode("utf-8", "replace")
    marks = data.translate(None, _NO_MARKS).decode() if len(data) == end else _MARK.findall(text, 0, end)
    for group in map(_GROUP.get, {*told.keys, *marks}):
        if group is not None:
            counts[group] += 1
    counts[_NUMBERS] = len(data.translate(_DIGITS, b".,").split())
    # What lowers a score counts anywhere.
    counts[_SIMPLE] = len(_SIMPLE_WORDS.intersection(chain(told.keys, left_out.keys)))
    return Reading(
        (
            log(_SHORT + told.letters * more),
            *[_LOGS[count] for count in counts[1:]],
            log(max(prompt.turns, 1)),
            log(1 + prompt.context / 1000),
            _LOGS[min(prompt.tools, _MOST)],
            log(prompt.max_output / 1000) if prompt.max_output else 0.0,
            float(prompt.schema),
        ),
        told.words + left_out.words,
    )


def _without_asides(text: str) -> str:
    """Without what agents' tools put around a person's words. An aside that never ends is text."""
    parts, begin = [], 0
    while (opened := _ASIDE.search(text, begin)) is not None:
        closing = f"</{opened[1]}>"
        end = text.find(closing, opened.end())
        if end < 0:
            break
        parts.append(text[begin : opened.start()])
        begin = end + len(closing)
    return " ".join([*parts, text[begin:]])


def _part(text: str) -> _Part:
    if text.isascii():
        words = text.translate(_SPACES).split()
        return _Part(words, words, len("".join(filterfalse(NEUTRAL.__contains__, words))))
    words = _WORD.findall(text)
    keys = [word[:2] if word >= _FIRST_WIDE else word for word in words]
    said = "".join([word for word, key in zip(words, keys, strict=True) if key not in NEUTRAL])
    wide = (len(said.encode("utf-8", "replace")) - len(said)) // 2  # these take three bytes each
    return _Part(words, keys, len(said) + (WIDE_LETTERS - 1) * wide)


def _told(text: str) -> tuple[int, _Part, _Part]:
    """Where the part of the text ends that counts, that part, and what is left out.

    A short last sentence is left out where people append what should move the decision: after a question, or
    where it is no more than three quarters of all. The only question stays. Neutral words make no sentence.
    """
    behind, closed = len(text), ""
    for mark in reversed([*_END.finditer(text, max(len(text) - _TAIL, 0))]):
        end = mark.end()
        last = _part(text[end:behind])
        if last.letters > _SHORT_SENTENCE:
            break
        if last.letters:
            before = _part(text[:end])
            asks, asked = closed in _ASKS, _has_question(text, end)
            if before.letters and (asked if asked is not asks else last.letters <= 3 * before.letters):
                return end, before, last
            whole = _Part(before.words + last.words, before.keys + last.keys, before.letters + last.letters)
            return len(text), whole, _NOTHING
        behind, closed = mark.start(), text[mark.start()]
    return len(text), _part(text), _NOTHING


def _has_question(text: str, end: int) -> bool:
    """Whether, before `end`, a sentence that says something is a question."""
    for mark in _QUESTION.finditer(text, 0, end):
        at = mark.start()
        begin = max(text.rfind(one, 0, at) for one in _BREAKS) + 1
        if not NEUTRAL.issuperset(_part(text[begin:at]).keys):
            return True
    return False


_NOTHING: Final = _Part([], [], 0.0)


def grams(words: Sequence[str]) -> set[str | tuple[str, str]]:
    """Words and pairs of neighbours; of Hangul, Han and kana pairs of characters in place of words."""
    if not all(map(str.isascii, words)):
        words = [piece for word in words for piece in (_pairs(word) if word >= _FIRST_WIDE else (word,))]
    return {*words, *pairwise(words)}


def _pairs(word: str) -> list[str]:
    return [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
