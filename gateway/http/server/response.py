"""Writes whole responses as bytes straight to the client's transport.

Every response head is rendered here; headers from elsewhere arrive as text, `name: value` lines each ended
by CRLF.
"""

import math
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion11

from gateway.core import clock
from gateway.core.call import ClientRequest
from gateway.core.errors import Rejection
from gateway.http.server.connection import Request

JSON = "Content-Type: application/json\r\n"

_LARGE = 64 * 1024  # bytes from which head and body are written separately instead of joined


class Response:
    """A whole response; `write` it once. `keep_alive` is this response's part in that decision."""

    __slots__ = ("_body", "_headers", "_status", "keep_alive")

    def __init__(self, status: int, headers: str, body: bytes, *, close: bool = False) -> None:
        self._status = status
        self._headers = headers
        self._body = body
        self.keep_alive = not close

    @classmethod
    def rejection(cls, asked: ClientRequest, rejection: Rejection, headers: str, *, close: bool = False) -> "Response":
        """The error response for a rejection, in the shape of the endpoint, with its retry advice."""
        errors = asked.endpoint.errors
        headers = JSON + _retry_advice(rejection) + header_lines(rejection.headers) + headers
        return cls(errors.status(rejection.kind), headers, errors.body(rejection, asked.id), close=close)

    def write(self, request: Request) -> None:
        """Write head and body, unless the client has disconnected."""
        transport = request.transport
        if transport is None:
            return
        if not request.keep_alive:
            self.keep_alive = False
        body, status, headers = self._body, self._status, self._headers
        if status != 204:
            headers = f"Content-Length: {len(body)}\r\n{headers}"
        head = render_head(request, status, headers, keep_alive=self.keep_alive)
        if request.method == "HEAD":
            body = b""
        if len(body) < _LARGE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Name and value pairs as header lines."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


def _retry_advice(rejection: Rejection) -> str:
    """`retry-after` in both units, or `x-should-retry: false`; never both."""
    if rejection.retry_after is not None:
        ms = max(1, math.ceil(rejection.retry_after * 1000 - 1e-6))  # 0.35 s is 350.00000000000006 ms
        return f"Retry-After: {max(1, math.ceil(ms / 1000))}\r\nRetry-After-Ms: {ms}\r\n"
    if rejection.kind.retryable or any(name == "x-should-retry" for name, _ in rejection.headers):
        return ""
    return "x-should-retry: false\r\n"


def render_head(request: Request, status: int, headers: str, *, keep_alive: bool) -> bytes:
    """Status line, date and the given headers, including the empty line at the end."""
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
