"""Traced calls as OpenTelemetry's spans, sent by OTLP. Needs the packages of the extra `otlp`.

A span is made when its call is over, from the times that the call has anyway; the SDK's own thread sends them
in batches, and drops what it cannot keep up with. Where to is told by OpenTelemetry's usual variables of the
environment (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on).
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
from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.core.trace import AttemptRecord, Trace
from gateway.core.units import NANO, usd
from gateway.telemetry.semconv import OPERATIONS

LAST_S: Final = 1.0
"""Seconds at the end of the process for spans that could not be sent yet."""

Attributes = dict[str, str | int | float | bool | tuple[str, ...]]
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_FAILED: Final = frozenset({"truncated", "upstream_error", "upstream_timeout", "internal_error", "shed"})
_UNSET: Final = Status(StatusCode.UNSET)


class UpstreamAttributes(NamedTuple):
    """What is told of an upstream: OpenTelemetry's name of its provider, and its address."""

    provider: str
    host: str
    port: int

    @classmethod
    def of(cls, provider: str, base_url: str) -> "UpstreamAttributes":
        """From its base URL."""
        url = urlsplit(base_url)
        return cls(provider, url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


class SpanExporter:
    """Takes calls that are over (`layers.tracing.Export`)."""

    def __init__(self, place: Callable[[str], UpstreamAttributes], rng: Random, unix: Clock) -> None:
        """`place(upstream)`; `unix` is the wall clock, in seconds since 1970."""
        self._place = place
        self._rng = rng
        self._unix = unix
        self._exporter = OTLPSpanExporter()
        self._processor = BatchSpanProcessor(self._exporter)
        own = Resource({"service.name": "sluice", "service.version": __version__})
        self._resource = own.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("sluice", __version__)

    def __call__(self, call: Call, trace: Trace, now: float) -> None:
        """Make the spans of a call and hand them to the thread that sends them."""
        offset = self._unix() - now
        parent = _context(trace, trace.parent_id, remote=True) if trace.parent_id else None
        own = _context(trace, trace.span_id)
        failed = call.outcome in _FAILED
        status = Status(StatusCode.ERROR, call.outcome) if failed else _UNSET
        times = (call.accepted_at + offset, now + offset)
        told = _of_call(call)
        name = f"{told['http.request.method']} {call.endpoint}"
        self._end(name, own, parent, SpanKind.SERVER, told, status, *times)
        for attempt in trace.attempts:
            self._attempt(call, trace, own, attempt, now, offset)
        left = call.queue_s - trace.waited_s
        if left > 0.0:
            self._queued(trace, own, left, now + offset)

    async def close(self) -> None:
        """Send what is left; a collector that is away is tried for LAST_S, and not waited for any longer."""
        closing = asyncio.create_task(asyncio.to_thread(self._processor.shutdown))
        await asyncio.wait([closing], timeout=LAST_S)
        if not closing.done():
            end_pause: Callable[[], None] = self._exporter.shutdown  # between two tries; untyped there
            end_pause()
        await closing

    def _attempt(
        self, call: Call, trace: Trace, own: SpanContext, attempt: AttemptRecord, now: float, offset: float
    ) -> None:
        began, ended = attempt.began + offset, (attempt.ended or now) + offset
        if attempt.waited_s > 0.0:
            self._queued(trace, own, attempt.waited_s, began)
        error = attempt.error
        if not attempt.ended and call.outcome in _FAILED:
            error = call.outcome
        attributes = self._of_attempt(call, attempt)
        if error:
            attributes["error.type"] = error
        elif attempt is trace.attempts[-1]:
            attributes |= _of_answer(call)
        name = f"{attributes['gen_ai.operation.name']} {attempt.model}"
        status = Status(StatusCode.ERROR, error) if error else _UNSET
        context = _context(trace, attempt.span_id)
        self._end(name, context, own, SpanKind.CLIENT, attributes, status, began, ended)

    def _queued(self, trace: Trace, own: SpanContext, waited_s: float, until: float) -> None:
        context = _context(trace, self._rng.getrandbits(64) or 1)
        self._end("queue", context, own, SpanKind.INTERNAL, {}, _UNSET, until - waited_s, until)

    def _of_attempt(self, call: Call, attempt: AttemptRecord) -> Attributes:
        place = self._place(attempt.upstream)
        told: Attributes = {
            "gen_ai.operation.name": OPERATIONS.get(call.endpoint, "chat"),
            "gen_ai.provider.name": place.provider,
            "gen_ai.request.model": attempt.model,
            "server.address": place.host,
            "server.port": place.port,
            "sluice.upstream": attempt.upstream,
        }
        if call.stream:
            told["gen_ai.request.stream"] = True
        if call.batch_size > 1:
            told["sluice.batch_size"] = call.batch_size
        return told

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


def _of_call(call: Call) -> Attributes:
    told: Attributes = {
        "http.request.method": "POST" if call.endpoint in OPERATIONS else "GET",
        "http.route": call.endpoint,
        "http.response.status_code": call.status,
        "sluice.request_id": call.request_id,
        "sluice.outcome": call.outcome,
        "sluice.attempts": call.attempts,
        "sluice.queue_ms": round(call.queue_s * 1000, 3),
    }
    if call.caller is not None:
        told["sluice.key"] = call.caller.name
    if call.route is not None:
        told["sluice.model"] = call.route.name
    if call.cached_by:
        told["sluice.cache"] = call.cached_by
    if call.cost is not None:
        told["sluice.cost_usd"] = usd(call.cost)
    if call.outcome in _FAILED:
        told["error.type"] = call.outcome
    return told


def _of_answer(call: Call) -> Attributes:
    told: Attributes = {}
    if call.tokens is not None:
        told["gen_ai.usage.input_tokens"] = call.tokens.input
        told["gen_ai.usage.output_tokens"] = call.tokens.output
    if call.first_token_at:
        told["gen_ai.response.time_to_first_chunk"] = round(call.first_token_at - call.sent_at, 6)
    if call.finish:
        told["gen_ai.response.finish_reasons"] = (call.finish,)
    return told
