"""One streamed call: when its 200 is committed, what goes out in silence, and how it ends.

The 200 is committed by the upstream's first event or by one heartbeat of silence since the call was accepted.
Before that a failure is an ordinary answer with its own status; after it, an event in the stream.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.core.call import Call, Handler
from gateway.core.clock import Clock
from gateway.core.errors import DRAINING, INTERNAL_ERROR, Rejection, UpstreamFailure
from gateway.core.stream import EventStream, outcome_of
from gateway.http.server.connection import Request
from gateway.http.server.stream_response import ClientStream
from gateway.http.ticker import Ticker
from gateway.telemetry.logging import logger
from gateway.wire.openai import peek as openai

HEARTBEAT = b": keep-alive\n\n"
DRAIN_NOTE = "draining"
"""The message of the cancellation by which a drain that ran out of time ends a call."""

BUG = Rejection(INTERNAL_ERROR, "Internal error of the gateway; its log tells more under this request id.")
DRAINED = Rejection(DRAINING, "The gateway is shutting down; send the request again.", retry_after=1.0)


class StreamedCall:
    """Watches over one streamed call from the moment it has been accepted. A `Watcher`."""

    def __init__(
        self,
        request: Request,
        call: Call,
        heartbeat_s: float | None,
        headers: Callable[[Call], str],
        clock: Clock,
    ) -> None:
        """`headers(call)` gives the gateway's own ones; `heartbeat_s` None is off."""
        self.client = ClientStream(request)
        self._call = call
        self._heartbeat_s = heartbeat_s
        self._headers = headers
        self._clock = clock
        self._over = False

    def tick(self, now: float) -> None:
        """Watcher: a heartbeat after each silence."""
        quiet_since = self.client.written_at if self.client.started else self._call.accepted_at
        if self._over or self._heartbeat_s is None or now - quiet_since < self._heartbeat_s:
            return
        connection = self.client.connection
        if connection.full or connection.transport is None:
            return
        if not self.client.started:
            self._start(now)
        self.client.send(HEARTBEAT, now)

    async def run(self, handle: Handler, sweep: Ticker) -> ClientStream | Rejection:
        """Pipe the call through; a Refusal is for the caller to render, nothing has been written then."""
        sweep.add(self)
        try:
            reply = await handle(self._call)
            if isinstance(reply, Rejection):
                return self._refused(reply)
            stream = cast(EventStream, reply.stream)
            try:
                if not self.client.started:
                    self._start(self._clock())
                stream.attach(self.client)
                failure = await stream.finished
                self._end(failure, in_band=stream.reader.error is not None)
            finally:
                stream.close()
                told = stream.reader
                self._call.tokens, self._call.generated = told.tokens, told.generated
                self._call.finish = told.finish
        except UpstreamFailure as failure:
            return self._refused(failure.as_rejection())
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (DRAIN_NOTE,) and self.client.started:
                self._break_off(DRAINED, "shed")
            else:
                raise
        except Exception:
            if not self.client.started:
                raise
            logger.exception("bug in the gateway", extra={"request_id": self._call.request_id})
            self._break_off(BUG, BUG.kind.outcome)
        finally:
            self._over = True
            sweep.discard(self)
        return self.client

    def _start(self, now: float) -> None:
        self._call.status = 200
        self.client.start(self._headers(self._call), now)

    def _refused(self, refusal: Rejection) -> ClientStream | Rejection:
        if not self.client.started:
            return refusal
        self._break_off(refusal, refusal.kind.outcome)
        return self.client

    def _end(self, failure: UpstreamFailure | None, *, in_band: bool) -> None:
        outcome = outcome_of(failure, in_band=in_band)
        if failure is None:
            self.client.end()
            self._call.outcome = outcome
        else:
            self._break_off(failure.as_rejection(), outcome)

    def _break_off(self, why: Rejection, outcome: str) -> None:
        """Say so in the stream: no `[DONE]`, no closing chunk, so that every kind of client notices."""
        event = openai.render_error(why.message, why.kind.type, why.param, why.kind.code or None)
        self.client.send(b"data: " + event + b"\n\n", self._clock())
        self._call.outcome = outcome
