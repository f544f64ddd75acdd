"""The listener: aiohttp's HTTP/1.1 server without its router, error pages and access log."""

import asyncio
import select
from operator import attrgetter
from typing import Any, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway.http.descriptors import Descriptors
from gateway.http.server.connection import (
    MAX_HEADER_BYTES,
    BadRequestResponder,
    Connection,
    ConnectionHandler,
)


class Listener(web.Server):
    """The factory of `Connection`s."""

    def __init__(
        self,
        handler: ConnectionHandler,
        respond_error: BadRequestResponder,
        keepalive_timeout: float,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`keepalive_timeout` (seconds) also bounds the arrival of a request's head."""
        # A disconnecting client must cancel its handler; aiohttp leaves this off by default.
        super().__init__(cast(Any, handler), handler_cancellation=True)
        self._handler = handler
        self._respond_error = respond_error
        self._keepalive_timeout = keepalive_timeout
        self._descriptors = descriptors or Descriptors(lambda: 0)
        self._descriptors.on_shortage(self.close_idle)

    def __call__(self) -> Connection:
        """asyncio's protocol factory."""
        return Connection(
            self,
            self._handler,
            self._respond_error,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._keepalive_timeout,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """aiohttp: a client has connected. It is refused if only the descriptors for upstreams are left."""
        sock = transport.get_extra_info("socket")
        admitted = sock is None or self._descriptors.admit_client(sock.fileno())
        super().connection_made(handler, transport)
        if not admitted:
            transport.abort()

    def close_idle(self, count: int) -> int:
        """Close up to `count` idle connections, longest idle first, and return how many.

        One with unread bytes is not idle: a request has just arrived.
        """
        idle = [one for one in self.connections if isinstance(one, Connection) and one.idle]
        idle.sort(key=attrgetter("idle_since"))
        closed = 0
        for connection in idle:
            if closed >= count:
                break
            if not _has_unread(connection.transport):
                connection.force_close()
                closed += 1
        return closed

    def drain(self) -> None:
        """Close idle connections now, and busy ones after their current answer."""
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.serving:
                connection.last = True  # `close` would discard the rest of its request body
            else:
                connection.force_close()


def _has_unread(transport: asyncio.BaseTransport | None) -> bool:
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))
