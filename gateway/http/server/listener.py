"""The listener: aiohttp's HTTP/1.1 server without its router, its error pages and its access log."""

from typing import Any, cast

import aiohttp.http_parser
from aiohttp import web

from gateway.http.server.connection import (
    MAX_HEADER_BYTES,
    BadRequestResponder,
    Connection,
    ConnectionHandler,
)


class Listener(web.Server):
    """Makes a `Connection` for every client that connects."""

    def __init__(
        self, handler: ConnectionHandler, complain: BadRequestResponder, keepalive_timeout: float
    ) -> None:
        """`keepalive_timeout` (seconds) also bounds how long a request's head may take."""
        # A client that leaves must cancel its handler: off by default, and nothing else would tell us.
        super().__init__(cast(Any, handler), handler_cancellation=True)
        self._handler = handler
        self._complain = complain
        self._keepalive_timeout = keepalive_timeout

    def __call__(self) -> Connection:
        """asyncio's protocol factory."""
        return Connection(
            self,
            self._handler,
            self._complain,
            loop=self._loop,
            keepalive_timeout=self._keepalive_timeout,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    def drain(self) -> None:
        """Close idle connections now, and the others after the answer that they are waiting for."""
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.serving:
                connection.last = True  # `close` would throw away what is still to come of its body
            else:
                connection.force_close()


def assert_c_parser() -> None:
    """Refuse to run on aiohttp's pure-Python HTTP parser: slower, and laxer about smuggling. RuntimeError."""
    if aiohttp.http_parser.HttpRequestParser is aiohttp.http_parser.HttpRequestParserPy:
        raise RuntimeError("aiohttp's C parser is missing; reinstall aiohttp from a wheel")
