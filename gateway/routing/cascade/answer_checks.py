"""Checks whether a cheap answer is doubtful, from its text alone (a cascade's deferral rule)."""

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.core.request_fields import RequestFields
from gateway.routing.cascade.arithmetic import check
from gateway.wire.json.schema_check import fits
from gateway.wire.openai.chat_answer import AnswerFormat, ChatChoice, read_choices, read_format

GOOD_ENDS: Final = frozenset({"stop", "tool_calls", "function_call"})
"""Finish reasons of an answer that the model completed."""

_REFUSAL: Final = re.compile(
    r"\s*(?:i(?:'m| am) (?:sorry|unable)|sorry|i (?:can(?:'|no)t|won't|do not|don't) |as an ai\b|"
    r"unfortunately, i\b|죄송하지만|죄송합니다|도와드릴 수 없)",
    re.IGNORECASE,
)
_MAX_CHARS: Final = 16_000
"""Number of characters of an answer that are checked."""


def is_complete(finish_reason: object) -> bool:
    """Return whether the model completed the answer, rather than being cut by a limit or a filter."""
    return finish_reason in GOOD_ENDS


def is_empty(text: str | None) -> bool:
    """Return whether the text is missing or blank."""
    return text is None or not text.strip()


def is_refusal(text: str) -> bool:
    """Return whether an answer starts like a refusal, in English or Korean."""
    return _REFUSAL.match(text.replace("’", "'", 4)) is not None


def mean_logprob(logprobs: Sequence[float]) -> float | None:
    """Return the mean log probability of an answer's tokens; None without finite values."""
    finite = [logprob for logprob in logprobs if math.isfinite(logprob)]
    return sum(finite) / len(finite) if finite else None


_MAX_CHOICES: Final = 8
"""Number of choices that are checked: a client may request a hundred, and the checks block the event loop."""


class CheckPolicy(NamedTuple):
    """The names of the checks, and the minimum mean log probability of an answer's tokens (None: any)."""

    checks: Collection[str]
    min_logprob: float | None = None


def doubt(request: RequestFields | None, answer: bytes, policy: CheckPolicy) -> str:
    """Return the name of the first check that a choice fails; empty if all pass.

    An answer of an unknown shape is not checked.
    """
    form = read_format(request)
    for choice in read_choices(answer)[:_MAX_CHOICES]:
        for name, fails in _CHECKS.items():
            if name in policy.checks and fails(choice, form, policy):
                return name
    return ""


def _finish(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    # The client's own cap would cut the strong answer too.
    return not is_complete(choice.finish) and not (choice.finish == "length" and form.capped)


def _empty(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    return is_empty(choice.text) and not choice.calls and not choice.refused


def _refusal(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    return choice.refused or is_refusal(choice.text)


def _json(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    if not form.json or choice.calls:
        return False
    try:
        value = msgspec.json.decode(choice.text)
    except (msgspec.DecodeError, RecursionError):
        return True
    return not (isinstance(value, dict) if form.schema is None else fits(value, form.schema))


def _arithmetic(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    return check(choice.text[:_MAX_CHARS]).wrong > 0


def _logprob(choice: ChatChoice, form: AnswerFormat, policy: CheckPolicy) -> bool:
    mean = mean_logprob(choice.logprobs)
    return mean is not None and policy.min_logprob is not None and mean < policy.min_logprob


_CHECKS: Final[dict[str, Callable[[ChatChoice, AnswerFormat, CheckPolicy], bool]]] = {
    "finish": _finish,
    "empty": _empty,
    "refusal": _refusal,
    "json": _json,
    "arithmetic": _arithmetic,
    "logprob": _logprob,
}
