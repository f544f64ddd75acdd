"""Write answers to a client, as bytes straight to its transport.

`Answer` is a whole one, `ClientStream` one that grows. Both render their own heads, so every header that a
client sees is written in this file or handed to it.
"""

import asyncio
import math
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway import clock
from gateway.errors import Refusal
from gateway.wire.openai import render_error

Headers = list[tuple[str, str]]

_LARGE = 64 * 1024  # bytes from which head and body are written apart rather than joined
JSON: Headers = [("Content-Type", "application/json")]


class Answer(web.StreamResponse):
    """A whole answer. aiohttp calls `prepare` and `write_eof`; nothing of its own rendering is used."""

    def __init__(self, status: int, headers: Headers, body: bytes, *, close: bool = False) -> None:
        # aiohttp's own initialiser builds headers and state that nobody would read.
        self._answer_status = status
        self._fields = headers
        self._content = body
        self._close = close
        self._written = False

    @classmethod
    def refusal(cls, refusal: Refusal, headers: Headers, *, close: bool = False) -> "Answer":
        """The answer for a refusal, with its advice on retrying."""
        kind = refusal.kind
        body = render_error(refusal.message, kind.type, refusal.param, kind.code or None)
        return cls(kind.status, [*JSON, *_advice(refusal), *refusal.headers, *headers], body, close=close)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write head and body; a second call does nothing."""
        transport = request.transport
        if self._written or transport is None:
            return None
        self._written = True
        if self._close or not request.keep_alive:
            self.force_close()
        else:
            self._keep_alive = True
        fields = self._fields
        if self._answer_status != 204:
            fields.append(("Content-Length", str(len(self._content))))
        head = _head(request, self._answer_status, fields, keep_alive=bool(self._keep_alive))
        body = b"" if request.method == "HEAD" else self._content
        if len(body) < _LARGE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Everything has been written by `prepare`."""


class ClientStream(web.StreamResponse):
    """A stream of events to a client: a head, pieces, then a good end or none.

    Must be told apart at its end: `end()` closes the chunked body, so that the client knows it is whole;
    without it the connection ends with FIN and the client knows it is not.
    """

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._chunked_body = request.version >= HttpVersion11
        self._keep_alive = False  # until the body has ended well
        self._transport = cast(asyncio.Transport, request.transport)
        self.started = False
        self.written_at = 0.0

    def start(self, headers: Headers, now: float) -> None:
        """Commit the 200."""
        self.started = True
        self.written_at = now
        framing = [("Transfer-Encoding", "chunked")] if self._chunked_body else []
        fields = [*framing, *_EVENT_STREAM, *headers]
        keep_alive = self._chunked_body and self._request.keep_alive
        self._transport.write(_head(self._request, 200, fields, keep_alive=keep_alive))

    def send(self, events: bytes, now: float) -> None:
        """Send whole events (or comments)."""
        self.written_at = now
        if self._chunked_body:
            self._transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        else:
            self._transport.write(events)

    def end(self) -> None:
        """A good end."""
        if self._chunked_body:
            self._transport.write(b"0\r\n\r\n")
            self._keep_alive = self._request.keep_alive

    def abandon(self) -> None:
        """Drop the client at once: it has not read for too long."""
        self._transport.abort()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing is left to do when aiohttp asks."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing either; without `end()` the connection is closed behind what was written."""


_EVENT_STREAM: Headers = [
    ("Content-Type", "text/event-stream; charset=utf-8"),
    ("Cache-Control", "no-cache"),
    ("X-Accel-Buffering", "no"),  # nginx and its relatives would hold events back
]


def _advice(refusal: Refusal) -> Headers:
    """`retry-after` in both units, or `x-should-retry: false`; never both."""
    if refusal.retry_after is not None:
        ms = max(1, math.ceil(refusal.retry_after * 1000))
        return [("Retry-After", str(max(1, math.ceil(ms / 1000)))), ("Retry-After-Ms", str(ms))]
    told = any(name == "x-should-retry" for name, _ in refusal.headers)
    return [("x-should-retry", "false")] if refusal.kind.final and not told else []


def _head(
    request: web.BaseRequest, status: int, headers: Iterable[tuple[str, str]], *, keep_alive: bool
) -> bytes:
    version = request.version
    lines = [_status_line(version, status), _date(clock.unix_now())]
    lines += [f"{name}: {value}\r\n" for name, value in headers]
    if not keep_alive:
        lines.append("Connection: close\r\n")
    elif version < HttpVersion11:
        lines.append("Connection: keep-alive\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _status_line(version: tuple[int, int], status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/{version[0]}.{version[1]} {status} {phrase}\r\n"


@lru_cache(maxsize=2)
def _date(unix: int) -> str:
    return f"Date: {formatdate(unix, usegmt=True)}\r\n"
