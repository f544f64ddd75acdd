"""The end of the pipeline: one attempt at an upstream, checked before any byte of it becomes the answer."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from gateway.core.call import Call, Candidate, Reply, Route
from gateway.core.clock import Clock
from gateway.core.endpoint import AnswerSummary
from gateway.core.errors import (
    INVALID,
    STATUS,
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.http.client.sniffed_stream import SniffedStream
from gateway.http.client.stream_relay import StreamRelay
from gateway.http.client.tcp_health import TcpHealthChecker
from gateway.http.client.transport import Exchange
from gateway.http.client.upstream import LONGEST_ERROR, UpstreamClient
from gateway.http.ticker import Ticker
from gateway.usage.call_usage import add_failed_usage, charge
from gateway.wire.http import header_policy
from gateway.wire.json import splice

ERROR_BODY_S = 5.0
"""Seconds to wait for the body of an error answer; the status alone says most."""


class Forward:
    """The terminal handler. Raises UpstreamFailure; on every exit the connection is returned or closed."""

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamClient],
        max_answer: int,
        ticker: Ticker,
        reachability: TcpHealthChecker,
        learn: Callable[[Candidate, Mapping[str, str]], None],
        clock: Clock,
        estimate: Callable[[Call], object] | None = None,
    ) -> None:
        """`learn(candidate, headers)` receives every answer's headers, which may carry the model's limits.

        `estimate` fills in `call.usage.estimate` for answers without usage.
        """
        self._upstreams = upstreams
        self._max_answer = max_answer
        self._ticker = ticker
        self._reachability = reachability
        self._learn = learn
        self._clock = clock
        self._estimate = estimate

    async def __call__(self, call: Call) -> Reply | Rejection:
        """Send the call to its candidate."""
        route, candidate = call.routing.route, call.routing.candidate
        upstream = self._upstreams[candidate.upstream]
        if call.batch is not None:
            call.batch.materialise(call)
        call.attempts += 1
        call.timing.sent_at, call.timing.answered_at = self._clock(), 0.0
        usage_edits = upstream.usage_edits(call)
        try:
            exchange = await upstream.send(call, candidate, usage_edits)
        except UpstreamFailure as failure:
            if failure.kind is UPSTREAM_UNAVAILABLE:
                self._reachability.note(upstream.name, reachable=False)
            raise
        self._reachability.note(upstream.name, reachable=True)
        try:
            if not 200 <= exchange.status < 300:
                error = await self._error_body(exchange, upstream)
                if not usage_edits or not upstream.refuses_usage(exchange.status, error):
                    raise self._failure(exchange, upstream, call, error)
            else:
                self._note_headers(exchange, call)
                if not call.request.stream:
                    return await self._whole(exchange, upstream, call, route)
                try:
                    return await self._stream(exchange, upstream, call, route, strip_usage=bool(usage_edits))
                except UpstreamFailure as failure:
                    status = failure.status if failure.cause == STATUS else None
                    words = failure.message.encode()
                    if not usage_edits or status is None or not upstream.refuses_usage(status, words):
                        raise
        except BaseException:
            exchange.abort()
            raise
        exchange.abort()
        return await self._stream_without_usage(upstream, call, route, candidate)

    async def _stream_without_usage(
        self, upstream: UpstreamClient, call: Call, route: Route, candidate: Candidate
    ) -> Reply:
        """A second try after a refusal that may be about asking for usage; remembered if it helps."""
        call.attempts += 1
        exchange = await upstream.send(call, candidate)
        try:
            if not 200 <= exchange.status < 300:
                raise self._failure(exchange, upstream, call, await self._error_body(exchange, upstream))
            self._note_headers(exchange, call)
            reply = await self._stream(exchange, upstream, call, route, strip_usage=False)
        except BaseException:
            exchange.abort()
            raise
        upstream.stop_asking(candidate)
        return reply

    def _note_headers(self, exchange: Exchange, call: Call) -> None:
        call.response.upstream_headers = _forwarded(exchange.headers)
        self._learn(call.routing.candidate, exchange.headers)

    async def _error_body(self, exchange: Exchange, upstream: UpstreamClient) -> bytes:
        body = b""
        with suppress(UpstreamFailure):  # the status alone is enough
            body = await exchange.read(LONGEST_ERROR, self._clock() + ERROR_BODY_S)
            body = upstream.decode_body(exchange, body, LONGEST_ERROR) or b""
        return body

    def _failure(self, exchange: Exchange, upstream: UpstreamClient, call: Call, error: bytes) -> UpstreamFailure:
        self._note_headers(exchange, call)
        _charge_failed(call, call.request.endpoint.answer(error))
        call.timing.answered_at = self._clock()
        # Redirects are not followed: they would forward the key.
        return upstream.failure(exchange.status, error, call.routing.candidate.model, exchange.headers)

    async def _whole(self, exchange: Exchange, upstream: UpstreamClient, call: Call, route: Route) -> Reply:
        raw = await exchange.read(self._max_answer, upstream.deadline(call))
        call.timing.answered_at = self._clock()
        read, body = call.request.endpoint.answer, raw
        answer = read(raw)
        if answer is None or answer.damaged:
            body = upstream.decode_body(exchange, raw, self._max_answer) or b""
            answer = answer if body is raw else read(body)
        if answer is None or answer.damaged:
            _charge_failed(call, answer)
            raise _invalid(upstream, "answered with something that is not a JSON object")
        if answer.error or (answer.failed_choice and not _shared(call)):
            _charge_failed(call, answer)
            raise upstream.failure(200, body, call.routing.candidate.model, exchange.headers)
        call.response.finish = answer.finish
        charge(call, answer.tokens, body, self._estimate)
        if call.batch is None and answer.model is not None and answer.model != call.request.model:
            body = splice.replace(body, splice.model_spans(body), route.encoded)
        outcome = UPSTREAM_ERROR.outcome if answer.failed else "ok"
        return Reply(200, body, None, outcome, _content_type(exchange) if call.request.endpoint.any_answer else "")

    async def _stream(
        self, exchange: Exchange, upstream: UpstreamClient, call: Call, route: Route, *, strip_usage: bool
    ) -> Reply:
        make = call.request.endpoint.reader
        if make is None:
            raise _invalid(upstream, "was asked for a stream that it cannot send")
        content_type = exchange.headers.get("content-type", "").lower()
        if not content_type.startswith("text/event-stream") or "content-encoding" in exchange.headers:
            exchange = SniffedStream(exchange, partial(self._not_a_stream, exchange, upstream, call))
        reader = make(route.name, route.encoded, strip_usage)
        relay = StreamRelay(exchange, reader, call, upstream, self._ticker, self._clock)
        try:
            await relay.first_event
        except BaseException as error:
            relay.close()
            if isinstance(error, UpstreamFailure):
                # The failing piece may also have carried the first tokens.
                add_failed_usage(call, call.routing.candidate, reader.tokens, reader.generated)
            raise
        return Reply(200, stream=relay)

    def _not_a_stream(self, exchange: Exchange, upstream: UpstreamClient, call: Call, body: bytes) -> UpstreamFailure:
        """The failure of an answer that is no event stream; `body` may be an error in JSON."""
        answer = call.request.endpoint.answer(body)
        _charge_failed(call, answer)
        if answer is not None and (answer.error or answer.failed_choice):
            return upstream.failure(200, body, call.routing.candidate.model, exchange.headers)
        return _invalid(upstream, "did not answer with an event stream")


def _shared(call: Call) -> bool:
    """Whether the answer is for several callers: one failed choice does not match, and they are sent one by one."""
    return call.batch is not None and len(call.batch.source_bodies()) > 1


def _charge_failed(call: Call, answer: AnswerSummary | None) -> None:
    """Charge the usage that the upstream reports with the answer of a failed attempt."""
    if answer is not None and answer.tokens is not None:
        add_failed_usage(call, call.routing.candidate, answer.tokens)


def _forwarded(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers of an upstream's answer that reach the client."""
    forwarded = [
        (name, value)
        for name in header_policy.ANSWER_HEADERS
        if name in headers and (value := header_policy.clean(headers[name]))
    ]
    for name in header_policy.UPSTREAM_REQUEST_IDS:
        if name in headers and (value := header_policy.clean(headers[name])):
            forwarded.append(("x-upstream-request-id", value))
            break
    return forwarded


def _content_type(exchange: Exchange) -> str:
    return header_policy.clean(exchange.headers.get("content-type", "")) or "application/octet-stream"


def _invalid(upstream: UpstreamClient, problem: str) -> UpstreamFailure:
    return UpstreamFailure(UPSTREAM_INVALID_RESPONSE, f"Upstream `{upstream.name}` {problem}.", cause=INVALID)
