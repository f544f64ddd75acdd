"""Exports traced calls as OpenTelemetry spans over OTLP. Needs the packages of the extra `otlp`.

Spans are made when their call ends, from the times that the call records anyway. The SDK's thread sends them
in batches and drops what it cannot send fast enough. OpenTelemetry's usual environment variables set the
destination (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on).
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from gateway import __version__
from gateway.core.call import UNROUTED, Call
from gateway.core.caller import STRANGER
from gateway.core.clock import Clock
from gateway.core.trace import AttemptRecord, Trace
from gateway.core.units import NANO, usd
from gateway.telemetry.semconv import OPERATIONS

SHUTDOWN_TIMEOUT_S: Final = 1.0
"""Seconds at the end of the process to send the remaining spans."""

Attributes = dict[str, str | int | float | bool | tuple[str, ...]]
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_FAILED: Final = frozenset({"truncated", "upstream_error", "upstream_timeout", "internal_error", "shed"})
_UNSET: Final = Status(StatusCode.UNSET)


class UpstreamAttributes(NamedTuple):
    """Span attributes of an upstream: its `gen_ai.provider.name` and its address."""

    provider: str
    host: str
    port: int

    @classmethod
    def of(cls, provider: str, base_url: str) -> "UpstreamAttributes":
        """The attributes of an upstream with this base URL."""
        url = urlsplit(base_url)
        return cls(provider, url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


class SpanExporter:
    """Makes and sends the spans of finished calls; an `Export` of `telemetry.tracing`."""

    def __init__(self, attributes_of: Callable[[str], UpstreamAttributes], rng: Random, unix: Clock) -> None:
        """`attributes_of(upstream)`; `unix` is the wall clock, in seconds since 1970."""
        self._attributes_of = attributes_of
        self._rng = rng
        self._unix = unix
        self._exporter = OTLPSpanExporter()
        self._processor = BatchSpanProcessor(self._exporter)
        resource = Resource({"service.name": "sluice", "service.version": __version__})
        self._resource = resource.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("sluice", __version__)

    def __call__(self, call: Call, trace: Trace, now: float) -> None:
        """Make the spans of a call and pass them to the sending thread."""
        offset = self._unix() - now
        parent = _context(trace, trace.parent_id, remote=True) if trace.parent_id else None
        context = _context(trace, trace.span_id)
        failed = call.response.outcome in _FAILED
        status = Status(StatusCode.ERROR, call.response.outcome) if failed else _UNSET
        times = (call.timing.accepted_at + offset, now + offset)
        attributes = _call_attributes(call)
        name = f"{attributes['http.request.method']} {call.request.endpoint}"
        self._end(name, context, parent, SpanKind.SERVER, attributes, status, *times)
        for attempt in trace.attempts:
            self._end_attempt(call, trace, context, attempt, now, offset)
        waited_s = call.timing.queue_s - trace.waited_s
        if waited_s > 0.0:
            self._end_queue(trace, context, waited_s, now + offset)

    async def close(self) -> None:
        """Send the remaining spans, for at most SHUTDOWN_TIMEOUT_S if the collector does not answer."""
        closing = asyncio.create_task(asyncio.to_thread(self._processor.shutdown))
        await asyncio.wait([closing], timeout=SHUTDOWN_TIMEOUT_S)
        if not closing.done():
            end_backoff: Callable[[], None] = self._exporter.shutdown  # ends the pause before the next try
            end_backoff()
        await closing

    def _end_attempt(
        self, call: Call, trace: Trace, parent: SpanContext, attempt: AttemptRecord, now: float, offset: float
    ) -> None:
        began, ended = attempt.began + offset, (attempt.ended or now) + offset
        if attempt.waited_s > 0.0:
            self._end_queue(trace, parent, attempt.waited_s, began)
        error = attempt.error
        if not attempt.ended and call.response.outcome in _FAILED:
            error = call.response.outcome
        attributes = self._attempt_attributes(call, attempt)
        if error:
            attributes["error.type"] = error
        elif attempt is trace.attempts[-1]:
            attributes |= _answer_attributes(call)
        name = f"{attributes['gen_ai.operation.name']} {attempt.model}"
        status = Status(StatusCode.ERROR, error) if error else _UNSET
        context = _context(trace, attempt.span_id)
        self._end(name, context, parent, SpanKind.CLIENT, attributes, status, began, ended)

    def _end_queue(self, trace: Trace, parent: SpanContext, waited_s: float, until: float) -> None:
        context = _context(trace, self._rng.getrandbits(64) or 1)
        self._end("queue", context, parent, SpanKind.INTERNAL, {}, _UNSET, until - waited_s, until)

    def _attempt_attributes(self, call: Call, attempt: AttemptRecord) -> Attributes:
        upstream = self._attributes_of(attempt.upstream)
        attributes: Attributes = {
            "gen_ai.operation.name": OPERATIONS.get(call.request.endpoint, "chat"),
            "gen_ai.provider.name": upstream.provider,
            "gen_ai.request.model": attempt.model,
            "server.address": upstream.host,
            "server.port": upstream.port,
            "sluice.upstream": attempt.upstream,
        }
        if call.request.stream:
            attributes["gen_ai.request.stream"] = True
        if call.batch_size > 1:
            attributes["sluice.batch_size"] = call.batch_size
        return attributes

    def _end(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Attributes,
        status: Status,
        began: float,
        ended: float,
    ) -> None:
        self._processor.on_end(
            ReadableSpan(
                name,
                context,
                parent,
                self._resource,
                attributes,
                kind=kind,
                status=status,
                start_time=int(began * NANO),
                end_time=int(ended * NANO),
                instrumentation_scope=self._scope,
            )
        )


def _context(trace: Trace, span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace.trace_id, span_id, remote, _SAMPLED)


def _call_attributes(call: Call) -> Attributes:
    attributes: Attributes = {
        "http.request.method": call.request.method,
        "http.route": call.request.endpoint,
        "http.response.status_code": call.response.status,
        "sluice.request_id": call.request.id,
        "sluice.outcome": call.response.outcome,
        "sluice.attempts": call.attempts,
        "sluice.queue_ms": round(call.timing.queue_s * 1000, 3),
    }
    if call.caller is not STRANGER:
        attributes["sluice.key"] = call.caller.name
    if call.routing.route is not UNROUTED:
        attributes["sluice.model"] = call.routing.route.name
    if call.cached_by:
        attributes["sluice.cache"] = call.cached_by
    if call.usage.cost is not None:
        attributes["sluice.cost_usd"] = usd(call.usage.cost)
    if call.response.outcome in _FAILED:
        attributes["error.type"] = call.response.outcome
    return attributes


def _answer_attributes(call: Call) -> Attributes:
    attributes: Attributes = {}
    if call.usage.tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = call.usage.tokens.input
        attributes["gen_ai.usage.output_tokens"] = call.usage.tokens.output
    if call.timing.first_token_at:
        attributes["gen_ai.response.time_to_first_chunk"] = round(call.timing.first_token_at - call.timing.sent_at, 6)
    if call.response.finish:
        attributes["gen_ai.response.finish_reasons"] = (call.response.finish,)
    return attributes
