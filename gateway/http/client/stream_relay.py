"""Relays one stream from the upstream's socket to the client's, without a coroutine or a queue in between.

The transport calls `data` as bytes arrive; they pass through the `StreamReader` and are written to the client
in the same call. Before a client is attached (the stream is not committed yet) they are buffered. A slow
client pauses only the upstream of its own stream.
"""

import asyncio

from gateway.context_window import output_cap
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
from gateway.core.stream import StreamConsumer, StreamError, StreamReader
from gateway.core.tokens import OutputCaps
from gateway.http.client.transport import Exchange
from gateway.http.client.upstream import UpstreamClient
from gateway.http.ticker import Ticker
from gateway.wire.request_body import fields_of

_TRAILER_GRACE_S = 1.0
"""Seconds that an upstream has after `[DONE]` to end its body, so that its connection can be reused."""

_MAX_EARLY = 64
"""Comments buffered before a stream's first event."""


class StreamRelay:
    """A `BodySink` and `EventStream` with two futures.

    `first_event` completes with the first event that is neither comment nor error, or raises the failure of a
    stream that broke before it. `finished`, after that, is None for a complete stream, else the failure to
    report to the client.
    """

    def __init__(
        self,
        exchange: Exchange,
        reader: StreamReader,
        call: Call,
        upstream: UpstreamClient,
        ticker: Ticker,
        clock: Clock,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.first_event: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[UpstreamFailure | None] = loop.create_future()
        self.reader = reader
        self._exchange = exchange
        self._call = call
        self._upstream = upstream
        self._ticker = ticker
        self._clock = clock
        self._client: StreamConsumer | None = None
        self._early: list[bytes] = []
        self._paused = False
        self._receiving = False  # at least one piece has arrived
        self._finished = False
        self._body_ended = False
        self._progress_at = clock()  # the last piece arrived, or a slow client caught up
        self._output_limit: float = output_cap.ALLOWANCE  # tokens; replaced by the call's cap once exceeded
        ticker.add(self)
        exchange.pump(self)

    def attach(self, client: StreamConsumer) -> None:
        """Send the client everything received so far, and every event from now on."""
        self._client = client
        client.connection.on_drained(self._resume)
        early = b"".join(self._early)
        self._early.clear()
        if early:
            self._write(client, early, self._clock())

    def data(self, piece: bytes) -> None:
        """BodySink: bytes from the upstream."""
        if self._finished:
            return
        self._receiving = True
        self._call.response.pieces += 1
        self._progress_at = now = self._clock()
        try:
            events = self.reader.feed(piece)
        except StreamError as error:
            self._finish(self._failure(UPSTREAM_INVALID_RESPONSE, INVALID, f"sent {error}"))
        else:
            client, reader = self._client, self.reader
            if client is None or reader.done or reader.error is not None:
                self._process(events, now)
            elif events:  # the common case; saves one call over `_process`
                self._write(client, events, now)

    def ended(self) -> None:
        """BodySink: the body ended properly, which does not mean that the stream is complete."""
        if not self._finished:
            self._process(self.reader.end(), self._clock())
        self.failed(self._failure(UPSTREAM_ERROR, RESET, "ended the stream before it was complete"))

    def failed(self, failure: UpstreamFailure) -> None:
        """BodySink: no more bytes. After `[DONE]`, or the end of each choice, the stream is complete."""
        self._body_ended = True
        if not self._finished:
            self._finish(None if self.reader.complete(self._caps().returned) else failure)

    def tick(self, now: float) -> None:
        """Tickable: end a stream that stalls on either side, or runs far beyond its output cap."""
        upstream, call = self._upstream, self._call
        if self._finished:
            if self._body_ended or now - self._progress_at > _TRAILER_GRACE_S:
                self._release()
        elif self._paused:
            if now - self._progress_at > upstream.idle_s and self._client is not None:
                self._client.abandon()
        elif self._receiving and now - self._progress_at > upstream.idle_s:
            self._time_out(FIRST_BYTE, "went silent in the middle of a stream")
        elif not self.first_event.done():
            if now > upstream.deadline(call):
                self._time_out(TOTAL, "did not begin its stream in time")
            elif not self._receiving and now > call.timing.sent_at + upstream.first_byte_s(stream=True):
                self._time_out(FIRST_BYTE, "did not begin its stream in time")
        elif self.reader.generated_at_least > self._output_limit:
            self._check_output_cap()

    def close(self) -> None:
        """Detach the client, and release the upstream unless only the end of its body is missing."""
        complete = self._finished and self.reader.done
        self._finished = True
        self._call.timing.last_piece_at = self._progress_at
        self.finished.cancel()
        self.first_event.cancel()
        if self._client is not None:
            self._client.connection.on_drained(None)
        if self._body_ended or not complete:
            self._release()
        elif self._paused:
            self._resume()

    def _release(self) -> None:
        self._ticker.discard(self)
        self._exchange.abort()

    def _process(self, events: bytes, now: float) -> None:
        if events:
            client = self._client
            if client is None:
                self._buffer(events)
            else:
                self._write(client, events, now)
        if self.reader.done:
            self._begin(now)
            self._finish(None)
        elif self.reader.error is not None:
            self._finish(self._upstream.failure(200, self.reader.error, self._call.routing.candidate.model))
        elif self._call.timing.first_token_at == 0.0 and self.reader.begun:
            self._begin(now)

    def _buffer(self, events: bytes) -> None:
        """Store early events. Comments before the first real event are dropped if there are many."""
        self._early.append(events)
        if not self.reader.begun and len(self._early) > _MAX_EARLY:
            self._early.clear()

    def _begin(self, now: float) -> None:
        if not self.first_event.done():
            self._call.timing.first_token_at = self._call.timing.answered_at = now
            self.first_event.set_result(None)

    def _write(self, client: StreamConsumer, events: bytes, now: float) -> None:
        client.send(events, now)
        if client.connection.full and not self._paused:
            self._paused = True
            self._exchange.pause()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._progress_at = self._clock()
            self._exchange.resume()

    def _finish(self, failure: UpstreamFailure | None) -> None:
        if self._finished:
            return
        self._finished = True
        if self.first_event.done():
            if not self.finished.done():  # if it is, the call was cancelled and will close this relay
                self.finished.set_result(failure)
        elif failure is not None:
            self.first_event.set_exception(failure)

    def _check_output_cap(self) -> None:
        if self._output_limit == output_cap.ALLOWANCE:
            caps = self._caps()
            self._output_limit = output_cap.limit(caps.output if caps.stated else None)
        reader = self.reader
        if output_cap.exceeded(self._output_limit, reader.generated_at_least, reader.thoughts_at_least):
            problem = "went on far beyond the cap on its output"
            self._finish(self._failure(UPSTREAM_INVALID_RESPONSE, INVALID, problem))

    def _caps(self) -> OutputCaps:
        request = self._call.request
        return request.endpoint.caps(fields_of(request))

    def _time_out(self, cause: Cause, problem: str) -> None:
        self.failed(self._failure(UPSTREAM_TIMEOUT, cause, problem))

    def _failure(self, kind: ErrorKind, cause: Cause, problem: str) -> UpstreamFailure:
        return UpstreamFailure(kind, f"Upstream `{self._upstream.name}` {problem}.", cause=cause)
