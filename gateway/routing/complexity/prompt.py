"""Reads the prompt of a request."""

from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.routing.complexity.features import Prompt
from gateway.wire.request_body import begins, turns_of

_NOTHING: Final = Raw(b"null")
_MAX_CAP: Final = 10**6
_END_BYTES: Final = 512
_USER: Final = b'"user"'


class PeekedPrompt(NamedTuple):
    """The scored prompt; `opening` identifies the conversation by its messages up to the first user turn."""

    prompt: Prompt
    opening: bytes


_decode_list: Final = msgspec.json.Decoder(list[Raw]).decode
_decode: Final = msgspec.json.Decoder().decode


def peek(fields: RequestFields | None) -> PeekedPrompt | None:
    """Return the last user turn of a chat call, or the prompt of a completions call.

    None if the request has another shape; the upstream reports such errors.
    """
    if fields is None:
        return None
    turns = turns_of(fields)
    try:
        if not turns:
            return (
                None if begins(fields.messages, b"[") and len(memoryview(fields.messages)) > 2 else _completion(fields)
            )
        roles = [bytes(turn.get("role", _NOTHING)) for turn in turns]
        questions = roles.count(_USER)
        if not questions:
            return None
        contents = [turn.get("content", _NOTHING) for turn in turns]
        last = contents[-1 - roles[::-1].index(_USER)]
        text = _text(last)
        tools = len(_decode_list(fields.tools)) if _given(fields.tools) else 0
    except (msgspec.DecodeError, RecursionError):
        return None
    context = len(b"".join(contents)) - len(memoryview(last))
    prompt = Prompt(text, questions, context, tools, _cap(fields), _schema(fields))
    return PeekedPrompt(prompt, b"".join(map(_abridged, contents[: roles.index(_USER) + 1])))


def _given(value: Raw) -> bool:
    return value is not ABSENT and bytes(value) != b"null"


def _abridged(content: Raw | bytes) -> bytes:
    """Return both ends of a message and its length, enough to identify it at a bounded cost."""
    view = memoryview(content)
    return b"".join((view[:_END_BYTES], view[-_END_BYTES:], b"%d\0" % len(view)))


def _completion(fields: RequestFields) -> PeekedPrompt | None:
    text = _decode(fields.prompt) if fields.prompt is not ABSENT else None
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if not isinstance(text, str):
        return None
    opening = _abridged(text.encode("utf-8", "surrogatepass"))
    return PeekedPrompt(Prompt(text, max_output=_cap(fields)), opening)


def _text(raw: Raw) -> str:
    """Return a message's text: of all its text parts, if it has parts."""
    content = _decode(raw)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join([part for part in parts if isinstance(part, str)])


def _cap(fields: RequestFields) -> int:
    for cap in (fields.max_completion_tokens, fields.max_tokens):
        if isinstance(cap, int) and cap > 0:
            return min(cap, _MAX_CAP)
    return 0


def _schema(fields: RequestFields) -> bool:
    return b"json_schema" in bytes(fields.response_format)
