"""The end of the pipeline: one attempt at the upstream, judged before a byte of it counts as an answer."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from gateway.core.call import Call, Reply, Route
from gateway.core.clock import Clock
from gateway.core.errors import (
    INVALID,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.http.client.stream_relay import StreamRelay
from gateway.http.client.tcp_health import TcpHealthChecker
from gateway.http.client.transport import Exchange
from gateway.http.client.upstream import LONGEST_ERROR, UpstreamClient
from gateway.http.ticker import Ticker
from gateway.usage.call_usage import charge, wasted
from gateway.wire.http import header_policy as wire_headers
from gateway.wire.json import splice
from gateway.wire.openai import peek as openai
from gateway.wire.openai import usage
from gateway.wire.openai.chunks import ChunkReader

ERROR_BODY_S = 5.0
"""Seconds that an upstream has for the body of an error; its status says most."""


class Forward:
    """The terminal handler. Raises Failure; whatever else happens, the connection is not left behind."""

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamClient],
        max_body: int,
        sweep: Ticker,
        reachability: TcpHealthChecker,
        learn: Callable[[str, Mapping[str, str]], None],
        clock: Clock,
        estimate: Callable[[Call], object] | None = None,
    ) -> None:
        """`learn(upstream, headers)` hears what each answer says of the upstream's own limits.

        `estimate` fills in `call.estimate`, for answers that tell no usage.
        """
        self._upstreams = upstreams
        self._max_body = max_body
        self._sweep = sweep
        self._reachability = reachability
        self._learn = learn
        self._clock = clock
        self._estimate = estimate

    async def __call__(self, call: Call) -> Reply | Rejection:
        """Send the call to its candidate."""
        route, candidate = call.route, call.candidate
        if route is None or candidate is None:
            raise AssertionError("the gates above set both")
        upstream = self._upstreams[candidate.upstream]
        if call.batch is not None:
            call.batch.materialise(call)
        call.attempts += 1
        call.sent_at, call.answered_at = self._clock(), 0.0
        asks = upstream.usage_edits(call)
        try:
            exchange = await upstream.send(call, candidate, asks)
        except UpstreamFailure as failure:
            if failure.kind is UPSTREAM_UNAVAILABLE:
                self._reachability.note(upstream.name, reachable=False)
            raise
        self._reachability.note(upstream.name, reachable=True)
        try:
            if not 200 <= exchange.status < 300:
                error = await self._error_body(exchange, upstream)
                if asks and exchange.status in (400, 422):
                    again = await upstream.resend_without_usage(call, candidate, error)
                    if again is not None:
                        exchange, asks, error = again, (), b""
                        if not 200 <= exchange.status < 300:
                            error = await self._error_body(exchange, upstream)
                if not 200 <= exchange.status < 300:
                    raise self._refused(exchange, upstream, call, error)
            self._heard(exchange, upstream, call)
            if call.stream:
                return await self._stream(exchange, upstream, call, route, strip_usage=bool(asks))
            return await self._whole(exchange, upstream, call, route)
        except BaseException:
            exchange.abort()
            raise

    def _heard(self, exchange: Exchange, upstream: UpstreamClient, call: Call) -> None:
        call.upstream_headers = _passing(exchange.headers)
        self._learn(upstream.name, exchange.headers)

    async def _error_body(self, exchange: Exchange, upstream: UpstreamClient) -> bytes:
        body = b""
        with suppress(UpstreamFailure):  # the status alone says enough
            body = await exchange.read(LONGEST_ERROR, self._clock() + ERROR_BODY_S)
        return upstream.decode_body(exchange, body, LONGEST_ERROR) or b""

    def _refused(
        self, exchange: Exchange, upstream: UpstreamClient, call: Call, error: bytes
    ) -> UpstreamFailure:
        self._heard(exchange, upstream, call)
        _wasted(call, openai.peek_answer(error))
        call.answered_at = self._clock()
        # A redirect is not followed: the key would travel along.
        return upstream.failure(exchange.status, error, exchange.headers)

    async def _whole(self, exchange: Exchange, upstream: UpstreamClient, call: Call, route: Route) -> Reply:
        raw = await exchange.read(self._max_body, upstream.deadline(call))
        call.answered_at = self._clock()
        encoded = "content-encoding" in exchange.headers
        body = upstream.decode_body(exchange, raw, self._max_body) if encoded else raw
        answer = openai.peek_whole(body) if body is not None else None
        if body is None or answer is None:
            _wasted(call, openai.peek_answer(body or b""))
            raise _invalid(upstream, "answered with something that is not a JSON object")
        if openai.is_error(answer):
            _wasted(call, answer)
            raise upstream.failure(200, body, exchange.headers)
        call.finish = openai.finish_of(answer)
        told = answer.usage
        charge(call, None if told is openai.NULL else usage.tokens(told), body, self._estimate)
        if call.batch is None and isinstance(answer.model, str) and answer.model != route.name:
            body = splice.replace(body, splice.model_spans(body), route.encoded)
        return Reply(200, body)

    async def _stream(
        self, exchange: Exchange, upstream: UpstreamClient, call: Call, route: Route, *, strip_usage: bool
    ) -> Reply:
        kind = exchange.headers.get("content-type", "")
        if not kind.lower().startswith("text/event-stream") or "content-encoding" in exchange.headers:
            raise await self._not_a_stream(exchange, upstream, call)
        reader = ChunkReader(route.name, route.encoded, strip_usage=strip_usage)
        relay = StreamRelay(exchange, reader, call, upstream, self._sweep, self._clock)
        try:
            await relay.first_event
        except BaseException as broken:
            relay.close()
            if isinstance(broken, UpstreamFailure) and call.candidate is not None:
                # One piece may have held its beginning and what is wrong with it.
                wasted(call, call.candidate, reader.tokens, reader.generated)
            raise
        return Reply(200, stream=relay)

    async def _not_a_stream(
        self, exchange: Exchange, upstream: UpstreamClient, call: Call
    ) -> UpstreamFailure:
        if exchange.headers.get("content-type", "").lower().startswith("application/json"):
            body = await exchange.read(LONGEST_ERROR, upstream.deadline(call))
            answer = openai.peek_answer(body)
            _wasted(call, answer)
            if answer is not None and openai.is_error(answer):
                return upstream.failure(200, body, exchange.headers)
        return _invalid(upstream, "did not answer with an event stream")


def _wasted(call: Call, answer: openai.WholeAnswer | None) -> None:
    """This attempt has failed; what the upstream counts of it all the same is paid for."""
    if answer is not None and answer.usage is not openai.NULL and call.candidate is not None:
        wasted(call, call.candidate, usage.tokens(answer.usage))


def _passing(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers of an upstream's answer that reach the client."""
    passing = [
        (name, value)
        for name in wire_headers.ANSWER_HEADERS
        if name in given and (value := wire_headers.clean(given[name]))
    ]
    for name in wire_headers.UPSTREAM_REQUEST_IDS:
        if name in given and (value := wire_headers.clean(given[name])):
            passing.append(("x-upstream-request-id", value))
            break
    return passing


def _invalid(upstream: UpstreamClient, what: str) -> UpstreamFailure:
    return UpstreamFailure(UPSTREAM_INVALID_RESPONSE, f"Upstream `{upstream.name}` {what}.", cause=INVALID)
