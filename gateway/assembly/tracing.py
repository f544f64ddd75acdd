"""The tracing of each generation of the pipeline, and the one way out for its spans."""

from random import Random
from typing import TYPE_CHECKING

from gateway.assembly.upstreams import provider_of
from gateway.config import model as cfg
from gateway.core.clock import Clock, unix
from gateway.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from gateway.telemetry.span_exporter import SpanExporter, UpstreamAttributes


class TracingFactory:
    """Where the config has them on; where not, nothing of OpenTelemetry is imported."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._spans: SpanExporter | None = None
        self._places: dict[str, UpstreamAttributes] = {}  # of all upstreams that there have been

    def tracing(self, config: cfg.Config) -> Tracing | None:
        """For a generation with this config; None where they are off."""
        if not config.traces.enabled:
            return None
        from gateway.telemetry.span_exporter import SpanExporter, UpstreamAttributes

        if self._spans is None:
            self._spans = SpanExporter(self._places.__getitem__, self._rng, unix)
        for name, one in config.upstreams.items():
            self._places[name] = UpstreamAttributes.of(provider_of(config, name), one.base_url)
        return Tracing(config.traces.sample, self._rng, self._clock, self._spans)

    async def close(self) -> None:
        """Send what is left."""
        if self._spans is not None:
            await self._spans.close()
