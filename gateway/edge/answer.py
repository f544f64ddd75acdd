"""Write whole answers to a client, as bytes straight to its transport.

Every head that a client sees is rendered here, so every header in it is written here or handed in. Headers
are handed in as text, `name: value` with CRLF behind each.
"""

import math
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway import clock
from gateway.errors import Refusal
from gateway.wire.openai import render_error

JSON = "Content-Type: application/json\r\n"

_LARGE = 64 * 1024  # bytes from which head and body are written apart rather than joined


class Answer(web.StreamResponse):
    """A whole answer. aiohttp calls `prepare` and `write_eof`; nothing of its own rendering is used."""

    def __init__(self, status: int, headers: str, body: bytes, *, close: bool = False) -> None:
        # aiohttp's own initialiser builds headers and state that nobody would read.
        self._answer_status = status
        self._headers_text = headers
        self._content = body
        self._close = close
        self._written = False

    @classmethod
    def refusal(cls, refusal: Refusal, headers: str, *, close: bool = False) -> "Answer":
        """The answer for a refusal, with its advice on retrying."""
        kind = refusal.kind
        body = render_error(refusal.message, kind.type, refusal.param, kind.code or None)
        return cls(kind.status, JSON + _advice(refusal) + lines(refusal.headers) + headers, body, close=close)

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
        body, status, headers = self._content, self._answer_status, self._headers_text
        if status != 204:
            headers = f"Content-Length: {len(body)}\r\n{headers}"
        head = render_head(request, status, headers, keep_alive=bool(self._keep_alive))
        if request.method == "HEAD":
            body = b""
        if len(body) < _LARGE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Everything has been written by `prepare`."""


def lines(headers: Iterable[tuple[str, str]]) -> str:
    """Pairs as text."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


def _advice(refusal: Refusal) -> str:
    """`retry-after` in both units, or `x-should-retry: false`; never both."""
    if refusal.retry_after is not None:
        ms = max(1, math.ceil(refusal.retry_after * 1000 - 1e-6))  # 0.35 s is 350.00000000000006 ms
        return f"Retry-After: {max(1, math.ceil(ms / 1000))}\r\nRetry-After-Ms: {ms}\r\n"
    told = any(name == "x-should-retry" for name, _ in refusal.headers)
    return "x-should-retry: false\r\n" if refusal.kind.final and not told else ""


def render_head(request: web.BaseRequest, status: int, headers: str, *, keep_alive: bool) -> bytes:
    """Status line, date and these headers, up to and with the empty line."""
    version = request.version
    connection = ""
    if not keep_alive:
        connection = "Connection: close\r\n"
    elif version < HttpVersion11:
        connection = "Connection: keep-alive\r\n"
    head = f"{_status_line(version, status)}{_date(clock.unix_now())}{headers}{connection}\r\n"
    return head.encode("latin-1", "replace")


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
