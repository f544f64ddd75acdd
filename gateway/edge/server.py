"""The listener: aiohttp's HTTP/1.1 server without its router, its error pages and its access log.

`Connection` adds what a streaming proxy needs to know of a client's connection: when it can take more bytes,
and that nothing but our own answers is ever written to it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp.http_parser
from aiohttp import web

from gateway.edge.answer import Answer
from gateway.errors import INTERNAL_ERROR, Refusal
from gateway.wire.request_head import MALFORMED

MAX_HEADER_BYTES = 32 * 1024
MAX_BEHIND = 64 * 1024
"""Bytes of pipelined requests that may wait."""


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_drained", "_new_request_id", "_went_quiet", "behind", "body_read", "full", "serving")

    def __init__(self, *args: Any, new_request_id: Callable[[], str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._new_request_id = new_request_id
        self.full = False  # the client takes less than it is sent
        self.serving = False  # a request is under way
        self.body_read = False
        self.behind = 0  # bytes that have come behind its body
        self._drained: Callable[[], None] | None = None
        self._went_quiet: asyncio.Future[None] | None = None

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Call back each time the client has read enough for more to be written."""
        self._drained = callback

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the client. A few pipelined requests may wait behind the one under way.

        With more of them aiohttp would stop reading, and nobody would notice the client leave.
        """
        if self.serving and self.body_read:
            self.behind += len(data)
            if self.behind > MAX_BEHIND:
                self.force_close()
                return
        super().data_received(data)

    def pause_writing(self) -> None:
        """asyncio: the write buffer has risen above its high-water mark."""
        super().pause_writing()
        self.full = True

    def resume_writing(self) -> None:
        """asyncio: it has fallen below its low-water mark."""
        super().resume_writing()
        self.full = False
        if self._drained is not None:
            self._drained()
        if self._went_quiet is not None and not self._went_quiet.done():
            self._went_quiet.set_result(None)

    async def flushed(self) -> None:
        """Wait until the write buffer has room again. The caller bounds the time."""
        if self.full:
            self._went_quiet = self._loop.create_future()
            try:
                await self._went_quiet
            finally:
                self._went_quiet = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp itself complains about in OpenAI's shape, and close."""
        if status == 400:
            refusal = Refusal(MALFORMED, "The HTTP request is malformed.")
        else:
            refusal = Refusal(INTERNAL_ERROR, "Internal error of the gateway.")
            self.log_exception("unhandled error in a request handler", exc_info=exc)
        return Answer.refusal(refusal, f"x-request-id: {self._new_request_id()}\r\n", close=True)


class Listener(web.Server):
    """Makes a `Connection` for every client that connects."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        keepalive_timeout: float,
        new_request_id: Callable[[], str],
    ) -> None:
        """`keepalive_timeout` (seconds) also bounds how long a request's head may take."""
        # A client that leaves must cancel its handler: off by default, and nothing else would tell us.
        super().__init__(handler, handler_cancellation=True)
        self._keepalive_timeout = keepalive_timeout
        self._new_request_id = new_request_id

    def __call__(self) -> Connection:
        """asyncio's protocol factory."""
        return Connection(
            self,
            loop=self._loop,
            new_request_id=self._new_request_id,
            keepalive_timeout=self._keepalive_timeout,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    def drain(self) -> None:
        """Close idle connections now, and the others after the answer that they are waiting for."""
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.serving:
                connection.close()
            else:
                connection.force_close()


def assert_c_parser() -> None:
    """Refuse to run on aiohttp's pure-Python HTTP parser: slower, and laxer about smuggling. RuntimeError."""
    if aiohttp.http_parser.HttpRequestParser is aiohttp.http_parser.HttpRequestParserPy:
        raise RuntimeError("aiohttp's C parser is missing; reinstall aiohttp from a wheel")
