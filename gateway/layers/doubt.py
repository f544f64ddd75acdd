"""Whether a cheap answer is doubtful, by what it shows; no other model is asked."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from gateway.complexity import checks, sums
from gateway.wire.json_shape import fits
from gateway.wire.whole_chat import Asked, Said, asked, said

_LONGEST: Final = 16_000
"""Characters of a choice whose sums are recomputed."""

_MOST_CHOICES: Final = 8
"""Of an answer, that are looked at: a client may ask for a hundred, and nothing else runs meanwhile."""


class Terms(NamedTuple):
    """The names of the checks, and the least mean log probability of an answer's tokens (None: any)."""

    checks: Collection[str]
    min_logprob: float | None = None


def doubt(request: bytes, answer: bytes, terms: Terms) -> str:
    """The name of the first check that one of its first choices does not pass; empty where all pass.

    An answer in a shape of its own is not judged.
    """
    form = asked(request)
    for choice in said(answer)[:_MOST_CHOICES]:
        for name, fails in _CHECKS.items():
            if name in terms.checks and fails(choice, form, terms):
                return name
    return ""


def _finish(one: Said, form: Asked, terms: Terms) -> bool:
    # An answer that meets the client's own cap would meet it elsewhere too.
    return not checks.is_complete(one.finish) and not (one.finish == "length" and form.capped)


def _empty(one: Said, form: Asked, terms: Terms) -> bool:
    return checks.is_empty(one.text) and not one.calls and not one.refused


def _refusal(one: Said, form: Asked, terms: Terms) -> bool:
    return one.refused or checks.is_refusal(one.text)


def _json(one: Said, form: Asked, terms: Terms) -> bool:
    if not form.json or one.calls:
        return False
    try:
        value = msgspec.json.decode(one.text)
    except (msgspec.DecodeError, RecursionError):
        return True
    return not (isinstance(value, dict) if form.schema is None else fits(value, form.schema))


def _arithmetic(one: Said, form: Asked, terms: Terms) -> bool:
    return sums.check(one.text[:_LONGEST]).wrong > 0


def _logprob(one: Said, form: Asked, terms: Terms) -> bool:
    mean = checks.mean_logprob(one.logprobs)
    return mean is not None and terms.min_logprob is not None and mean < terms.min_logprob


_CHECKS: Final[dict[str, Callable[[Said, Asked, Terms], bool]]] = {
    "finish": _finish,
    "empty": _empty,
    "refusal": _refusal,
    "json": _json,
    "arithmetic": _arithmetic,
    "logprob": _logprob,
}
