"""What a request needs of whatever answers it, beyond text in and text out."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

NOTHING: Final[frozenset[str]] = frozenset()

_ABSENT: Final = Raw(b"")
_NO_LIST: Final = (b"", b"null", b"[]")
_PARTS: Final = {
    "image_url": "vision",
    "input_image": "vision",
    "video_url": "vision",
    "input_audio": "audio",
    "audio_url": "audio",
}


class _Request(Struct, gc=False):
    tools: Raw = _ABSENT
    functions: Raw = _ABSENT
    response_format: Raw = _ABSENT
    modalities: Raw = _ABSENT
    messages: Raw = _ABSENT


class _Part(Struct, gc=False):
    type: Any = None


class _Message(Struct, gc=False):
    content: str | list[_Part] | None = None


_decode = msgspec.json.Decoder(_Request).decode
_decode_part = msgspec.json.Decoder(_Part).decode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_PART_MARKS: Final = (b'_url"', b'"input_')
"""One of these is in the name of every part."""
_MARKS: Final = (*_PART_MARKS, b'"tools"', b'"functions"', b'"json_schema"', b'"audio"')
"""One of these is in every body that needs something."""
_LARGE: Final = 4 * 1024
"""Bytes; what is larger is decoded sooner than searched for the marks."""


def needs(body: bytes) -> frozenset[str]:
    """What this body uses of `tools`, `vision`, `json_schema`, `audio`; nothing, if it cannot be read."""
    if len(body) <= _LARGE and not _marked(body, _MARKS):
        return NOTHING
    try:
        seen = _decode(body)
        found = set(_in_messages(bytes(seen.messages)))
        if bytes(seen.tools) not in _NO_LIST or bytes(seen.functions) not in _NO_LIST:
            found.add("tools")
        if b"json_schema" in bytes(seen.response_format) and _type(seen.response_format) == "json_schema":
            found.add("json_schema")
        if b'"audio"' in bytes(seen.modalities):
            found.add("audio")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return NOTHING
    return frozenset(found) if found else NOTHING


def _in_messages(messages: bytes) -> set[str]:
    # In a text of the client's the quotes would be escaped: the marks stand where parts do, and seldom else.
    if len(messages) <= _LARGE and not _marked(messages, _PART_MARKS):
        return set()
    try:
        contents = [one.content for one in _decode_messages(messages)]
    except msgspec.DecodeError:
        return set()
    kinds = [part.type for content in contents if isinstance(content, list) for part in content]
    return {_PARTS[kind] for kind in kinds if isinstance(kind, str) and kind in _PARTS}


def _marked(text: bytes, marks: tuple[bytes, ...]) -> bool:
    for mark in marks:  # noqa: SIM110 - `any` costs more than all of it
        if mark in text:
            return True
    return False


def _type(value: Raw) -> object:
    return _decode_part(value).type
