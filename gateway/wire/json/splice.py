"""Swap the value of the top-level `model` key in JSON bytes and leave every other byte alone.

Nothing is decoded and encoded again, so numbers, spacing, key order and unknown fields reach the other side
exactly as they were sent. The callers have already parsed the text once (a typed peek), so the input is known
to be one valid JSON object and only positions are looked for here.
"""

import re
from collections.abc import Sequence

import msgspec

from gateway.wire.json import find as names

_MEMBER = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")?', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_NAME = b'"model"'
_LONGEST_SPELLING = len(rb'"\u006d\u006f\u0064\u0065\u006c"')

Span = tuple[int, int]
"""Where a value stands: `text[start:end]`, quotes included. A value that is no string has no length."""


def model_spans(text: bytes) -> list[Span]:
    """Every top-level `model` value of a JSON object that has at least one, in order of appearance.

    The quick way is exact: the object has the key (the caller's peek saw it), a key without an escape is
    spelled in one way only, and that spelling followed by a colon cannot occur inside a string. So a single
    hit in a text without `\\u006` escapes (of d, e, l, m, o) is the key. Anything else is scanned by token.
    """
    at = names.find(text, _NAME)
    hit = _MEMBER.match(text, at) if at >= 0 else None
    # The look for any backslash first costs nothing, and images in base64 have none.
    plain = b"\\" not in text or b"\\u006" not in text
    if hit is not None and plain and names.find(text, _NAME, hit.end()) < 0:
        return [hit.span(1) if hit.start(1) >= 0 else (hit.end(), hit.end())]
    return _scan(text)


def replace(text: bytes, spans: Sequence[Span], name: bytes) -> bytes:
    """`text` with the value at each span replaced by `name` (a JSON string, quotes included)."""
    return b"".join(parts(text, spans, name))


def parts(text: bytes, spans: Sequence[Span], name: bytes) -> list[bytes | memoryview]:
    """As `replace`, but the pieces unjoined, so that a body of many megabytes is not copied."""
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
