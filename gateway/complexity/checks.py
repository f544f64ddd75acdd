"""Checks of an answer that need no other model. Each is a pure function of the answer and of the request."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.complexity.sums import NUMBER, check, number

GOOD_ENDS: Final = frozenset({"stop", "tool_calls", "function_call"})
"""Reasons to finish that say the model had said all it wanted to."""

_FINAL: Final = re.compile(
    r"####\s*\S|\\boxed\{|(?:final )?answer(?: is)?\s*[:=]?\s*\S|정답|답은|답:", re.IGNORECASE
)
_HEDGE: Final = re.compile(
    r"\b(?:however|assum\w+|unclear|not sure|cannot be|can't be|might|perhaps|approximately|about|"
    r"wait|actually|mistake|incorrect|apologi\w+)\b|아마|확실하지|모르겠",
    re.IGNORECASE,
)
_REFUSAL: Final = re.compile(
    r"\s*(?:i(?:'m| am) (?:sorry|unable)|sorry|i (?:can(?:'|no)t|won't|do not|don't) |as an ai\b|"
    r"unfortunately, i\b|죄송하지만|죄송합니다|도와드릴 수 없)",
    re.IGNORECASE,
)
_LONGEST: Final = 16_000
"""Characters of an answer that are looked at."""


def is_complete(finish_reason: object) -> bool:
    """Whether the model ended by itself, not by a length or a filter."""
    return finish_reason in GOOD_ENDS


def is_empty(text: str | None) -> bool:
    """Whether nothing was said."""
    return text is None or not text.strip()


def is_refusal(text: str) -> bool:
    """Whether an answer begins as refusals begin, in English or Korean."""
    return _REFUSAL.match(text.replace("’", "'", 4)) is not None


def hedges(text: str) -> int:
    """How many words of doubt stand in an answer."""
    return len(_HEDGE.findall(text[:_LONGEST]))


def names_a_result(text: str) -> bool:
    """Whether an answer says which part of it is the result."""
    return _FINAL.search(text[:_LONGEST]) is not None


def unused_numbers(question: str, answer: str) -> int:
    """Numbers of the question that the answer never uses."""
    used = set(map(number, NUMBER.findall(answer[:_LONGEST])))
    return len(set(map(number, NUMBER.findall(question[:_LONGEST]))) - used)


def mean_logprob(logprobs: Sequence[float]) -> float | None:
    """Mean log probability of an answer's tokens; None when the upstream gave none that are finite."""
    finite = [one for one in logprobs if math.isfinite(one)]
    return sum(finite) / len(finite) if finite else None


ANSWER_FEATURES: Final = (
    "no result named",
    "wrong sums",
    "sums",
    "numbers unused",
    "doubts",
    "refusal",
    "length",
    "result",
    "fraction",
)
"""Names of what `look` measures."""


def look(question: str, answer: str) -> Iterable[float]:
    """An answer in numbers, for a model that decides whether to ask again (see `ANSWER_FEATURES`)."""
    counted = check(answer[:_LONGEST])
    result = NUMBER.findall(answer[-_LONGEST:])
    return (
        float(not names_a_result(answer)),
        min(counted.wrong, 3),
        math.log1p(counted.checked),
        min(unused_numbers(question, answer), 4),
        math.log1p(hedges(answer)),
        float(is_refusal(answer)),
        math.log1p(len(answer)),
        math.log1p(float(number(result[-1])) if result else 0.0),
        float(bool(result) and number(result[-1]).denominator != 1),
    )
