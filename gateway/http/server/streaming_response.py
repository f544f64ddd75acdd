"""One streamed call: when its 200 is committed, its heartbeats, and how it ends.

The upstream's first event commits the 200, or one heartbeat of silence since the call was accepted. Before
that a failure is an ordinary response with its own status; after it, an event in the stream.
"""

import asyncio
from collections.abc import Callable

from gateway.core.call import Call, Handler
from gateway.core.clock import Clock
from gateway.core.errors import DRAINING, INTERNAL_ERROR, Rejection, UpstreamFailure
from gateway.core.stream import outcome_of
from gateway.http.server.chunked_writer import ClientStream
from gateway.http.server.connection import Request
from gateway.http.ticker import Ticker
from gateway.telemetry.logging import logger

DRAIN_NOTE = "draining"
"""The cancel message of a call that is ended because the drain timeout has passed."""

BUG = Rejection(INTERNAL_ERROR, "Internal error in the gateway; see its log for this request id.")
DRAINED = Rejection(DRAINING, "The gateway is shutting down; send the request again.", retry_after=1.0)


class StreamedCall:
    """One streamed call from its acceptance to its last byte. A `Tickable`."""

    def __init__(
        self,
        request: Request,
        call: Call,
        heartbeat_s: float | None,
        headers: Callable[[Call], str],
        clock: Clock,
    ) -> None:
        """`headers(call)` returns the gateway's own headers; `heartbeat_s` None turns heartbeats off."""
        self.client = ClientStream(request)
        self._call = call
        self._heartbeat_s = heartbeat_s
        self._headers = headers
        self._clock = clock
        self._over = False

    def tick(self, now: float) -> None:
        """Tickable: send a heartbeat after each silence."""
        quiet_since = self.client.written_at if self.client.started else self._call.timing.accepted_at
        if self._over or self._heartbeat_s is None or now - quiet_since < self._heartbeat_s:
            return
        connection = self.client.connection
        if connection.full or connection.transport is None:
            return
        if not self.client.started:
            self._start(now)
        self.client.send(self._call.request.endpoint.errors.heartbeat, now)

    async def run(self, handle: Handler, ticker: Ticker) -> ClientStream | Rejection:
        """Run the call and relay its stream. A Rejection is left to the caller: nothing has been written."""
        ticker.add(self)
        try:
            reply = await handle(self._call)
            if isinstance(reply, Rejection):
                return self._reject(reply)
            stream = reply.stream
            if stream is None:
                raise TypeError("a layer has answered a streamed call with a whole answer")
            try:
                if not self.client.started:
                    self._start(self._clock())
                stream.attach(self.client)
                failure = await stream.finished
                reader = stream.reader
                self._end(failure, outcome_of(failure, in_band=reader.error is not None, failed=reader.failed))
            finally:
                stream.close()
                summary = stream.reader
                self._call.usage.tokens, self._call.usage.generated = summary.tokens, summary.generated
                self._call.response.finish = summary.finish
        except UpstreamFailure as failure:
            return self._reject(failure.as_rejection())
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (DRAIN_NOTE,) and self.client.started:
                self._break_off(DRAINED, "shed")
            else:
                raise
        except Exception:
            if not self.client.started:
                raise
            logger.exception("bug in the gateway", extra={"request_id": self._call.request.id})
            self._break_off(BUG, BUG.kind.outcome)
        finally:
            self._over = True
            ticker.discard(self)
        return self.client

    def _start(self, now: float) -> None:
        self._call.response.status = 200
        self.client.start(self._headers(self._call), now)

    def _reject(self, rejection: Rejection) -> ClientStream | Rejection:
        if not self.client.started:
            return rejection
        self._break_off(rejection, rejection.kind.outcome)
        return self.client

    def _end(self, failure: UpstreamFailure | None, outcome: str) -> None:
        if failure is None:
            self.client.end()
            self._call.response.outcome = outcome
        else:
            self._break_off(failure.as_rejection(), outcome)

    def _break_off(self, rejection: Rejection, outcome: str) -> None:
        """Send an error event, without `[DONE]` or a closing chunk, so that every kind of client notices."""
        asked = self._call.request
        self.client.send(asked.endpoint.errors.event(rejection, asked.id), self._clock())
        self._call.response.outcome, self._call.response.error = outcome, rejection
