"""One HTTP/1.1 connection to an upstream: an asyncio protocol over llhttp (httptools), one call at a time.

Bytes go from `data_received` to whoever wants them in the same call: no stream object, no task, no timer. The
parser is llhttp in its strict mode; whatever is malformed, ambiguous or too large ends the connection.
"""

import asyncio
import re
from typing import Protocol, cast

import httptools

from gateway.core.errors import (
    INVALID,
    RESET,
    TOTAL,
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    Cause,
    UpstreamFailure,
)
from gateway.http.client.h1_exchange import H1Exchange
from gateway.http.client.transport import Pieces

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128
MAX_INTERIM = 8
"""1xx answers before the real one."""

_ONE_WRITE = 64 * 1024  # bytes up to which joining pieces is cheaper than handing them over one by one
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_WITHOUT_BODY = frozenset({204, 304})
_USUAL = (b"Content-Length", b"Content-Type", b"Date", b"Server", b"Transfer-Encoding", b"Connection")
_NAMES = {name: name.decode().lower() for one in _USUAL for name in (one, one.lower())}
"""Headers that nearly every answer has."""


class StaleConnection(Exception):
    """A kept-alive connection was closed under a call before any byte of an answer: it may be sent again."""


class ConnectionPool(Protocol):
    """Where a connection goes when its call is over."""

    def release(self, connection: "H1Connection") -> None:
        """It can serve another call."""

    def discard(self, connection: "H1Connection") -> None:
        """It is closed."""


class H1Connection(asyncio.Protocol):
    """The socket's side.

    `deadline` and `idle_since` (monotonic seconds) belong to the pool's sweep, as does `late`, the cause of
    the failure when the deadline has passed.
    """

    def __init__(self, pool: ConnectionPool, name: str) -> None:
        self.deadline = 0.0
        self.late: Cause = TOTAL
        self.idle_since = 0.0
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: H1Exchange | None = None
        self._used = False
        self._head_bytes = 0
        self._interim = 0
        self._framed = False  # the body's end is told by a length or by chunks
        self._malformed = False
        self._message_over = False
        self._reusable = False

    def send(self, head: bytes, body: Pieces, length: int) -> H1Exchange:
        """Send a request; the exchange tells of its answer."""
        exchange = self._exchange = H1Exchange(self, self._name, self._loop)
        transport = self._transport
        self._head_bytes = self._interim = 0
        self._framed = self._message_over = False
        if transport is None or transport.is_closing():
            self._lost()
        elif length <= _ONE_WRITE:
            transport.write(b"".join((head, *body)))
        else:
            transport.writelines((head, *body))
        return exchange

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # What the exchange asks of its line.

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def set_deadline(self, deadline: float) -> None:
        """The pool's sweep calls `cut` when it has passed."""
        self.deadline, self.late = deadline, TOTAL

    def fail(self, failure: UpstreamFailure) -> None:
        """Fail the call and close."""
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.finish(failure)

    # asyncio's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the upstream."""
        exchange = self._exchange
        if exchange is None:  # nobody asked
            self.close()
            return
        if not exchange.begun:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Whatever follows a complete answer does not change it, in the same packet or in a later one.
            self._malformed = not self._message_over
            self._reusable = False
        if self._malformed or (not exchange.begun and self._head_bytes > MAX_HEAD_BYTES):
            message = f"Upstream `{self._name}` answered with malformed HTTP."
            self.fail(UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=INVALID))
        elif self._message_over:
            self._release(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: closed, by whomever."""
        self._transport = None
        self._lost(orderly=exc is None)
        self._pool.discard(self)

    def _lost(self, *, orderly: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.begun:
            if orderly and not self._framed:
                exchange.finish(None)
            else:
                message = f"Upstream `{self._name}` broke off its answer."
                exchange.finish(UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET))
        elif self._used and self._head_bytes == 0:
            exchange.finish(StaleConnection())
        else:
            message = f"Upstream `{self._name}` closed the connection before it answered."
            exchange.finish(UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET))

    def _release(self, exchange: H1Exchange) -> None:
        """The answer is complete: let the connection go first, for `finish` may send the next call."""
        self._exchange = None
        self._used = True
        transport = self._transport
        if transport is None or transport.is_closing():
            pass
        elif self._reusable and transport.get_write_buffer_size() == 0:
            self._pool.release(self)
        else:
            transport.abort()
        exchange.finish(None)

    # llhttp's callbacks. They must not raise: httptools would hide what and where.

    def on_message_begin(self) -> None:
        """llhttp: a status line begins."""
        if self._message_over:
            self._reusable = False  # a second answer to one request

    def on_status(self, reason: bytes) -> None:
        """llhttp: the reason phrase, whose characters it does not look at."""
        if reason != b"OK" and _CONTROLS.search(reason) and not self._message_over:
            self._malformed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: one header."""
        exchange = self._exchange
        if exchange is None or exchange.begun:  # a trailer, or a second answer
            return
        headers = exchange.headers
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        if key not in headers:
            headers[key] = value.decode("latin-1")
            if len(headers) > MAX_HEADERS:
                self._malformed = True
        elif key in _FRAMING:  # twice, even if it says the same
            self._malformed = True

    def on_headers_complete(self) -> None:
        """llhttp: the head is complete, perhaps only that of a 1xx."""
        exchange, status = self._exchange, self._parser.get_status_code()
        if exchange is None or self._message_over:
            return
        if status < 200:
            self._interim += 1
            self._malformed = self._malformed or status == 101 or self._interim > MAX_INTERIM
            exchange.headers.clear()
            return
        coding = exchange.headers.get("transfer-encoding", "").lower()
        self._framed = bool(coding) or "content-length" in exchange.headers or status in _WITHOUT_BODY
        if coding not in ("", "chunked") or self._parser.get_http_version() not in ("1.1", "1.0"):
            self._malformed = True
        if not self._malformed:
            exchange.head_complete(status)

    def on_body(self, piece: bytes) -> None:
        """llhttp: a piece of the body."""
        exchange = self._exchange
        if exchange is None or self._malformed or self._message_over:
            return
        if exchange.sink is not None:  # the hot path of streams: one call less for each chunk
            exchange.sink.data(piece)
        else:
            exchange.take(piece)

    def on_message_complete(self) -> None:
        """llhttp: the body is complete, or a 1xx is over."""
        if self._exchange is not None and self._exchange.begun and not self._message_over:
            self._message_over = True
            self._reusable = self._parser.should_keep_alive()  # llhttp forgets it after this callback
