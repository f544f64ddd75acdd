"""Bounds of a request that hold whatever stands behind the gateway, read in the peek that every body gets.

Three things are looked at, all of them members of the body itself: numbers that no engine can compute with,
numbers that multiply the work of a call, and fields that steer an engine instead of asking it for an answer.
Their absence costs one comparison. What else is wrong with a field is the upstream's business.
"""

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from gateway.core.errors import INVALID_VALUE, Rejection

MOST_CHOICES: Final = 128
"""`n` and `best_of`: OpenAI's own bound."""

MOST_LOGPROBS: Final = 128
"""Alternatives told for each token; OpenAI's bound is 20, and so is vLLM's unless it is raised."""

MOST_ENDS: Final = 1024
"""Entries of `stop`, `stop_token_ids` and `bad_words`, each of which is looked for at every token."""

# Engines read numbers in texts too; without letters none is "NaN", "Infinity" or "1e999".
_Text = Annotated[str, Meta(pattern=r"^[^A-Za-z]*$", max_length=64)]
_Other = bool | list[Any] | dict[str, Any] | None
_Real = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | _Text | _Other
"""What may stand where a number belongs: none that is infinite or NaN, or is as soon as it is a float."""
_Whole = int | float | _Text | _Other
"""The same for numbers that stay whole; Python's own limit of their digits holds."""


class LimitedFields(Struct, gc=False):
    """The members of a request that are looked at; None where one is absent or null."""

    model: Any = None
    stream: Any = None
    # The decoder itself checks these.
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
    # Those that multiply the work of a call.
    n: _Whole = None
    best_of: _Whole = None
    logprobs: _Whole = None
    top_logprobs: _Whole = None
    prompt_logprobs: _Whole = None
    stop: Any = None
    stop_token_ids: Any = None
    bad_words: Any = None
    # Those that steer the engine. vLLM's:
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
    vllm_xargs: Any = None  # kv_transfer_params may stand in it
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
"""Fields that steer the engine itself: how it schedules, what it loads, whom it asks, whose state it uses.

Whoever may send them can take another caller's place in the engine's queue or in its cache, make it ask an
address of his choice, or hand it data that its own code trusts.
"""

_RANGES: Final = {
    "n": (1, MOST_CHOICES),
    "best_of": (0, MOST_CHOICES),
    "logprobs": (0, MOST_LOGPROBS),
    "top_logprobs": (0, MOST_LOGPROBS),
    "prompt_logprobs": (0, MOST_LOGPROBS),
}
_NEITHER: Final = (None,) * (len(_FIELDS) - _MULTIPLIERS)
_PLACE = re.compile(r"`\$\.(\w+)")

decode: Final = msgspec.json.Decoder(LimitedFields).decode


def no_number(error: msgspec.ValidationError) -> Rejection | None:
    """The refusal for what `decode` does not take for a number; None for any other error of it."""
    place = _PLACE.search(str(error))
    if place is None:
        return None
    message = f"`{place[1]}` must be a number, a finite one and not of thousands of digits."
    return Rejection(INVALID_VALUE, message, place[1])


def look(asked: LimitedFields) -> Rejection | tuple[str, ...]:
    """Which of ENGINE_FIELDS are set, or why the request would be too much work."""
    values = astuple(asked)
    if values[_MULTIPLIERS:] == _NEITHER:
        return ()
    for field, value in zip(_FIELDS[_MULTIPLIERS:_ENGINE], values[_MULTIPLIERS:_ENGINE], strict=True):
        if value is not None and (refusal := _too_much(field, value)) is not None:
            return refusal
    return tuple(field for field in ENGINE_FIELDS if getattr(asked, field) is not None)


def _too_much(field: str, value: object) -> Rejection | None:
    if field not in _RANGES:
        if not isinstance(value, list) or len(value) <= MOST_ENDS:
            return None
        return Rejection(INVALID_VALUE, f"`{field}` may have at most {MOST_ENDS} entries.", field)
    low, high = _RANGES[field]
    if low <= _number(value, low) <= high:
        return None
    return Rejection(INVALID_VALUE, f"`{field}` must be a number from {low} to {high}.", field)


def _number(value: object, neutral: float) -> float:
    """A number, also in a text; `neutral` for what is none, which is the upstream's business."""
    if isinstance(value, bool):
        return neutral
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else neutral
    except ValueError:
        return neutral
