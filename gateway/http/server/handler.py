"""One request, from its head to its last byte, and the one place where a call is settled."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from multidict import CIMultiDictProxy

from gateway.auth import engine_fields as steering
from gateway.auth.failure_limiter import AuthFailureLimiter
from gateway.core.call import EMBEDDINGS, Call, Credentials
from gateway.core.clock import Clock
from gateway.core.errors import (
    AUTH_RATE_LIMITED,
    BODY_TIMEOUT,
    BODY_TOO_LARGE,
    INVALID_API_KEY,
    INVALID_VALUE,
    MEMORY_FULL,
    Rejection,
    UpstreamFailure,
)
from gateway.core.units import usd
from gateway.http.server import endpoints as routes
from gateway.http.server.connection import WRITE_STALL_S, Connection, Request, SentResponse, what_is_wrong
from gateway.http.server.generation import Generation
from gateway.http.server.response import JSON, Response, lines
from gateway.http.server.stream_response import ClientStream
from gateway.http.server.stream_session import BUG, DRAIN_NOTE, DRAINED, StreamedCall
from gateway.pipeline.gates import admit
from gateway.telemetry.logging import logger
from gateway.telemetry.metrics import OTHER
from gateway.wire.http import header_policy as wire_headers
from gateway.wire.http import host_check as request_head
from gateway.wire.http import ratelimit_headers as ratelimit
from gateway.wire.json import splice
from gateway.wire.openai import peek as openai

CLOSE_AFTER = frozenset(
    map(id, (BODY_TIMEOUT, BODY_TOO_LARGE, MEMORY_FULL, AUTH_RATE_LIMITED, request_head.MALFORMED))
)
"""Kinds of refusals behind which the connection is closed; by identity, for rows may look alike."""


class RequestHandler:
    """The handler of requests. Everything it needs is handed in; what it keeps is the set of open calls."""

    def __init__(self, first: Generation, new_request_id: Callable[[], str], clock: Clock) -> None:
        self._new_request_id = new_request_id
        self._clock = clock
        self.generation = first  # what new calls go by; may be exchanged at any time
        self.open_calls: dict[asyncio.Task[Any], Generation] = {}
        self._wrong_keys = AuthFailureLimiter()
        self.draining = False  # connections are closed after their answer
        self.closed = False  # no new call is taken any more

    async def __call__(self, request: Request) -> SentResponse:
        """Answer one request, and write the answer."""
        generation, connection = self.generation, request.connection
        found = request_head.refuse(request.method, request.target, request.headers) or routes.match(
            request.method, request.target
        )
        call = self._new_call(request, found)
        if (told := self._answer_uncounted(generation, request, call, found)) is not None:
            told.write(request)
            if connection.full:
                await self._flushed(connection)
            return told
        task = request.task  # of the connection; asyncio.current_task() is slow before Python 3.12
        connection.serving, connection.body_read, connection.pipelined_bytes = True, False, 0
        self.open_calls[task] = generation
        try:
            answer = await self._served(generation, request, call, found)
            if isinstance(answer, Response):
                answer.write(request)
            elif self.draining:
                answer.keep_alive = False
            if connection.full:
                await self._flushed(connection)
            return answer
        except asyncio.CancelledError:
            call.outcome, call.status = "client_gone", call.status or 499
            raise
        finally:
            del self.open_calls[task]
            connection.serving = False
            self._settle(call)

    def respond_error(self, request: Request, status: int, error: BaseException | None) -> Response:
        """Answer what is no request, or for a bug outside of `_served`, and close."""
        call = Call(OTHER, self._new_request_id(), Credentials(None, None, None), self._clock())
        if status == 400:
            refusal = Rejection(request_head.MALFORMED, what_is_wrong(error))
            self.generation.stack.door[0].admit(call, call.accepted_at)  # so that it is recorded
        else:  # its own call has been recorded
            refusal = BUG
            logger.error("unhandled error in a request handler", exc_info=error)
        answer = self._refuse(self.generation, request, call, refusal)
        answer.keep_alive = False
        answer.write(request)
        self._settle(call)
        return answer

    def _answer_uncounted(
        self, generation: Generation, request: Request, call: Call, found: routes.Match | Rejection
    ) -> Response | None:
        """The answer to what is no call of anybody: a browser's preflight, a look whether we are there."""
        if request.method == "OPTIONS":
            preflight = generation.cors.preflight(request.headers, call.request_id)
            if preflight is not None:
                return preflight
        if isinstance(found, routes.Match) and found.endpoint == routes.HEALTH:
            headers = JSON + self._headers(generation, request, call)
            return Response(200, headers, b'{"status":"ok"}', close=self.draining)
        return None

    async def _served(
        self, generation: Generation, request: Request, call: Call, found: routes.Match | Rejection
    ) -> Response | ClientStream:
        """Whatever goes wrong inside becomes an answer here."""
        try:
            answer = await self._answer(generation, request, call, found)
        except UpstreamFailure as failure:
            answer = failure.as_rejection()
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (DRAIN_NOTE,):
                raise
            request.task.uncancel()
            answer = DRAINED
        except Exception:  # noqa: BLE001 - a request ends here, whatever the bug
            logger.exception("bug in the gateway", extra={"request_id": call.request_id})
            answer = BUG
        return self._refuse(generation, request, call, answer) if isinstance(answer, Rejection) else answer

    async def _answer(
        self, generation: Generation, request: Request, call: Call, found: routes.Match | Rejection
    ) -> Response | ClientStream | Rejection:
        if isinstance(found, Rejection) or self.closed:
            generation.stack.door[0].admit(call, call.accepted_at)  # so that it is recorded
            return found if isinstance(found, Rejection) else DRAINED
        refusal = admit(generation.stack.door, call, call.accepted_at)
        if refusal is not None:
            if refusal.kind is INVALID_API_KEY:
                return self._wrong_keys.refuse(request.remote, call.accepted_at) or refusal
            return refusal
        if found.endpoint == routes.MODELS:
            return self._list_models(generation, request, call, found.model)
        body = await generation.body.read(request, call.lease)
        refusal = body if isinstance(body, Rejection) else self._apply_body(generation, request, call, body)
        if refusal is not None:
            return refusal
        if call.stream:
            own = partial(self._headers, generation, request)
            stream = StreamedCall(request, call, generation.heartbeat_s, own, self._clock)
            return await stream.run(generation.stack.handle, generation.sweep)
        reply = await generation.stack.handle(call)
        if isinstance(reply, Rejection):
            return reply
        call.status, call.outcome, call.replied_at = reply.status, "ok", self._clock()
        headers = JSON + self._headers(generation, request, call)
        return Response(reply.status, headers, reply.body, close=self.draining)

    def _refuse(self, generation: Generation, request: Request, call: Call, refusal: Rejection) -> Response:
        call.status, call.outcome = refusal.kind.status, refusal.kind.outcome
        # What is left of such a body is not worth waiting for.
        unread = "expect" in request.headers and not request.content.is_eof()
        close = self.draining or unread or id(refusal.kind) in CLOSE_AFTER
        return Response.rejection(refusal, self._headers(generation, request, call), close=close)

    def _settle(self, call: Call) -> None:
        try:
            call.lease.settle(call, self._clock())
        except Exception:  # noqa: BLE001 - the answer has been given, and no other may be written behind it
            logger.exception("bug in the gateway", extra={"request_id": call.request_id})

    def _apply_body(
        self, generation: Generation, request: Request, call: Call, body: bytes
    ) -> Rejection | None:
        """What the body tells of the call."""
        request.connection.body_read = True
        call.ready_at = self._clock()
        peek = openai.peek_request(body)
        if isinstance(peek, Rejection):
            return peek
        call.spans = splice.model_spans(body)
        if len(call.spans) != 1:
            return Rejection(INVALID_VALUE, "`model` stands more than once in the body.", "model")
        call.body = body
        call.model = peek.model
        call.stream = peek.stream and call.endpoint != EMBEDDINGS
        patience, heartbeat_s = wire_headers.read_timeout(call.headers), generation.heartbeat_s
        # An SDK's read time-out begins anew with each heartbeat.
        if not call.stream or heartbeat_s is None or patience <= heartbeat_s:
            call.deadline = call.accepted_at + patience
        if call.caller is not None:
            call.priority = wire_headers.priority(call.headers, call.caller.priority)
            if peek.engine_fields:
                return steering.refuse(peek.engine_fields, call.caller)
        return None

    def _list_models(
        self, generation: Generation, request: Request, call: Call, name: str | None
    ) -> Response | Rejection:
        if call.caller is None:
            raise AssertionError("the door sets the caller")
        body = (
            generation.models.listing(call.caller)
            if name is None
            else generation.models.one(call.caller, name)
        )
        if isinstance(body, Rejection):
            return body
        call.status, call.outcome = 200, "ok"
        return Response(200, JSON + self._headers(generation, request, call), body, close=self.draining)

    def _new_call(self, request: Request, found: routes.Match | Rejection) -> Call:
        headers = request.headers
        call = Call(
            found.endpoint if isinstance(found, routes.Match) else OTHER,
            wire_headers.request_id(headers.get("x-request-id")) or self._new_request_id(),
            Credentials(
                _header_value(headers, "authorization"),
                _header_value(headers, "x-api-key") if "x-api-key" in headers else None,
                _header_value(headers, "api-key") if "api-key" in headers else None,
            ),
            self._clock(),
        )
        call.headers = headers
        return call

    def _headers(self, generation: Generation, request: Request, call: Call) -> str:
        """The gateway's own headers on any answer."""
        own = f"x-request-id: {call.request_id}\r\n{generation.cors.headers(request.headers)}"
        served, now = call.candidate, self._clock()
        if served is not None and call.attempts:
            own += (
                f"x-sluice-upstream: {served.upstream}\r\nx-sluice-upstream-model: {served.model}\r\n"
                f"x-sluice-attempts: {call.attempts}\r\n"
                f"{lines(call.upstream_headers) if call.upstream_headers else ''}"
            )
        if call.answered_at:
            own += (
                f"x-sluice-queue-ms: {call.queue_s * 1000:.3f}\r\n"
                f"x-sluice-overhead-ms: {call.overhead_s(now) * 1000:.3f}\r\n"
            )
        if call.response_notes:
            own += lines(call.response_notes.items())
        if call.batch_size:
            own += f"x-sluice-batch-size: {call.batch_size}\r\n"
        if call.cost is not None:
            own += f"x-sluice-cost-usd: {usd(call.cost)}\r\n"
        if call.caller is not None and call.caller.account is not None:
            account = call.caller.account
            own += ratelimit.render(account.limits, account.status(now))
        return own

    async def _flushed(self, connection: Connection) -> None:
        """Hold the call until its bytes are on their way, as long as the client takes some of them."""
        while connection.full and (transport := connection.transport) is not None:
            left = transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(WRITE_STALL_S):
                    await connection.flushed()
            except TimeoutError:
                if transport.get_write_buffer_size() >= left:
                    transport.abort()
                    return


def _header_value(headers: CIMultiDictProxy[str], name: str) -> str | None:
    """A header's value; of a repeated one all values, which is no key that anybody has."""
    values = headers.getall(name, None)
    return None if values is None else values[0] if len(values) == 1 else ", ".join(values)
