"""From the config to the tracing of a generation; all generations share one span exporter."""

from random import Random
from typing import TYPE_CHECKING

from gateway.assembly.upstreams import provider_of
from gateway.config import model as cfg
from gateway.core.clock import Clock
from gateway.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from gateway.telemetry.span_exporter import SpanExporter, UpstreamAttributes


class TracingFactory:
    """Makes the tracing of each generation. Without traces, nothing of OpenTelemetry is imported."""

    def __init__(self, clock: Clock, unix: Clock, rng: Random) -> None:
        self._clock = clock
        self._unix = unix
        self._rng = rng
        self._spans: SpanExporter | None = None
        self._attributes: dict[str, UpstreamAttributes] = {}  # of every upstream ever configured

    def tracing(self, config: cfg.Config) -> Tracing | None:
        """The tracing for this config; None when traces are off."""
        if not config.traces.enabled:
            return None
        from gateway.telemetry.span_exporter import SpanExporter, UpstreamAttributes

        if self._spans is None:
            self._spans = SpanExporter(self._attributes.__getitem__, self._rng, self._unix)
        for name, upstream in config.upstreams.items():
            self._attributes[name] = UpstreamAttributes.of(provider_of(config, name), upstream.base_url)
        return Tracing(config.traces.sample, self._rng, self._clock, self._spans)

    async def close(self) -> None:
        """Export the remaining spans."""
        if self._spans is not None:
            await self._spans.close()
