"""The top-level members of a JSON object, as places in its bytes: change or cut one, leave the rest alone.

As in `splice`, nothing is decoded and encoded again, and the text is known to be one valid JSON object, which
a typed peek has read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

_SPACE = rb"[ \t\r\n]*"
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_OPENING = re.compile(_SPACE + rb"\{" + _SPACE)
_NAME = re.compile(rb"(" + _TEXT + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_PLAIN_VALUE = re.compile(_TEXT + rb"|[^ \t\r\n,}\]{\[]+", re.DOTALL)
_TOKEN = re.compile(_TEXT + rb"|[{}\[\]]", re.DOTALL)
_AFTER = re.compile(_SPACE + rb"(,?)" + _SPACE)

Edit = tuple[int, int, bytes]
"""`text[start:end]` becomes these bytes."""


class JsonMember(NamedTuple):
    """One member: its name begins at `start`, its value is `text[value:end]`.

    `comma` is where the comma before it stands (for the first one, `start`); `after` is where the next member
    begins, or the object's closing brace.
    """

    name: bytes
    comma: int
    start: int
    value: int
    end: int
    after: int

    def called(self, name: str) -> bool:
        """Whether this is its name, however it is spelled."""
        if b"\\" in self.name:
            return bool(msgspec.json.decode(self.name) == name)
        return self.name[1:-1] == name.encode()


def members(text: bytes) -> Iterator[JsonMember]:
    """Every member in order of appearance; names may repeat."""
    opening = _OPENING.match(text)
    at = comma = opening.end() if opening else len(text)
    while name := _NAME.match(text, at):
        end = _value_end(text, name.end())
        after = _AFTER.match(text, end)
        if after is None:
            raise AssertionError("both parts of the pattern may be empty")
        yield JsonMember(name[1], comma, at, name.end(), end, after.end())
        at, comma = after.end(), after.start(1)


def cuts(text: bytes, name: str) -> list[Edit]:
    """The edits that take every member of this name out, each with one comma."""
    out: list[Edit] = []
    kept = False
    for member in members(text):
        if not member.called(name):
            kept = True
        elif kept:
            out.append((member.comma, member.end, b""))
        else:
            out.append((member.start, member.after, b""))
    return out


def edited(text: bytes, edits: Iterable[Edit]) -> list[bytes | memoryview]:
    """`text` with the edits made, in pieces, so that a body of many megabytes is not copied."""
    view = memoryview(text)
    out: list[bytes | memoryview] = []
    at = 0
    for start, end, new in sorted(edits):
        out += (view[at:start], new)
        at = end
    out.append(view[at:])
    return out


def object_of(fields: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """The object with these members, whose values are JSON already."""
    parts = [b"%b:%b" % (msgspec.json.encode(name), value) for name, value in fields.items()]
    return b"{%b}" % b",".join(parts)


def _value_end(text: bytes, start: int) -> int:
    plain = _PLAIN_VALUE.match(text, start)
    if plain is not None:
        return plain.end()
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token[0]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(text)
