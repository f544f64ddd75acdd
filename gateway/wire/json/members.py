"""The top-level members of a JSON object as positions in its bytes, to edit or cut one in place.

As in `splice`, nothing is re-encoded, and a typed peek has already validated the text as one JSON object.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

_SPACE = rb"[ \t\r\n]*"
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?" + _SPACE + rb"\{" + _SPACE)
_NAME = re.compile(rb"(" + _TEXT + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_PLAIN_VALUE = re.compile(_TEXT + rb"|[^ \t\r\n,}\]{\[]+", re.DOTALL)
_TOKEN = re.compile(_TEXT + rb"|[{}\[\]]", re.DOTALL)
_AFTER = re.compile(_SPACE + rb"(,?)" + _SPACE)

Edit = tuple[int, int, bytes]
"""Start, end and replacement: `text[start:end]` becomes these bytes."""


class JsonMember(NamedTuple):
    """One member: its name begins at `start`, its value is `text[value:end]`.

    `comma` is the position of the comma before it (for the first member, `start`); `after` is the position of
    the next member or of the closing brace.
    """

    name: bytes
    comma: int
    start: int
    value: int
    end: int
    after: int

    def called(self, name: str) -> bool:
        """Whether the member has this name, in any spelling."""
        if b"\\" in self.name:
            try:
                return bool(msgspec.json.decode(self.name) == name)
            except msgspec.DecodeError:  # a lone surrogate, which none of our names has
                return False
        return self.name[1:-1] == name.encode()


def members(text: bytes) -> Iterator[JsonMember]:
    """Every member in order of appearance; names may repeat."""
    opening = _OPENING.match(text)
    at = comma = opening.end() if opening else len(text)
    while name := _NAME.match(text, at):
        end = _value_end(text, name.end())
        after = _AFTER.match(text, end)
        if after is None:
            raise AssertionError("the pattern matches an empty text")
        yield JsonMember(name[1], comma, at, name.end(), end, after.end())
        at, comma = after.end(), after.start(1)


def cuts(text: bytes, name: str) -> list[Edit]:
    """The edits that remove every member of this name, each with one comma."""
    out: list[Edit] = []
    preceded = False  # by a member that stays
    for member in members(text):
        if not member.called(name):
            preceded = True
        elif preceded:
            out.append((member.comma, member.end, b""))
        else:
            out.append((member.start, member.after, b""))
    return out


def edited(text: bytes, edits: Iterable[Edit]) -> list[bytes | memoryview]:
    """`text` with the edits applied, in pieces, so that a body of many megabytes is not copied."""
    view = memoryview(text)
    out: list[bytes | memoryview] = []
    at = 0
    for start, end, new in sorted(edits):
        out += (view[at:start], new)
        at = end
    out.append(view[at:])
    return out


def object_of(fields: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """The JSON object with these members, whose values are already JSON."""
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
