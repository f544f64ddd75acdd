"""One HTTP/1.1 connection to an upstream: an asyncio protocol over llhttp (httptools), one call at a time.

Bytes pass from `data_received` to their consumer in one synchronous call: no stream object, task or timer.
llhttp runs in strict mode; anything malformed, ambiguous or too large ends the connection.
"""

import asyncio
import math
import re
import socket
import ssl
import struct
from typing import Final, Protocol, cast

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
from gateway.http.client.connect_errors import failure_of
from gateway.http.client.h1_exchange import H1Exchange
from gateway.http.client.transport import Pieces

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128
MAX_INTERIM = 8
"""1xx answers before the final one."""

_ONE_WRITE = 64 * 1024  # bytes up to which one joined write is cheaper than one write per piece
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_WITHOUT_BODY = frozenset({204, 304})
_COMMON = (b"Content-Length", b"Content-Type", b"Date", b"Server", b"Transfer-Encoding", b"Connection")
_NAMES = {name: name.decode().lower() for common in _COMMON for name in (common, common.lower())}
"""Names of the headers that nearly every answer has, already decoded."""


_AT_ONCE_S = 0.005
"""A close is at once up to this long, and two round trips, after the request was sent."""
_SEGMENT = 4096  # bytes of a request without which no engine can have begun
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_TCP_INFO_BYTES = 216  # up to `tcpi_bytes_retrans`, Linux 4.19


class StaleConnection(Exception):
    """A reused connection was closed at once, as it happens when both sides use and close it at the same time.

    The call may be sent again without counting as another attempt. `received`: the upstream's kernel has
    acknowledged the request, so if nobody listens there now, an engine may have died of it.
    """

    def __init__(self, *, received: bool) -> None:
        super().__init__()
        self.received = received


class ConnectionPool(Protocol):
    """The owner of a connection."""

    def release(self, connection: "H1Connection") -> None:
        """The connection can serve another call."""

    def discard(self, connection: "H1Connection") -> None:
        """The connection is closed."""


class H1Connection(asyncio.Protocol):
    """The socket's side of an exchange.

    The pool uses `deadline` and `idle_since` (monotonic seconds), and `timeout_cause` as the cause of the
    failure once the deadline has passed.
    """

    def __init__(self, pool: ConnectionPool, name: str) -> None:
        self.deadline = 0.0
        self.timeout_cause: Cause = TOTAL
        self.idle_since = 0.0
        self.reusable_until = math.inf  # monotonic seconds
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: H1Exchange | None = None
        self._used = False
        self._length = 0  # bytes of the request's body
        self._head_bytes = 0
        self._interim = 0
        self._framed = False  # a length or chunks mark the end of the body
        self._malformed = False
        self._message_over = False
        self._reusable = False

    def send(self, head: bytes, body: Pieces, length: int) -> H1Exchange:
        """Send a request; the exchange receives its answer."""
        exchange = self._exchange = H1Exchange(self, self._name, self._loop)
        transport, self._length = self._transport, length
        self._head_bytes = self._interim = 0
        self._framed = self._message_over = False
        if transport is None or transport.is_closing():
            self._end(StaleConnection(received=False) if self._used else None)
        elif length <= _ONE_WRITE:
            transport.write(b"".join((head, *body)))
        else:
            transport.writelines((head, *body))
        return exchange

    def close(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    # ConnectionControl, for the exchange.

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def set_deadline(self, deadline: float) -> None:
        """Let the pool `fail` the call when this deadline has passed; 0.0 for none."""
        self.deadline, self.timeout_cause = deadline, TOTAL

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
        if exchange is None:  # unsolicited bytes
            self.close()
            return
        if not exchange.begun:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Garbage after a complete answer does not invalidate it, but the connection is not reused.
            self._malformed = not self._message_over
            self._reusable = False
        if self._malformed or (not exchange.begun and self._head_bytes > MAX_HEAD_BYTES):
            message = f"Upstream `{self._name}` answered with malformed HTTP."
            self.fail(UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=INVALID))
        elif self._message_over:
            self._release(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: closed by either side."""
        transport, self._transport = self._transport, None
        exchange = self._exchange
        if exchange is not None and not exchange.begun and not self._head_bytes:
            if self._used:
                self._end(_stale(transport, self._length))
            elif isinstance(exc, ssl.SSLError):  # TLS 1.3 refuses a client's certificate only here
                self._exchange = None
                exchange.finish(failure_of(self._name, exc))
        self._end(orderly=exc is None)
        self._pool.discard(self)

    def _end(self, stale: StaleConnection | None = None, *, orderly: bool = False) -> None:
        """Finish the exchange, if any, on a connection that is closed."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.begun:
            if orderly and not self._framed:
                exchange.finish(None)
            else:
                message = f"Upstream `{self._name}` broke off its answer."
                exchange.finish(UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET))
        else:
            exchange.finish(stale or closed_early(self._name))

    def _release(self, exchange: H1Exchange) -> None:
        """The answer is complete. Release the connection first: `finish` may send the next call."""
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

    # llhttp's callbacks. They must not raise: httptools would hide the exception.

    def on_message_begin(self) -> None:
        """llhttp: a status line begins."""
        if self._message_over:
            self._reusable = False  # a second answer to one request

    def on_status(self, reason: bytes) -> None:
        """llhttp: the reason phrase, whose characters it does not check."""
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
        elif key in _FRAMING:  # repeated, even with the same value
            self._malformed = True

    def on_headers_complete(self) -> None:
        """llhttp: the head is complete, possibly that of a 1xx."""
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
        if exchange.sink is not None:  # hot path of streams: saves one call per chunk
            exchange.sink.data(piece)
        else:
            exchange.buffer(piece)

    def on_message_complete(self) -> None:
        """llhttp: the body, or a 1xx answer, is complete."""
        if self._exchange is not None and self._exchange.begun and not self._message_over:
            self._message_over = True
            self._reusable = self._parser.should_keep_alive()  # valid only inside this callback


def closed_early(name: str) -> UpstreamFailure:
    """The failure of an upstream that closes instead of answering."""
    message = f"Upstream `{name}` closed the connection before it answered."
    return UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET)


def _stale(transport: asyncio.Transport | None, length: int) -> StaleConnection | None:
    """Whether a reused connection closed at once; None if not, or where the system does not say.

    The kernel knows when the request was sent and how much of it has been acknowledged, which costs a request
    nothing.
    """
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or _TCP_INFO is None:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < _TCP_INFO_BYTES:
        return None
    (since_sent_ms,) = struct.unpack_from("=I", info, 44)
    (acknowledged,) = struct.unpack_from("=Q", info, 120)  # the handshake counts as one byte
    (round_trip_us,) = struct.unpack_from("=I", info, 148)
    sent, repeated = struct.unpack_from("=QQ", info, 200)
    if round_trip_us == 0xFFFFFFFF:  # not measured yet
        round_trip_us = 0
    if since_sent_ms / 1e3 > _AT_ONCE_S + 2 * round_trip_us / 1e6:
        return None
    unacknowledged = sent - repeated - (acknowledged - 1)
    return StaleConnection(received=unacknowledged < min(length, _SEGMENT))
