"""The header `traceparent` of W3C Trace Context: who has called, and whether it is recorded there."""

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)


class Parent(NamedTuple):
    """The caller's span, its trace, and whether it is recorded."""

    trace_id: int
    span_id: int
    sampled: bool


def read(given: str | None) -> Parent | None:
    """None without the header, and where it is malformed: the trace then begins here."""
    found = _FORM.fullmatch(given) if given is not None else None
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    parent = Parent(int(found["trace"], 16), int(found["parent"], 16), bool(int(found["flags"], 16) & 1))
    return parent if parent.trace_id and parent.span_id else None
