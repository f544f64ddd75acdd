"""Named events, and the ways in which an answer can break off."""

from collections.abc import Sequence
from typing import Any

from doubles.script import FIN, LAST_CHUNK, NEVER, RST, Script, Step, compact, frame, head, sse_head

Event = dict[str, Any]


def named(value: Event) -> bytes:
    """One event with its type as its name."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), compact(value))


def broken_streams(events: Sequence[bytes], error: bytes) -> dict[str, Script]:
    """Every way in which this complete stream can end early; `error` is the wire's own error event."""
    begun: list[Step] = [sse_head(), frame(events[0])]
    rest = [frame(event) for event in events[1:-1]]
    last = events[-1]
    return {
        "closed before the head": [FIN],
        "reset before the head": [RST],
        "closed inside the head": [sse_head()[:20], FIN],
        "closed before an event": [sse_head(), FIN],
        "ended before an event": [sse_head(), LAST_CHUNK],
        "an error as the first event": [sse_head(), frame(error), LAST_CHUNK],
        "closed after the first event": [*begun, FIN],
        "reset after the first event": [*begun, RST],
        "ended after the first event": [*begun, LAST_CHUNK],
        "closed inside an event": [*begun, frame(events[1][: len(events[1]) // 2]), FIN],
        "ended inside an event": [*begun, frame(events[1][: len(events[1]) // 2]), LAST_CHUNK],
        "closed inside a chunk": [*begun, frame(events[1])[: len(events[1]) // 2], FIN],
        "an error after the first event": [*begun, frame(error), LAST_CHUNK],
        "an error before the last event": [*begun, *rest, frame(error), LAST_CHUNK],
        "ended without the last event": [*begun, *rest, LAST_CHUNK],
        "closed without the last event": [*begun, *rest, FIN],
        "ended inside the last event": [*begun, *rest, frame(last[:-1].rstrip(b"\n")[:-2]), LAST_CHUNK],
        "no blank line after the last event": [*begun, *rest, frame(last.rstrip(b"\n")), LAST_CHUNK],
    }


def silent_streams(events: Sequence[bytes]) -> dict[str, Script]:
    """The places at which an upstream can go silent and keep its connection open."""
    begun: list[Step] = [sse_head(), frame(events[0])]
    return {
        "silent before the head": [NEVER],
        "silent before an event": [sse_head(), NEVER],
        "silent after the first event": [*begun, NEVER],
        "silent before the last event": [*begun, *map(frame, events[1:-1]), NEVER],
    }


def broken_bodies(body: bytes, content_type: str = "application/json") -> dict[str, Script]:
    """Every way in which this whole answer can break off."""
    half = body[: len(body) // 2]
    sized = head(200, [("content-type", content_type), ("content-length", str(len(body)))])
    chunked = head(200, [("content-type", content_type), ("transfer-encoding", "chunked")])
    return {
        "closed before the head": [FIN],
        "reset before the head": [RST],
        "closed inside the head": [sized[:20], FIN],
        "closed before the body": [sized, FIN],
        "closed inside the body": [sized + half, FIN],
        "reset inside the body": [sized + half, RST],
        "closed inside a chunked body": [chunked, frame(half), FIN],
        "silent inside the body": [sized + half, NEVER],
    }
