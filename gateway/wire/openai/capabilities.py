"""The capabilities that a request needs beyond text in and text out."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.request_fields import RequestFields
from gateway.wire.request_body import Turn, begins, turns_of

NOTHING: Final[frozenset[str]] = frozenset()

_NO_LIST: Final = (b"", b"null", b"[]")
_PARTS: Final = {
    "image_url": "vision",
    "image": "vision",
    "input_image": "vision",
    "video_url": "vision",
    "input_audio": "audio",
    "audio_url": "audio",
    "tool_use": "tools",
    "tool_result": "tools",
}


_NONE: Final = Raw(b"null")
_NO_CALLS: Final = (b"null", b"[]", b"{}")
_TOOL_ROLES: Final = (b'"tool"', b'"function"')
_LONGEST_ROLE: Final = 16


class _Part(Struct, gc=False):
    type: Any = None


class _Text(Struct, gc=False):
    format: _Part | None = None


_decode_part = msgspec.json.Decoder(_Part).decode
_decode_parts = msgspec.json.Decoder(list[_Part]).decode
_decode_text = msgspec.json.Decoder(_Text).decode


def needs(fields: RequestFields | None) -> frozenset[str]:
    """Which of `tools`, `vision`, `json_schema`, `audio` this request uses; none if it is unreadable."""
    if fields is None:
        return NOTHING
    capabilities = _needed_by(turns_of(fields))
    if bytes(fields.tools) not in _NO_LIST or bytes(fields.functions) not in _NO_LIST:
        capabilities.add("tools")
    response_format = fields.response_format
    if b"json_schema" in bytes(response_format) and _type(response_format) == "json_schema":
        capabilities.add("json_schema")
    if b"json_schema" in bytes(fields.text) and _type_of_format(fields.text) == "json_schema":
        capabilities.add("json_schema")
    if b'"audio"' in bytes(fields.modalities):
        capabilities.add("audio")
    return frozenset(capabilities) if capabilities else NOTHING


def _needed_by(turns: Sequence[Turn]) -> set[str]:
    found: set[str] = set()
    for turn in turns:
        content = turn.get("content", _NONE)
        if begins(content, b"["):
            found.update(_PARTS[type_] for type_ in _types(content) if isinstance(type_, str) and type_ in _PARTS)
        # The history has tools in it, even where this request lists none.
        if _is_tool_turn(turn):
            found.add("tools")
    return found


def _types(parts: Raw) -> list[Any]:
    try:
        return [part.type for part in _decode_parts(parts)]
    except (msgspec.DecodeError, RecursionError):
        return []


def _is_tool_turn(turn: Turn) -> bool:
    if len(turn) > 2 and any(
        bytes(turn[name]) not in _NO_CALLS for name in ("tool_calls", "function_call") if name in turn
    ):
        return True
    role = turn.get("role", _NONE)
    return len(memoryview(role)) <= _LONGEST_ROLE and bytes(role) in _TOOL_ROLES


def _type(value: Raw) -> object:
    try:
        return _decode_part(value).type
    except msgspec.DecodeError:
        return None


def _type_of_format(text: Raw) -> object:
    """The type of the format that a responses request asks for."""
    try:
        format_ = _decode_text(text).format
    except msgspec.DecodeError:
        return None
    return None if format_ is None else format_.type
