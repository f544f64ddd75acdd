"""Write a stream of events to a client, as bytes straight to its transport."""

import asyncio
from typing import cast

from aiohttp import HttpVersion11

from gateway.http.server.connection import Request
from gateway.http.server.response import lines, render_head


class ClientStream:
    """A stream of events to a client: a head, pieces, then a good end or none.

    Must be told apart at its end: `end()` closes the chunked body, so that the client knows it is whole;
    without it the connection ends with FIN and the client knows it is not.
    """

    def __init__(self, request: Request) -> None:
        self.connection = request.connection
        self._request = request
        self._chunked_body = request.version >= HttpVersion11
        self.keep_alive = False  # until the body has ended well
        self._transport = cast(asyncio.Transport, request.transport)
        self.started = False
        self.written_at = 0.0

    def start(self, headers: str, now: float) -> None:
        """Commit the 200."""
        self.started = True
        self.written_at = now
        framing = "Transfer-Encoding: chunked\r\n" if self._chunked_body else ""
        keep_alive = self._chunked_body and self._request.keep_alive
        self._transport.write(
            render_head(self._request, 200, framing + _EVENT_STREAM + headers, keep_alive=keep_alive)
        )

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
            self.keep_alive = self._request.keep_alive

    def backlog(self) -> int:
        """Bytes that the client was sent and has not taken yet."""
        return self._transport.get_write_buffer_size()

    def abandon(self) -> None:
        """Drop the client at once: it has not read for too long."""
        self._transport.abort()


_EVENT_STREAM = lines(
    [
        ("Content-Type", "text/event-stream; charset=utf-8"),
        ("Cache-Control", "no-cache"),
        ("X-Accel-Buffering", "no"),  # nginx and its relatives would hold events back
    ]
)
