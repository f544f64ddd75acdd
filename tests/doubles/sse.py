"""Parses the body of an event stream by the standard (WHATWG HTML, section 9.2.6)."""

import json
from typing import Any


def data_of(body: bytes) -> list[str]:
    """The data of every dispatched event; an event without its final blank line is not dispatched."""
    events: list[str] = []
    data: list[str] = []
    lines = body.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        if not line:
            events += ["\n".join(data)] if data else []
            data = []
        elif name == "data":
            data.append(value.removeprefix(" "))
    return events


def contents(body: bytes) -> str:
    """All `content` deltas of a chat stream, joined."""
    chunks = [json.loads(data) for data in data_of(body) if data != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
    return "".join(delta.get("content") or "" for delta in deltas)


def final_error(body: bytes) -> dict[str, Any]:
    """The error that ends a broken stream; asserts that it is the last event and the only error."""
    events = data_of(body)
    assert events, "no event at all"
    assert "[DONE]" not in events
    assert body.endswith(b"\n\n")
    last = json.loads(events[-1])
    assert set(last) == {"error"}, last
    error = last["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert not any('"error"' in event for event in events[:-1])
    return dict(error)
