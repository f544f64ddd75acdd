"""Writes a stream of events as bytes straight to the client's transport."""

import asyncio
from typing import cast

from aiohttp import HttpVersion11

from gateway.http.server.connection import Request
from gateway.http.server.response import header_lines, render_head


class ClientStream:
    """A stream of events to a client: a head, then events, then `end()` if the stream is complete.

    `end()` closes the chunked body. Without it the connection ends with FIN, and the client sees that the
    stream was cut short.
    """

    def __init__(self, request: Request) -> None:
        self.connection = request.connection
        self._request = request
        self._chunked_body = request.version >= HttpVersion11
        self.keep_alive = False  # until the body is complete
        self._transport = cast(asyncio.Transport, request.transport)
        self.started = False
        self.written_at = 0.0

    def start(self, headers: str, now: float) -> None:
        """Commit the 200."""
        self.started = True
        self.written_at = now
        framing = "Transfer-Encoding: chunked\r\n" if self._chunked_body else ""
        keep_alive = self._chunked_body and self._request.keep_alive
        self._transport.write(render_head(self._request, 200, framing + _EVENT_STREAM + headers, keep_alive=keep_alive))

    def send(self, events: bytes, now: float) -> None:
        """Send complete events or comments."""
        self.written_at = now
        if self._chunked_body:
            self._transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        else:
            self._transport.write(events)

    def end(self) -> None:
        """End a complete stream."""
        if self._chunked_body:
            self._transport.write(b"0\r\n\r\n")
            self.keep_alive = self._request.keep_alive

    def backlog(self) -> int:
        """Bytes written and not yet read by the client."""
        return self._transport.get_write_buffer_size()

    def abandon(self) -> None:
        """Drop a client that has not read for too long."""
        self._transport.abort()


_EVENT_STREAM = header_lines(
    [
        ("Content-Type", "text/event-stream; charset=utf-8"),
        ("Cache-Control", "no-cache"),
        ("X-Accel-Buffering", "no"),  # nginx and its derivatives would buffer events
    ]
)
