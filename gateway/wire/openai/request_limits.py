"""Limits of a request that hold for every upstream, checked in the peek that every body gets.

Three kinds of top-level fields are checked: numbers that no engine can compute with, numbers that multiply
the work of a call, and fields that steer an engine instead of asking it for an answer. A body without them
costs one comparison. Everything else is left to the upstream.
"""

import re
from typing import Final

import msgspec
from msgspec.structs import astuple

from gateway.core.errors import INVALID_VALUE, Rejection
from gateway.core.request_fields import RequestFields

MOST_CHOICES: Final = 128
"""`n` and `best_of`: OpenAI's own limit."""

MOST_LOGPROBS: Final = 128
"""Alternatives per token; OpenAI's limit is 20, and so is vLLM's default."""

MOST_ENDS: Final = 1024
"""Entries of `stop`, `stop_token_ids` and `bad_words`; an engine compares each at every token."""

_SAFE_DIGITS: Final = 18
"""Digits that every numeric field accepts; a signed 64-bit integer may have 19."""

_FIELDS: Final = RequestFields.__struct_fields__
_MULTIPLIERS: Final = _FIELDS.index("n")
_ENGINE: Final = _FIELDS.index("cache_salt")
ENGINE_FIELDS: Final = _FIELDS[_ENGINE:]
"""Fields that steer the engine itself: its scheduling, what it loads, which hosts it contacts, whose state it
uses.

A client that may send them can jump the engine's queue, use another caller's cache, make the engine contact
an address of its choice, or pass data that the engine's code trusts.
"""

_RANGES: Final = {
    "n": (1, MOST_CHOICES),
    "best_of": (0, MOST_CHOICES),
    "logprobs": (0, MOST_LOGPROBS),
    "top_logprobs": (0, MOST_LOGPROBS),
    "prompt_logprobs": (0, MOST_LOGPROBS),
}
_ALL_ABSENT: Final = (None,) * (len(_FIELDS) - _MULTIPLIERS)
_ERROR_PATH = re.compile(r"`\$\.(\w+)")


def number_rejection(error: msgspec.ValidationError) -> Rejection | None:
    """The rejection for an invalid number that `decode` found; None for any other error."""
    path = _ERROR_PATH.search(str(error))
    if path is None:
        return None
    message = f"`{path[1]}` must be a finite number with at most {_SAFE_DIGITS} digits."
    return Rejection(INVALID_VALUE, message, path[1])


def check(request: RequestFields) -> Rejection | tuple[str, ...]:
    """The ENGINE_FIELDS that the request sets, or the rejection of a request that is too much work."""
    values = astuple(request)
    if values[_MULTIPLIERS:] == _ALL_ABSENT:
        return ()
    for field, value in zip(_FIELDS[_MULTIPLIERS:_ENGINE], values[_MULTIPLIERS:_ENGINE], strict=True):
        if value is not None and (rejection := _check_size(field, value)) is not None:
            return rejection
    return tuple(field for field, value in zip(ENGINE_FIELDS, values[_ENGINE:], strict=True) if value is not None)


def _check_size(field: str, value: object) -> Rejection | None:
    if field not in _RANGES:
        if not isinstance(value, list) or len(value) <= MOST_ENDS:
            return None
        return Rejection(INVALID_VALUE, f"`{field}` may have at most {MOST_ENDS} entries.", field)
    low, high = _RANGES[field]
    if low <= _number(value, low) <= high:
        return None
    return Rejection(INVALID_VALUE, f"`{field}` must be a number from {low} to {high}.", field)


def _number(value: object, neutral: float) -> float:
    """A number or a number in a string; `neutral` for any other value, which is left to the upstream."""
    if isinstance(value, bool):
        return neutral
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else neutral
    except ValueError:
        return neutral
