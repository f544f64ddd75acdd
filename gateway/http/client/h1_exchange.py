"""One answer of an upstream while it arrives: the `Exchange` of the httptools transport.

The connection feeds it (`head_complete`, `buffer`, `finish`) and the call reads it. An answer that arrives in
one packet is read without a turn of the event loop.
"""

import asyncio
from collections.abc import MutableMapping
from typing import Protocol

from gateway.core.errors import RESET, UPSTREAM_ERROR, UpstreamFailure
from gateway.http.client.transport import BodySink, too_large


class ConnectionControl(Protocol):
    """The connection, as far as an exchange controls it."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Continue reading."""

    def fail(self, failure: UpstreamFailure) -> None:
        """Close the connection and fail its exchange."""

    def set_deadline(self, deadline: float) -> None:
        """Fail the exchange once the call's `deadline` has passed; 0.0 for none."""


class H1Exchange:
    """An `Exchange`. Once `over` is set no more bytes come and the connection may serve another call.

    `failure` is the error that ended the exchange, None for a complete answer.
    """

    __slots__ = (
        "_connection",
        "_limit",
        "_loop",
        "_name",
        "_paused",
        "_pieces",
        "_size",
        "_waiter",
        "begun",
        "failure",
        "headers",
        "over",
        "sink",
        "status",
    )

    def __init__(self, connection: ConnectionControl, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: MutableMapping[str, str] = {}
        self.begun = False
        self.over = False
        self._connection = connection
        self._loop = loop
        self._name = name
        self._pieces: list[bytes] = []
        self._size = 0
        self._limit = 0  # bytes that `read` allows; 0 before it is called
        self.sink: BodySink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.failure: Exception | None = None
        self._paused = False

    # The call's side.

    def head(self) -> "asyncio.Future[None]":
        """Done when status and headers, or `failure`, are set. A future: awaiting it needs no frame."""
        waiter = self._loop.create_future()
        if self.begun or self.over:
            waiter.set_result(None)
        else:
            self._waiter = waiter
        return waiter

    async def read(self, limit: int, deadline: float) -> bytes:
        """See `Exchange.read`."""
        self._limit = limit
        if not self.over:
            self._connection.set_deadline(deadline)
            self._check_size()
        if not self.over:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.failure is not None:
            raise self.failure
        if self._size > limit:
            raise self._too_large()
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def pump(self, sink: BodySink) -> None:
        """Pass the sink everything received so far, and every piece from now on."""
        self.sink = sink
        if not self.over:
            self._connection.set_deadline(0.0)  # the stream relay has its own deadlines
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            sink.data(piece)
        if self.over:
            self._end(sink)

    def pause(self) -> None:
        """Stop reading from the upstream; bytes already read from the socket still arrive."""
        if not self.over and not self._paused:
            self._paused = True
            self._connection.pause()

    def resume(self) -> None:
        """Continue reading."""
        if self._paused:
            self._paused = False
            if not self.over:
                self._connection.resume()

    def abort(self) -> None:
        """Close the connection, unless the exchange is over."""
        self.sink = None
        if not self.over:
            message = f"The call to upstream `{self._name}` was abandoned."
            self._connection.fail(UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET))

    # The connection's side.

    def head_complete(self, status: int) -> None:
        """Status and headers are complete."""
        self.status = status
        self.begun = True
        self._wake()

    def buffer(self, piece: bytes) -> None:
        """Store a piece of the body until `read` or `pump` takes it."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._limit:
            self._check_size()

    def finish(self, failure: Exception | None) -> None:
        """End the exchange; only the first call counts."""
        if self.over:
            return
        self.over = True
        self.failure = failure
        self._wake()
        if self.sink is not None:
            self._end(self.sink)

    def _end(self, sink: BodySink) -> None:
        if isinstance(self.failure, UpstreamFailure):
            sink.failed(self.failure)
        else:
            sink.ended()

    def _check_size(self) -> None:
        if self._size > self._limit:
            self._connection.fail(self._too_large())

    def _too_large(self) -> UpstreamFailure:
        return too_large(self._name, self._limit)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
