"""The content of a whole chat answer and the format that its request asked for; used by answer checks."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.wire.json import lenient


class ChatChoice(NamedTuple):
    """One choice of an answer. `calls`: it calls a tool; `refused`: it has a `refusal`."""

    text: str
    finish: str
    calls: bool
    refused: bool
    logprobs: Sequence[float]


class AnswerFormat(NamedTuple):
    """The requested format: `json` if the answer must be JSON, its JSON Schema or None, and `capped` if the
    client limited the answer's length.
    """

    json: bool
    schema: Any
    capped: bool


class _Token(Struct, gc=False):
    logprob: float = 0.0


class _Logprobs(Struct, gc=False):
    content: list[_Token] | None = None


class _Message(Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None
    function_call: Any = None


class _Choice(Struct, gc=False):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Answer(Struct, gc=False):
    choices: list[_Choice]


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def read_choices(body: bytes) -> list[ChatChoice]:
    """The choices of an answer; none if it has another shape."""
    try:
        choices = _decode_answer(lenient.readable(body) or body).choices
    except (msgspec.DecodeError, RecursionError):
        return []
    return [
        ChatChoice(
            choice.message.content or "",
            choice.finish_reason or "",
            bool(choice.message.tool_calls or choice.message.function_call),
            bool(choice.message.refusal),
            [] if choice.logprobs is None else [token.logprob for token in choice.logprobs.content or ()],
        )
        for choice in choices
    ]


def read_format(fields: RequestFields | None) -> AnswerFormat:
    """The answer format that a request asks for."""
    if fields is None:
        return AnswerFormat(False, None, False)
    value = msgspec.json.decode(fields.response_format) if fields.response_format is not ABSENT else None
    response_format = value if isinstance(value, dict) else {}
    json_schema = response_format.get("json_schema")
    schema = json_schema.get("schema") if isinstance(json_schema, dict) else None
    capped = fields.max_tokens is not None or fields.max_completion_tokens is not None
    return AnswerFormat(response_format.get("type") in ("json_object", "json_schema"), schema, capped)
