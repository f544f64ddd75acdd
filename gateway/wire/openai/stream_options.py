"""Ask for a stream's usage in the request's bytes, where the client has not; know when that was refused."""

import re
from typing import Any

import msgspec

from gateway.wire.json.members import Edit, members

_NAME = "stream_options"
_FLAG = "include_usage"
_ASKS = b'"include_usage":true'
_WHOLE = b'{"include_usage":true}'

_REFUSED = re.compile(rb"stream_options|include_usage|extra inputs|unknown field", re.IGNORECASE)


class _Options(msgspec.Struct, gc=False):
    stream_options: Any = None


_decoder = msgspec.json.Decoder(_Options)


def asking(body: bytes) -> list[Edit]:
    """The edits by which this request (one valid JSON object, not empty) asks for usage.

    None where the client asks itself, and where `stream_options` or its flag is of a type that only the
    upstream can judge. Of repeated names the last one counts for what the client wants, as most parsers have
    it; edited are all of them, for those that take the first.
    """
    # Any backslash is looked for first: it costs nothing, and images in base64 have none.
    if b'"stream_options"' in body or (b"\\" in body and b"\\u00" in body):
        if not _unasked(body):
            return []
        spans = [(member.value, member.end) for member in members(body) if member.called(_NAME)]
        if spans:
            return [edit for start, end in spans for edit in _within(body[start:end], start)]
    brace = body.find(b"{") + 1
    return [(brace, brace, b'"stream_options":' + _WHOLE + b",")]


def refused(error: bytes) -> bool:
    """Whether the body of a 400 or 422 may be about `stream_options`."""
    return _REFUSED.search(error) is not None


def _unasked(body: bytes) -> bool:
    try:
        options = _decoder.decode(body).stream_options
    except (msgspec.DecodeError, RecursionError):  # such as a lone surrogate in it
        return False
    if isinstance(options, dict):
        options = options.get(_FLAG, False)
    return options is None or options is False


def _within(value: bytes, offset: int) -> list[Edit]:
    """The edits of one value of `stream_options`, which stands at `offset`."""
    if value == b"null":
        return [(offset, offset + len(value), _WHOLE)]
    if not value.startswith(b"{"):
        return []
    inside = list(members(value))
    flags = [member for member in inside if member.called(_FLAG)]
    if flags:
        return [(offset + flag.value, offset + flag.end, b"true") for flag in flags]
    return [(offset + 1, offset + 1, _ASKS + b"," if inside else _ASKS)]
