"""Replaces the value of the top-level `model` key in JSON bytes and leaves every other byte unchanged.

Nothing is re-encoded, so numbers, spacing, key order and unknown fields reach the other side exactly as sent.
Callers have already parsed the text (a typed peek), so the input is one valid JSON object.
"""

import re
from collections.abc import Sequence

import msgspec

from gateway.wire.json.find import find

_MEMBER = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")?', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_NAME = b'"model"'
_LONGEST_SPELLING = len(rb'"\u006d\u006f\u0064\u0065\u006c"')

Span = tuple[int, int]
"""The position of a value: `text[start:end]`, quotes included. Empty for a value that is not a string."""


def model_spans(text: bytes) -> list[Span]:
    """Every top-level `model` value of a JSON object that has at least one, in order of appearance.

    The fast path is exact: the object has the key (the caller's peek saw it), a key without an escape has one
    spelling, and that spelling followed by a colon cannot occur inside a string. So a single match in a text
    without `\\u006` escapes (of d, e, l, m, o) is the key. Any other text is scanned by token.
    """
    at = find(text, _NAME)
    match = _MEMBER.match(text, at) if at >= 0 else None
    # Testing for any backslash first is nearly free, and base64 images have none.
    plain = b"\\" not in text or b"\\u006" not in text
    if match is not None and plain and find(text, _NAME, match.end()) < 0:
        return [match.span(1) if match.start(1) >= 0 else (match.end(), match.end())]
    return _scan(text)


def replace(text: bytes, spans: Sequence[Span], name: bytes) -> bytes:
    """`text` with the value at each span replaced by `name` (a JSON string, quotes included)."""
    return b"".join(parts(text, spans, name))


def parts(text: bytes, spans: Sequence[Span], name: bytes) -> list[bytes | memoryview]:
    """Like `replace`, but in pieces, so that a body of many megabytes is not copied."""
    view = memoryview(text)
    if len(spans) == 1:  # nearly always
        start, end = spans[0]
        if end > start:
            return [view[:start], name, view[end:]]
    out: list[bytes | memoryview] = []
    at = 0
    for start, end in spans:
        if end > start:
            out += (view[at:start], name)
            at = end
    out.append(view[at:])
    return out


def _value_at(text: bytes, start: int) -> Span:
    string = _STRING.match(text, start)
    return start, string.end() if string else start


def _scan(text: bytes) -> list[Span]:
    spans: list[Span] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        mark = text[start]
        if mark == 0x22:  # a quote
            if depth != 1 or end - start > _LONGEST_SPELLING:
                continue
            colon = _COLON.match(text, end)
            if colon is not None and _unescaped(token.group()) == "model":
                spans.append(_value_at(text, colon.end()))
        else:
            depth += 1 if mark in b"{[" else -1
    return spans


def _unescaped(token: bytes) -> object:
    try:
        return msgspec.json.decode(token)
    except msgspec.DecodeError:  # a lone surrogate: no spelling of `model`
        return None
