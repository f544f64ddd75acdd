"""One answer of an upstream while it arrives: the `Exchange` of the lean transport.

Its connection feeds it (`head_complete`, `take`, `finish`), its call reads it; neither waits longer than it
must: an answer that came in one packet is read without a single turn of the event loop.
"""

import asyncio
from collections.abc import MutableMapping
from typing import Protocol

from gateway.core.errors import INVALID, RESET, UPSTREAM_ERROR, UPSTREAM_INVALID_RESPONSE, UpstreamFailure
from gateway.http.client.transport import BodySink


class ConnectionControl(Protocol):
    """What an exchange may do to its connection."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Go on reading."""

    def fail(self, failure: UpstreamFailure) -> None:
        """Close the connection; the exchange that is on it fails."""

    def set_deadline(self, deadline: float) -> None:
        """Fail the exchange when the call's `deadline` has passed; 0.0 for no deadline."""


class H1Exchange:
    """An `Exchange`. `over` is set once nothing more will come; then the connection may be another call's.

    `failure` is what the connection failed with.
    """

    __slots__ = (
        "_limit",
        "_line",
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

    def __init__(self, line: ConnectionControl, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: MutableMapping[str, str] = {}
        self.begun = False
        self.over = False
        self._line = line
        self._loop = loop
        self._name = name
        self._pieces: list[bytes] = []
        self._size = 0
        self._limit = 0  # bytes that `read` allows; 0 while nobody reads
        self.sink: BodySink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.failure: Exception | None = None
        self._paused = False

    # The call's side.

    def head(self) -> "asyncio.Future[None]":
        """Done when status and headers are there, or `failure` is. A future: a call needs no frame here."""
        waiter = self._loop.create_future()
        if self.begun or self.over:
            waiter.set_result(None)
        else:
            self._waiter = waiter
        return waiter

    async def read(self, limit: int, deadline: float) -> bytes:
        """The whole body, as `Exchange` says."""
        self._limit = limit
        if not self.over:
            self._line.set_deadline(deadline)
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
        """Hand over what is there, and from now on everything as it comes."""
        self.sink = sink
        if not self.over:
            self._line.set_deadline(0.0)  # a stream's own watcher takes over
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            sink.data(piece)
        if self.over:
            self._tell(sink)

    def pause(self) -> None:
        """Stop reading from the upstream; what the socket has given already still comes."""
        if not self.over and not self._paused:
            self._paused = True
            self._line.pause()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            if not self.over:
                self._line.resume()

    def abort(self) -> None:
        """Close the connection, unless it is free already."""
        self.sink = None
        if not self.over:
            message = f"The call to upstream `{self._name}` was given up."
            self._line.fail(UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET))

    # The connection's side.

    def head_complete(self, status: int) -> None:
        """Status and headers are there."""
        self.status = status
        self.begun = True
        self._wake()

    def take(self, piece: bytes) -> None:
        """A piece of the body, while there is no `sink` to give it to."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._limit:
            self._check_size()

    def finish(self, failure: Exception | None) -> None:
        """Nothing more will come. Only the first time counts."""
        if self.over:
            return
        self.over = True
        self.failure = failure
        self._wake()
        if self.sink is not None:
            self._tell(self.sink)

    def _tell(self, sink: BodySink) -> None:
        if isinstance(self.failure, UpstreamFailure):
            sink.failed(self.failure)
        else:
            sink.ended()

    def _check_size(self) -> None:
        if self._size > self._limit:
            self._line.fail(self._too_large())

    def _too_large(self) -> UpstreamFailure:
        message = f"The answer of upstream `{self._name}` is too large."
        return UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=INVALID)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
