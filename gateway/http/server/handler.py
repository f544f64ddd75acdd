"""The request handler: one request from its head to its last byte; calls are settled only here."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from multidict import CIMultiDictProxy

from gateway.auth import engine_fields
from gateway.auth.failure_limiter import AuthFailureLimiter
from gateway.core.call import Call, ClientRequest, Credentials
from gateway.core.clock import Clock
from gateway.core.errors import INVALID_API_KEY, UNKNOWN_URL, Rejection, UpstreamFailure
from gateway.core.units import usd
from gateway.http.server import endpoints
from gateway.http.server._aiohttp import WRITE_STALL_S, SentResponse
from gateway.http.server.chunked_writer import ClientStream
from gateway.http.server.connection import Connection, Request, other_protocol, what_is_wrong
from gateway.http.server.generation import Generation
from gateway.http.server.response import JSON, Response, header_lines
from gateway.http.server.stored_api import StoredApi
from gateway.http.server.stored_content import StoredContent
from gateway.http.server.stored_endpoints import StoredTarget
from gateway.http.server.streaming_response import BUG, DRAIN_NOTE, DRAINED, StreamedCall
from gateway.pipeline.gates import admit
from gateway.telemetry.logging import logger
from gateway.telemetry.sampled import Sampled
from gateway.wire.http import header_policy, host_check, ratelimit_headers
from gateway.wire.openai.models import HEALTH, MODELS, UNKNOWN

_PROTOCOL_LOG_S: Final = 60.0


class RequestHandler:
    """Serves requests by the current generation, and knows the calls in flight."""

    def __init__(self, first: Generation, new_request_id: Callable[[], str], clock: Clock) -> None:
        self.new_request_id = new_request_id
        self.clock = clock
        self.generation = first  # for new calls; a reload replaces it
        self.open_calls: dict[asyncio.Task[Any], Generation] = {}
        self.live: dict[asyncio.Task[Any], Call] = {}
        self._auth_failures = AuthFailureLimiter()
        self._refused_keys = Sampled()
        self._protocols_logged: dict[str, float] = {}
        self.draining = False  # connections close after their answer
        self.closed = False  # no new call is accepted

    async def __call__(self, request: Request) -> SentResponse:
        """Serve one request and write its response."""
        generation, connection = self.generation, request.connection
        match = host_check.check(request.method, request.target, request.headers) or endpoints.match(
            request.method, request.target
        )
        if isinstance(match, Rejection) and generation.stored is not None and match.kind is UNKNOWN_URL:
            match = endpoints.match_stored(request.method, request.target) or match
        call = self._new_call(request, match)
        if (uncounted := self._answer_uncounted(generation, request, call, match)) is not None:
            uncounted.write(request)
            if connection.full:
                await self._flushed(connection)
            return uncounted
        task = request.task  # the connection's; asyncio.current_task() is slow before Python 3.12
        connection.serving, connection.body_read, connection.pipelined_bytes = True, False, 0
        self.open_calls[task], self.live[task] = generation, call
        try:
            answer = await self._served(generation, request, call, match)
            if isinstance(answer, Response):
                answer.write(request)
            elif self.draining:
                answer.keep_alive = False
            if connection.full:
                await self._flushed(connection)
            return answer
        except asyncio.CancelledError:
            call.response.outcome, call.response.status = "client_gone", call.response.status or 499
            raise
        finally:
            del self.open_calls[task], self.live[task]
            connection.serving = False
            self.settle(call)

    def respond_error(self, request: Request, status: int, error: BaseException | None) -> Response:
        """Answer bytes that are not a valid request (400), or a bug outside of `_served`, and close."""
        call = Call(ClientRequest(UNKNOWN, self.new_request_id()), self.clock())
        if status == 400:
            rejection = Rejection(host_check.MALFORMED, what_is_wrong(error))
            if (protocol := other_protocol(error)) is not None:
                self._log_protocol(protocol, request.remote, call.timing.accepted_at)
            self.generation.stack.door[0].admit(call, call.timing.accepted_at)  # records it
        else:  # the request's own call is already recorded
            rejection = BUG
            logger.error("unhandled error in a request handler", exc_info=error)
        answer = self._reject(self.generation, request, call, rejection)
        answer.keep_alive = False
        answer.write(request)
        self.settle(call)
        return answer

    def _log_protocol(self, sentence: str, remote: str, now: float) -> None:
        """Say what a client spoke instead of HTTP, once a minute for each protocol."""
        if now - self._protocols_logged.get(sentence, -math.inf) >= _PROTOCOL_LOG_S:
            self._protocols_logged[sentence] = now
            logger.warning("%s", sentence.rstrip("."), extra={"remote": remote})

    def _log_refused_key(self, remote: str, now: float) -> None:
        """Say who sends missing or wrong keys, once a minute for each address."""
        refused = self._refused_keys.count(remote, now)
        if refused:
            logger.info("API key refused", extra={"remote": remote, "requests": refused})

    def _answer_uncounted(
        self, generation: Generation, request: Request, call: Call, match: endpoints.Match | Rejection
    ) -> Response | None:
        """The response to a preflight or a health check, which do not count as calls; None for any other."""
        if request.method == "OPTIONS":
            preflight = generation.cors.preflight(request.headers, call.request.id)
            if preflight is not None:
                return preflight
        if isinstance(match, endpoints.Match) and match.endpoint is HEALTH:
            headers = JSON + self._headers(generation, request, call)
            return Response(200, headers, b'{"status":"ok"}', close=self.draining)
        return None

    async def _served(
        self, generation: Generation, request: Request, call: Call, match: endpoints.Match | Rejection
    ) -> Response | ClientStream | StoredContent:
        """The answer to a call; every failure and bug inside becomes an error response here."""
        try:
            answer = await self._answer(generation, request, call, match)
        except UpstreamFailure as failure:
            answer = failure.as_rejection()
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (DRAIN_NOTE,):
                raise
            request.task.uncancel()
            answer = DRAINED
        except Exception:  # noqa: BLE001 - every bug ends here as a 500
            logger.exception("bug in the gateway", extra={"request_id": call.request.id})
            answer = BUG
        return self._reject(generation, request, call, answer) if isinstance(answer, Rejection) else answer

    async def _answer(
        self, generation: Generation, request: Request, call: Call, match: endpoints.Match | Rejection
    ) -> Response | ClientStream | StoredContent | Rejection:
        if isinstance(match, Rejection) or self.closed:
            generation.stack.door[0].admit(call, call.timing.accepted_at)  # records it
            return match if isinstance(match, Rejection) else DRAINED
        rejection = admit(generation.stack.door, call, call.timing.accepted_at)
        if rejection is not None and rejection.kind is INVALID_API_KEY and generation.learn_signer is not None:
            now = self.clock()
            if await generation.learn_signer(call.request.credentials, now):
                # The first gate holds the call already.
                rejection = admit(generation.stack.door[1:], call, self.clock())
        if rejection is not None:
            if rejection.kind is INVALID_API_KEY:
                self._log_refused_key(request.remote, call.timing.accepted_at)
                return self._auth_failures.reject(request.remote, call.timing.accepted_at) or rejection
            return rejection
        if match.endpoint is MODELS:
            return self._list_models(generation, request, call, match.model)
        if match.stored is not None and generation.stored is not None:
            return await self._stored(generation, generation.stored, request, call, match.stored)
        body = await generation.body.read(request, call.lease, form=match.endpoint.takes_form)
        rejection = body if isinstance(body, Rejection) else self._apply_body(generation, request, call, body)
        if rejection is not None:
            return rejection
        stack = generation.stack
        handle = stack.handle_kept if match.endpoint.keeps else stack.handle
        if call.request.stream:
            headers_of = partial(self._headers, generation, request)
            stream = StreamedCall(request, call, generation.heartbeat_s, headers_of, self.clock)
            return await stream.run(handle, generation.ticker)
        reply = await handle(call)
        if isinstance(reply, Rejection):
            return reply
        call.response.status, call.response.outcome, call.timing.replied_at = reply.status, reply.outcome, self.clock()
        kind = f"Content-Type: {reply.content_type}\r\n" if reply.content_type else JSON
        headers = kind + self._headers(generation, request, call)
        return Response(reply.status, headers, reply.body, close=self.draining)

    def _reject(self, generation: Generation, request: Request, call: Call, rejection: Rejection) -> Response:
        kind = rejection.kind
        call.response.status = call.request.endpoint.errors.status(kind)
        call.response.outcome, call.response.error = kind.outcome, rejection
        # Do not wait for the rest of a body that the client may never send.
        unread = "expect" in request.headers and not request.content.is_eof()
        close = self.draining or unread or kind.closes_connection
        return Response.rejection(call.request, rejection, self._headers(generation, request, call), close=close)

    def settle(self, call: Call) -> None:
        """End a call: release what it holds, and record it."""
        try:
            call.lease.settle(call, self.clock())
        except Exception:  # noqa: BLE001 - the response is already written; a second one must not follow
            logger.exception("bug in the gateway", extra={"request_id": call.request.id})

    def _apply_body(self, generation: Generation, request: Request, call: Call, body: bytes) -> Rejection | None:
        """Fill in what the body says about the call; a rejection if the body is invalid."""
        request.connection.body_read = True
        call.timing.ready_at = self.clock()
        asked, endpoint = call.request, call.request.endpoint
        head = endpoint.head(body, request.headers.get("content-type", ""))
        if isinstance(head, Rejection):
            return head
        asked.body, asked.model, asked.spans = body, head.model, head.spans
        asked.fields, asked.read_from = head.fields, body
        asked.stream = (head.stream or asked.stream) and endpoint.reader is not None
        timeout, heartbeat_s = header_policy.read_timeout(call.request.headers), generation.heartbeat_s
        # Each heartbeat restarts the SDK's read timeout.
        if not call.request.stream or heartbeat_s is None or timeout <= heartbeat_s:
            call.timing.deadline = call.timing.accepted_at + timeout
        call.priority = header_policy.priority(call.request.headers, call.caller.priority)
        if head.engine_fields and generation.may_reach_engine(asked.model):
            return engine_fields.reject(head.engine_fields, call.caller)
        return None

    def _list_models(
        self, generation: Generation, request: Request, call: Call, name: str | None
    ) -> Response | Rejection:
        body = generation.models.listing(call.caller) if name is None else generation.models.entry(call.caller, name)
        if isinstance(body, Rejection):
            return body
        call.response.status, call.response.outcome = 200, "ok"
        return Response(200, JSON + self._headers(generation, request, call), body, close=self.draining)

    async def _stored(
        self, generation: Generation, api: StoredApi, request: Request, call: Call, target: StoredTarget
    ) -> Response | StoredContent | Rejection:
        answer = await api.serve(request, call.caller, target, generation.body, call.lease)
        request.connection.body_read = True
        if isinstance(answer, Rejection):
            return answer
        call.response.status, call.response.outcome = 200, "ok"
        headers = self._headers(generation, request, call)
        if isinstance(answer, StoredContent):
            call.response.status = answer.status
            await answer.send(request, headers, api.library)
            return answer
        return Response(200, JSON + headers, answer, close=self.draining)

    def _new_call(self, request: Request, match: endpoints.Match | Rejection) -> Call:
        headers = request.headers
        asked = ClientRequest(
            match.endpoint if isinstance(match, endpoints.Match) else endpoints.unknown(request.target),
            header_policy.request_id(headers.get("x-request-id")) or self.new_request_id(),
            Credentials(
                _header_value(headers, "authorization"),
                _header_value(headers, "x-api-key") if "x-api-key" in headers else None,
                _header_value(headers, "api-key") if "api-key" in headers else None,
            ),
            headers,
            method=request.method,
        )
        if isinstance(match, endpoints.Match) and match.target:
            asked.target, asked.stored_id, asked.stream = match.target, match.stored_id, match.stream
        return Call(asked, self.clock())

    def _headers(self, generation: Generation, request: Request, call: Call) -> str:
        """The gateway's own headers, for any response."""
        headers = f"x-request-id: {call.request.id}\r\n{generation.cors.headers(request.headers)}"
        candidate, now = call.routing.candidate, self.clock()
        if call.attempts:
            headers += (
                f"x-sluice-upstream: {candidate.upstream}\r\nx-sluice-upstream-model: {candidate.header}\r\n"
                f"x-sluice-attempts: {call.attempts}\r\n"
                f"{header_lines(call.response.upstream_headers) if call.response.upstream_headers else ''}"
            )
        if call.timing.answered_at:
            headers += (
                f"x-sluice-queue-ms: {call.timing.queue_s * 1000:.3f}\r\n"
                f"x-sluice-overhead-ms: {call.overhead_s(now) * 1000:.3f}\r\n"
            )
        if call.response.notes:
            headers += header_lines(call.response.notes.items())
        if call.batch_size:
            headers += f"x-sluice-batch-size: {call.batch_size}\r\n"
        if call.usage.cost is not None:
            headers += f"x-sluice-cost-usd: {usd(call.usage.cost)}\r\n"
        if (account := call.caller.account) is not None:
            headers += ratelimit_headers.render(account.limits, account.status(now))
        return headers

    async def _flushed(self, connection: Connection) -> None:
        """Wait until the response is written out, as long as the client keeps reading."""
        while connection.full and (transport := connection.transport) is not None:
            backlog = transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(WRITE_STALL_S):
                    await connection.flushed()
            except TimeoutError:
                if transport.get_write_buffer_size() >= backlog:
                    transport.abort()
                    return


def _header_value(headers: CIMultiDictProxy[str], name: str) -> str | None:
    """A header's value. All values of a repeated header, joined: never a valid key."""
    values = headers.getall(name, None)
    return None if values is None else values[0] if len(values) == 1 else ", ".join(values)
