"""Limits of a request that hold for every upstream, checked in the peek that every body gets.

Three kinds of top-level fields are checked: numbers that no engine can compute with, numbers that multiply
the work of a call, and fields that steer an engine instead of asking it for an answer. A body without them
costs one comparison. Everything else is left to the upstream.
"""

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from gateway.core.errors import INVALID_VALUE, Rejection

MOST_CHOICES: Final = 128
"""`n` and `best_of`: OpenAI's own limit."""

MOST_LOGPROBS: Final = 128
"""Alternatives per token; OpenAI's limit is 20, and so is vLLM's default."""

MOST_ENDS: Final = 1024
"""Entries of `stop`, `stop_token_ids` and `bad_words`; an engine compares each at every token."""

_SAFE_DIGITS: Final = 18
"""Digits that every numeric field accepts; a signed 64-bit integer may have 19."""

# Engines also parse numbers in strings. Without letters none is "NaN", "Infinity" or "1e999".
_Text = Annotated[str, Meta(pattern=r"^[^A-Za-z]*$", max_length=64)]
_Other = bool | list[Any] | dict[str, Any] | None
_Real = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | _Text | _Other
"""A value in place of a number: never NaN or infinite, not even once converted to a float."""
_Whole = int | float | _Text | _Other
"""The same for integers, which may be as long as Python's limit of digits allows."""


class LimitedFields(Struct, gc=False):
    """The checked fields of a request; None for a field that is absent or null."""

    model: Any = None
    stream: Any = None
    # Checked by the decoder itself.
    temperature: _Real = None
    max_tokens: _Whole = None
    max_completion_tokens: _Whole = None
    top_p: _Real = None
    top_k: _Whole = None
    seed: _Whole = None
    frequency_penalty: _Real = None
    presence_penalty: _Real = None
    logit_bias: _Real = None
    min_p: _Real = None
    repetition_penalty: _Real = None
    length_penalty: _Real = None
    min_tokens: _Whole = None
    truncate_prompt_tokens: _Whole = None
    thinking_token_budget: _Whole = None
    dimensions: _Whole = None
    # Multiply the work of a call.
    n: _Whole = None
    best_of: _Whole = None
    logprobs: _Whole = None
    top_logprobs: _Whole = None
    prompt_logprobs: _Whole = None
    stop: Any = None
    stop_token_ids: Any = None
    bad_words: Any = None
    # Steer the engine. vLLM's:
    cache_salt: Any = None
    chat_template: Any = None
    ec_transfer_params: Any = None
    kv_transfer_params: Any = None
    logits_processors: Any = None
    media_io_kwargs: Any = None
    mm_payload: Any = None
    mm_processor_kwargs: Any = None
    priority: Any = None
    prompt_embeds: Any = None
    request_id: Any = None
    session_id: Any = None
    vllm_xargs: Any = None  # may contain kv_transfer_params
    # SGLang's:
    bootstrap_host: Any = None
    bootstrap_port: Any = None
    bootstrap_room: Any = None
    custom_logit_processor: Any = None
    data_parallel_rank: Any = None
    extra_key: Any = None
    input_embeds: Any = None
    lora_path: Any = None
    rid: Any = None
    session_params: Any = None
    # llama.cpp's:
    id_slot: Any = None
    lora: Any = None


_FIELDS: Final = LimitedFields.__struct_fields__
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

decode: Final = msgspec.json.Decoder(LimitedFields).decode


def number_rejection(error: msgspec.ValidationError) -> Rejection | None:
    """The rejection for an invalid number that `decode` found; None for any other error."""
    path = _ERROR_PATH.search(str(error))
    if path is None:
        return None
    message = f"`{path[1]}` must be a finite number with at most {_SAFE_DIGITS} digits."
    return Rejection(INVALID_VALUE, message, path[1])


def check(request: LimitedFields) -> Rejection | tuple[str, ...]:
    """The ENGINE_FIELDS that the request sets, or the rejection of a request that is too much work."""
    values = astuple(request)
    if values[_MULTIPLIERS:] == _ALL_ABSENT:
        return ()
    for field, value in zip(_FIELDS[_MULTIPLIERS:_ENGINE], values[_MULTIPLIERS:_ENGINE], strict=True):
        if value is not None and (rejection := _check_size(field, value)) is not None:
            return rejection
    return tuple(field for field in ENGINE_FIELDS if getattr(request, field) is not None)


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
