"""An OpenTelemetry collector that stores the traces it gets over OTLP/HTTP."""

import asyncio
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span:
    """One span, its ids as hexadecimal text, its times in seconds since 1970."""

    def __init__(self, sent: Any, resource: dict[str, Any]) -> None:
        self.name: str = sent.name
        self.kind: int = sent.kind
        self.trace_id: str = sent.trace_id.hex()
        self.span_id: str = sent.span_id.hex()
        self.parent_id: str = sent.parent_span_id.hex()
        self.began = sent.start_time_unix_nano / 1e9
        self.ended = sent.end_time_unix_nano / 1e9
        self.error: str | None = sent.status.message if sent.status.code == 2 else None
        self.attributes = _values(sent.attributes)
        self.resource = resource


class Collector:
    """Listens on a free port of 127.0.0.1 and answers with `status`; it stores spans only with a 200."""

    def __init__(self, status: int = 200) -> None:
        self.spans: list[Span] = []
        self.status = status
        self.heads: list[str] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        """The value for `OTEL_EXPORTER_OTLP_ENDPOINT`."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def received(self, count: int) -> list[Span]:
        """Waits for `count` spans; returns them ordered by start time."""
        async with asyncio.timeout(30):
            while len(self.spans) < count:
                self._changed.clear()
                await self._changed.wait()
        return sorted(self.spans, key=lambda span: span.began)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                self._take(head, await reader.readexactly(length))
                writer.write(b"HTTP/1.1 %d OK\r\ncontent-length: 0\r\n\r\n" % self.status)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _take(self, head: str, body: bytes) -> None:
        self.heads.append(head)
        if self.status == 200:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                shared = _values(resource.resource.attributes)
                self.spans += [Span(span, shared) for scope in resource.scope_spans for span in scope.spans]
        self._changed.set()


def _values(attributes: Any) -> dict[str, Any]:
    values = {}
    for attribute in attributes:
        value = getattr(attribute.value, attribute.value.WhichOneof("value"))
        is_list = attribute.value.HasField("array_value")
        values[attribute.key] = [item.string_value for item in value.values] if is_list else value
    return values
