"""What a whole chat answer says, and what its request asked of it: for those who judge answers."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct


class Said(NamedTuple):
    """One choice of an answer. `calls` tells that it calls a tool, `refused` that it names a refusal."""

    text: str
    finish: str
    calls: bool
    refused: bool
    logprobs: Sequence[float]


class AskedForm(NamedTuple):
    """`json` tells that the answer must be JSON, `schema` is its shape or None, `capped` that the client set
    the longest answer itself.
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


class _Request(Struct, gc=False):
    response_format: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


_answer: Final = msgspec.json.Decoder(_Answer).decode
_request: Final = msgspec.json.Decoder(_Request).decode


def said(body: bytes) -> list[Said]:
    """Every choice; nothing of an answer that has another shape."""
    try:
        choices = _answer(body).choices
    except (msgspec.DecodeError, RecursionError):
        return []
    return [
        Said(
            one.message.content or "",
            one.finish_reason or "",
            bool(one.message.tool_calls or one.message.function_call),
            bool(one.message.refusal),
            [] if one.logprobs is None else [token.logprob for token in one.logprobs.content or ()],
        )
        for one in choices
    ]


def asked(body: bytes) -> AskedForm:
    """What a request's body says of the answer's form."""
    try:
        seen = _request(body)
    except (msgspec.DecodeError, RecursionError):
        return AskedForm(False, None, False)
    wanted = seen.response_format if isinstance(seen.response_format, dict) else {}
    held = wanted.get("json_schema")
    schema = held.get("schema") if isinstance(held, dict) else None
    capped = seen.max_tokens is not None or seen.max_completion_tokens is not None
    return AskedForm(wanted.get("type") in ("json_object", "json_schema"), schema, capped)
