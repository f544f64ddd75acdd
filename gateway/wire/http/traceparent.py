"""Reads the `traceparent` header of W3C Trace Context."""

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)


class Parent(NamedTuple):
    """The caller's trace and span, and whether the caller records it."""

    trace_id: int
    span_id: int
    sampled: bool


def read(header: str | None) -> Parent | None:
    """The caller's span; None if the header is absent or malformed, so that a new trace begins."""
    match = _FORM.fullmatch(header) if header is not None else None
    if match is None or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
        return None
    parent = Parent(int(match["trace"], 16), int(match["parent"], 16), bool(int(match["flags"], 16) & 1))
    return parent if parent.trace_id and parent.span_id else None
