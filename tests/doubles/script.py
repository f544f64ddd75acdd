"""What a fault upstream does with one request: a list of steps, and the bytes that the steps write.

A step is bytes (one write), `Drip` (many small writes), `Pause`, `Until` (wait for an event) or one of `Act`.
A script that ends without FIN or RST leaves the connection open for the next request.
"""

import asyncio
import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Act(enum.Enum):
    """Steps without a value."""

    FIN = "close the connection in good order"
    RST = "reset the connection"
    NEVER = "do nothing until the peer closes"
    UNREAD = "as the first step: leave the request body unread"


FIN, RST, NEVER, UNREAD = Act.FIN, Act.RST, Act.NEVER, Act.UNREAD


@dataclass(frozen=True)
class Drip:
    """Writes data in pieces of `size` bytes, `gap` seconds apart (0: a turn of the event loop)."""

    data: bytes
    size: int = 1
    gap: float = 0.0


@dataclass(frozen=True)
class Pause:
    """Waits for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Waits for an event of the upstream's event loop."""

    event: asyncio.Event


Step = bytes | Drip | Pause | Until | Act
Script = Sequence[Step]
Headers = Iterable[tuple[str, str]]

LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def head(status: int = 200, headers: Headers = (), reason: str = "Fault") -> bytes:
    """A response head."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def full(body: bytes, status: int = 200, content_type: str = "application/json", headers: Headers = ()) -> bytes:
    """A whole response with a Content-Length, as one write."""
    framing = [("content-type", content_type), ("content-length", str(len(body)))]
    return head(status, [*framing, *headers]) + body


def frame(data: bytes) -> bytes:
    """Data framed as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse_head(headers: Headers = ()) -> bytes:
    """The head of a chunked event stream."""
    return head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), *headers])


def compact(value: Any) -> bytes:
    """JSON as engines write it: compact and in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(value: Any) -> bytes:
    """One `data:` event with a JSON value."""
    return b"data: " + compact(value) + b"\n\n"


def delta(values: dict[str, Any], *, finish: str | None = None, model: str = "up-small") -> bytes:
    """One chunk event with this delta."""
    choice = {"index": 0, "delta": values, "finish_reason": finish}
    return event(_chunk(model, [choice]))


def piece(text: str, model: str = "up-small") -> bytes:
    """One chunk event with this content."""
    return delta({"content": text}, model=model)


def stop(model: str = "up-small", finish: str = "stop") -> bytes:
    """The chunk event that carries the finish reason."""
    return delta({}, finish=finish, model=model)


def usage(prompt: int, completion: int, model: str = "up-small") -> bytes:
    """The usage chunk event: its choices are empty."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return event({**_chunk(model, []), "usage": counts})


def _chunk(model: str, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": choices,
    }


def stream(*events: bytes, end: bool = True) -> list[Step]:
    """An event stream, one write an event; with `end` its chunked body ends properly."""
    return [sse_head(), *(frame(data) for data in events), *([LAST_CHUNK] if end else [])]
