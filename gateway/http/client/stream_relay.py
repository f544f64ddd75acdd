"""From the upstream's socket to the client's: one stream, without a coroutine or a queue in between.

The transport calls `data` as bytes arrive; they go through the `ChunkReader` and are written to the client's
transport in the same call. Before a client is attached they are kept (the stream is not committed yet). Who
reads slowly pauses only the upstream of its own stream.
"""

import asyncio

from gateway.context_window import output_cap as overrun
from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.core.errors import (
    FIRST_BYTE,
    INVALID,
    RESET,
    TOTAL,
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_TIMEOUT,
    Cause,
    ErrorKind,
    UpstreamFailure,
)
from gateway.core.stream import StreamConsumer
from gateway.http.client.transport import Exchange
from gateway.http.client.upstream import UpstreamClient
from gateway.http.ticker import Ticker
from gateway.usage import token_weight as payload
from gateway.wire.openai.chunks import ChunkReader, InvalidChunk
from gateway.wire.openai.sse import EventTooLarge

_REST_S = 1.0
"""Seconds that an upstream has after `[DONE]` to end its body, so that its connection can be used again."""

_MAX_EARLY = 64
"""Pieces of comments that are kept before a stream's first event."""


class StreamRelay:
    """A `BodySink` with two moments to wait for.

    `begun`: the first event that is neither comment nor error is there; raises the Failure of a stream that
    broke before it. `over`, after `begun`: None for a good end, else the Failure to tell the client.
    """

    def __init__(
        self,
        exchange: Exchange,
        reader: ChunkReader,
        call: Call,
        upstream: UpstreamClient,
        sweep: Ticker,
        clock: Clock,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.first_event: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[UpstreamFailure | None] = loop.create_future()
        self.reader = reader
        self._exchange = exchange
        self._call = call
        self._upstream = upstream
        self._sweep = sweep
        self._clock = clock
        self._client: StreamConsumer | None = None
        self._early: list[bytes] = []
        self._paused = False
        self._heard = False
        self._finished = False
        self._silent = False  # the upstream will send no more
        self._moved_at = clock()  # bytes came in, or a slow client made room
        self._most: float = overrun.BESIDE  # tokens; of a longer stream, what its cap allows
        sweep.add(self)
        exchange.pump(self)

    def attach(self, client: StreamConsumer) -> None:
        """Send what has come so far, and from now on everything as it comes."""
        self._client = client
        client.connection.on_drained(self._go_on)
        early = b"".join(self._early)
        self._early.clear()
        if early:
            self._write(client, early, self._clock())

    def data(self, piece: bytes) -> None:
        """BodySink: the upstream sent something."""
        if self._finished:
            return
        self._heard = True
        self._moved_at = now = self._clock()
        try:
            events = self.reader.feed(piece)
        except EventTooLarge:
            self._finish(self._failure(UPSTREAM_INVALID_RESPONSE, INVALID, "sent an event that is too large"))
        except InvalidChunk:
            self._finish(self._failure(UPSTREAM_INVALID_RESPONSE, INVALID, "sent a malformed event"))
        else:
            client, reader = self._client, self.reader
            if client is None or reader.done or reader.error is not None:
                self._take(events, now)
            elif events:  # nearly always; one call less than by way of `_take`
                self._write(client, events, now)

    def ended(self) -> None:
        """BodySink: the body ended in an orderly way, which does not mean that the stream is whole."""
        if not self._finished:
            self._take(self.reader.end(), self._clock())
        self.failed(self._failure(UPSTREAM_ERROR, RESET, "ended the stream before it was complete"))

    def failed(self, failure: UpstreamFailure) -> None:
        """BodySink: no more will come. After a finish_reason or `[DONE]` nothing is missing."""
        self._silent = True
        self._finish(None if self.reader.complete else failure)

    def tick(self, now: float) -> None:
        """Watcher: end a stream that stands still, on either side."""
        upstream, call = self._upstream, self._call
        if self._finished:
            if self._silent or now - self._moved_at > _REST_S:
                self._release()
        elif self._paused:
            if now - self._moved_at > upstream.idle_s and self._client is not None:
                self._client.abandon()
        elif self._heard and now - self._moved_at > upstream.idle_s:
            self._time_out(FIRST_BYTE, "went silent in the middle of a stream")
        elif not self.first_event.done():
            if now > upstream.deadline(call):
                self._time_out(TOTAL, "did not begin its stream in time")
            elif not self._heard and now > call.sent_at + upstream.first_byte_s(stream=True):
                self._time_out(FIRST_BYTE, "did not begin its stream in time")
        elif self.reader.generated_at_least > self._most:
            self._overrun()

    def close(self) -> None:
        """Let go of the client at once, and of the upstream unless only the end of its body is missing."""
        whole = self._finished and self.reader.done
        self._finished = True
        self.finished.cancel()
        self.first_event.cancel()
        if self._client is not None:
            self._client.connection.on_drained(None)
        if self._silent or not whole:
            self._release()
        elif self._paused:
            self._go_on()

    def _release(self) -> None:
        self._sweep.discard(self)
        self._exchange.abort()

    def _take(self, events: bytes, now: float) -> None:
        if events:
            client = self._client
            if client is None:
                self._keep(events)
            else:
                self._write(client, events, now)
        if self.reader.done:
            self._begin(now)
            self._finish(None)
        elif self.reader.error is not None:
            self._finish(self._upstream.failure(200, self.reader.error))
        elif self._call.first_token_at == 0.0 and self.reader.begun:
            self._begin(now)

    def _keep(self, events: bytes) -> None:
        """Before the first event there are only comments: of no use to anybody, if they do not end."""
        self._early.append(events)
        if not self.reader.begun and len(self._early) > _MAX_EARLY:
            self._early.clear()

    def _begin(self, now: float) -> None:
        if not self.first_event.done():
            self._call.first_token_at = self._call.answered_at = now
            self.first_event.set_result(None)

    def _write(self, client: StreamConsumer, events: bytes, now: float) -> None:
        client.send(events, now)
        if client.connection.full and not self._paused:
            self._paused = True
            self._exchange.pause()

    def _go_on(self) -> None:
        if self._paused:
            self._paused = False
            self._moved_at = self._clock()
            self._exchange.resume()

    def _finish(self, failure: UpstreamFailure | None) -> None:
        if self._finished:
            return
        self._finished = True
        if self.first_event.done():
            if not self.finished.done():  # cancelled already: the call has been given up, and will close this
                self.finished.set_result(failure)
        elif failure is not None:
            self.first_event.set_exception(failure)

    def _overrun(self) -> None:
        if self._most == overrun.BESIDE:
            self._most = overrun.most(payload.cap(self._call.body, self._call.endpoint))
        if self.reader.generated_at_least > self._most:
            what = "went on far beyond the cap on its output"
            self._finish(self._failure(UPSTREAM_INVALID_RESPONSE, INVALID, what))

    def _time_out(self, cause: Cause, what: str) -> None:
        self.failed(self._failure(UPSTREAM_TIMEOUT, cause, what))

    def _failure(self, kind: ErrorKind, cause: Cause, what: str) -> UpstreamFailure:
        return UpstreamFailure(kind, f"Upstream `{self._upstream.name}` {what}.", cause=cause)
