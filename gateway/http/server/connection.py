"""A client's connection: flow control towards the client, and a bound on pipelined requests."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.http.server._aiohttp import SentResponse, ServerProtocol, ServerRequest

MAX_HEADER_BYTES: Final = 32 * 1024
"""Longest line of a request's head."""

MAX_PIPELINED_BYTES: Final = 64 * 1024
"""Bytes of pipelined requests that may wait."""

_REASON: Final = re.compile(r"[A-Za-z][A-Za-z0-9 `/-]{1,80}")


_PROTOCOLS: Final = (
    (
        re.compile(r"Received HTTPS traffic|b'\\x16\\x03"),
        "This port speaks plain HTTP, and the connection began with TLS; use http:// in the address, or put a "
        "proxy with a certificate in front.",
    ),
    (
        re.compile(r"Pause on PRI|HTTP/2\.0"),
        "This port speaks HTTP/1.1, and the connection began with HTTP/2; use HTTP/1.1.",
    ),
    (
        re.compile(r"b'(?:PROXY |\\x00'\n)"),
        "The connection began with the PROXY protocol; turn it off in the load balancer.",
    ),
    (re.compile(r"b'SSH-"), "This port speaks HTTP, and the connection began with SSH."),
    (re.compile(r"b'\*[0-9]+'"), "This port speaks HTTP, and the connection began with a Redis command."),
)
"""How the bytes of another protocol begin, as the parser shows them, and what to tell the client and the log."""


def other_protocol(error: BaseException | None) -> str | None:
    """A sentence about what the client spoke instead of HTTP/1.1; None if it was HTTP, or nothing known."""
    shown = str(getattr(error, "message", ""))
    return next((sentence for begin, sentence in _PROTOCOLS if begin.search(shown)), None)


def what_is_wrong(error: BaseException | None) -> str:
    """A sentence about a malformed request, from the parser; it quotes no header, which may hold a key."""
    protocol = other_protocol(error)
    if protocol is not None:
        return protocol
    if isinstance(error, LineTooLong):
        return f"A line of the request's head is longer than {MAX_HEADER_BYTES // 1024} KiB."
    reason = _REASON.match(str(getattr(error, "message", "")))
    return f"The HTTP request is malformed{'' if reason is None else f': {reason[0].strip()}'}."


class Request(ServerRequest):
    """A request on a `Connection`."""

    __slots__ = ()
    connection: "Connection"


ConnectionHandler = Callable[[Request], Awaitable[SentResponse]]
BadRequestResponder = Callable[[Request, int, BaseException | None], SentResponse]
"""Responds to a request that cannot be served, with this status; the exception is the bug behind a 500."""


class Connection(ServerProtocol):
    """One client's connection: whether the client can take more bytes, and how much it has sent ahead."""

    __slots__ = ("_drained", "_flushed", "body_read", "full", "pipelined_bytes", "serving")

    def __init__(
        self,
        manager: web.Server,
        serve: ConnectionHandler,
        respond_error: BadRequestResponder,
        **kwargs: Any,
    ) -> None:
        super().__init__(manager, Request, serve, respond_error, **kwargs)
        self.full = False  # the client reads more slowly than the gateway writes
        self.serving = False  # a request is under way
        self.body_read = False
        self.pipelined_bytes = 0  # received behind the body of the current request
        self._drained: Callable[[], None] | None = None
        self._flushed: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is under way or has begun to arrive."""
        return not self.serving and not self.has_begun and self.transport is not None

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Calls back each time the client has read enough for more to be written."""
        self._drained = callback

    async def flushed(self) -> None:
        """Waits until the write buffer has room again. The caller bounds the time."""
        if self.full:
            self._flushed = asyncio.get_running_loop().create_future()
            try:
                await self._flushed
            finally:
                self._flushed = None

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the client. A few pipelined requests may wait behind the current one.

        With more of them aiohttp would stop reading, and a client that leaves would not be noticed.
        """
        if self.serving and self.body_read:
            self.pipelined_bytes += len(data)
            if self.pipelined_bytes > MAX_PIPELINED_BYTES:
                self.force_close()
                return
        super().data_received(data)
        if self.serving and not self.body_read:
            self.fail_malformed_body()

    def pause_writing(self) -> None:
        """asyncio: the write buffer has risen above its high-water mark."""
        super().pause_writing()
        self.full = True

    def resume_writing(self) -> None:
        """asyncio: the write buffer has fallen below its low-water mark."""
        super().resume_writing()
        self.full = False
        if self._drained is not None:
            self._drained()
        if self._flushed is not None and not self._flushed.done():
            self._flushed.set_result(None)
