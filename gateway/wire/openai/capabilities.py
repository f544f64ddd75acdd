"""The capabilities that a request needs beyond text in and text out."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.request_fields import RequestFields

NOTHING: Final[frozenset[str]] = frozenset()

_NO_LIST: Final = (b"", b"null", b"[]")
_PARTS: Final = {
    "image_url": "vision",
    "input_image": "vision",
    "video_url": "vision",
    "input_audio": "audio",
    "audio_url": "audio",
    "tool_use": "tools",
    "tool_result": "tools",
}


class _Part(Struct, gc=False):
    type: Any = None


class _Message(Struct, gc=False):
    content: str | list[_Part] | None = None
    role: Any = None
    tool_calls: Any = None
    function_call: Any = None


_TOOL_ROLES: Final = ("tool", "function")

_decode_part = msgspec.json.Decoder(_Part).decode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_PART_MARKS: Final = (b'_url"', b'"input_', b'"tool_', b'"tool"', b'"function')
"""Every message that needs a capability contains one of these."""
_LARGE: Final = 4 * 1024
"""Bytes from which decoding is faster than searching for the marks."""


def needs(fields: RequestFields | None) -> frozenset[str]:
    """Which of `tools`, `vision`, `json_schema`, `audio` this request uses; none if it is unreadable."""
    if fields is None:
        return NOTHING
    capabilities = _needed_by(bytes(fields.messages))
    if bytes(fields.tools) not in _NO_LIST or bytes(fields.functions) not in _NO_LIST:
        capabilities.add("tools")
    response_format = fields.response_format
    if b"json_schema" in bytes(response_format) and _type(response_format) == "json_schema":
        capabilities.add("json_schema")
    if b'"audio"' in bytes(fields.modalities):
        capabilities.add("audio")
    return frozenset(capabilities) if capabilities else NOTHING


def _needed_by(messages: bytes) -> set[str]:
    # Quotes inside a client's text are escaped, so the marks rarely appear except in parts.
    if len(messages) <= _LARGE and not _marked(messages, _PART_MARKS):
        return set()
    try:
        decoded = _decode_messages(messages)
    except (msgspec.DecodeError, RecursionError):
        return set()
    types = [part.type for message in decoded if isinstance(message.content, list) for part in message.content]
    found = {_PARTS[type_] for type_ in types if isinstance(type_, str) and type_ in _PARTS}
    if any(each.tool_calls or each.function_call or each.role in _TOOL_ROLES for each in decoded):
        found.add("tools")  # the history has tools in it, even where this request lists none
    return found


def _marked(text: bytes, marks: tuple[bytes, ...]) -> bool:
    for mark in marks:  # noqa: SIM110 - `any` costs more than the whole loop
        if mark in text:
            return True
    return False


def _type(value: Raw) -> object:
    try:
        return _decode_part(value).type
    except msgspec.DecodeError:
        return None
