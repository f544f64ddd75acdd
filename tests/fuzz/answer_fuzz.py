"""What may never happen with an upstream's bytes, as one function for Hypothesis, atheris and the kept seeds.

The witness is h11, a parser that shares no code with llhttp. Whatever the lean transport takes for a complete
answer, h11 must not read as another one (it may refuse more: blank lines before a status line, say);
however the bytes are cut, the outcome is the same.
"""

import asyncio
import itertools

import h11

from gateway.core.errors import UpstreamFailure
from gateway.http.client.h1_connection import H1Connection
from gateway.http.client.h1_exchange import H1Exchange

Outcome = tuple[int, bytes] | None
"""Status and body of a complete answer; None for a refused or unfinished one."""

_loop = asyncio.new_event_loop()


class _Pool:
    """Takes connections back and forgets them."""

    def release(self, connection: H1Connection) -> None:
        """It would serve another call."""

    def discard(self, connection: H1Connection) -> None:
        """It is closed."""


class _Transport(asyncio.Transport):
    """A socket that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nothing comes of it."""

    def is_closing(self) -> bool:
        """Whether the connection has closed it."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """Everything is written."""
        return 0

    def abort(self) -> None:
        """Closed by the connection."""
        self.closed = True


def lean(pieces: list[bytes]) -> Outcome:
    """What the lean connection makes of these bytes and an orderly end behind them."""
    return _loop.run_until_complete(_lean(pieces))


async def _lean(pieces: list[bytes]) -> Outcome:
    connection, transport = H1Connection(_Pool(), "up"), _Transport()
    connection.connection_made(transport)
    exchange: H1Exchange = connection.send(b"POST / HTTP/1.1\r\n\r\n", [], 0)
    for piece in pieces:
        if transport.closed:
            break
        connection.data_received(piece)
    connection.connection_lost(None)
    if not exchange.over:
        raise AssertionError("the connection is closed and the call still waits")
    try:
        await exchange.head()
        body = await exchange.read(1 << 30, 0.0)
    except UpstreamFailure:
        return None
    return exchange.status, body


def witness(data: bytes) -> Outcome:
    """What h11 makes of them."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "up"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    if data:
        connection.receive_data(b"")
    status, body = 0, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body
            elif event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return None
    except h11.RemoteProtocolError:
        return None


def check(data: bytes, cuts: list[int]) -> None:
    """AssertionError when the transport accepts what it must not, or depends on the cuts."""
    whole = lean([data] if data else [])
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(places) if end > start]
    assert lean(pieces) == whole, f"the outcome depends on the cuts {places}"
    if whole is not None:
        assert witness(data) in (whole, None), "two parsers read two answers"
