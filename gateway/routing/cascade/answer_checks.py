"""Whether a cheap answer is doubtful, by what it shows; no other model is asked."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.routing.cascade import arithmetic
from gateway.routing.cascade.arithmetic import NUMBER, check, number
from gateway.wire.json.schema_check import fits
from gateway.wire.openai.chat_answer import AskedForm, Said, asked, said

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


_MOST_CHOICES: Final = 8
"""Of an answer, that are looked at: a client may ask for a hundred, and nothing else runs meanwhile."""


class CheckPolicy(NamedTuple):
    """The names of the checks, and the least mean log probability of an answer's tokens (None: any)."""

    checks: Collection[str]
    min_logprob: float | None = None


def doubt(request: bytes, answer: bytes, terms: CheckPolicy) -> str:
    """The name of the first check that one of its first choices does not pass; empty where all pass.

    An answer in a shape of its own is not judged.
    """
    form = asked(request)
    for choice in said(answer)[:_MOST_CHOICES]:
        for name, fails in _CHECKS.items():
            if name in terms.checks and fails(choice, form, terms):
                return name
    return ""


def _finish(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    # An answer that meets the client's own cap would meet it elsewhere too.
    return not is_complete(one.finish) and not (one.finish == "length" and form.capped)


def _empty(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    return is_empty(one.text) and not one.calls and not one.refused


def _refusal(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    return one.refused or is_refusal(one.text)


def _json(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    if not form.json or one.calls:
        return False
    try:
        value = msgspec.json.decode(one.text)
    except (msgspec.DecodeError, RecursionError):
        return True
    return not (isinstance(value, dict) if form.schema is None else fits(value, form.schema))


def _arithmetic(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    return arithmetic.check(one.text[:_LONGEST]).wrong > 0


def _logprob(one: Said, form: AskedForm, terms: CheckPolicy) -> bool:
    mean = mean_logprob(one.logprobs)
    return mean is not None and terms.min_logprob is not None and mean < terms.min_logprob


_CHECKS: Final[dict[str, Callable[[Said, AskedForm, CheckPolicy], bool]]] = {
    "finish": _finish,
    "empty": _empty,
    "refusal": _refusal,
    "json": _json,
    "arithmetic": _arithmetic,
    "logprob": _logprob,
}
