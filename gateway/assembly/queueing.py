"""From the config to the queues of the upstreams, which outlive a reload together with the calls in them."""

from collections.abc import Callable, Mapping

from gateway.admission.engine_admission import EngineAdmission, EngineLoad
from gateway.assembly.registry import KeyedRegistry
from gateway.assembly.upstreams import WorkerShare
from gateway.config import model as cfg
from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.queueing.advertised_quota import Quotas
from gateway.queueing.layer import QueueLayer
from gateway.queueing.pacing import Pace
from gateway.queueing.spill_timer import SpillCheck
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.telemetry.metrics import Metrics


class QueueFactory:
    """The waiting room of one process, a queue and a pace per upstream, and the quotas of their models."""

    def __init__(
        self,
        share: WorkerShare,
        max_queue: int,
        metrics: Metrics,
        clock: Clock,
        estimate: Callable[[Call], object],
    ) -> None:
        """`max_queue` is the bound of all workers together."""
        self._share = share
        self._metrics = metrics
        self._clock = clock
        self._estimate = estimate
        self._room = WaitingRoom(share.of(max_queue))
        self._queues: dict[str, UpstreamQueue] = {}
        self.quotas: Quotas = {}
        self._paces: KeyedRegistry[Pace | None] = KeyedRegistry()
        self._admissions: KeyedRegistry[EngineAdmission] = KeyedRegistry()
        self._layer: QueueLayer | None = None  # of the current generation

    def queues(self, config: cfg.Config) -> Mapping[str, UpstreamQueue]:
        """The queue of each upstream; limits of existing ones stay as they are until `apply_limits`."""
        self._paces.retain(config.upstreams)
        # One with calls stays: should its upstream come back, they count.
        for name in [name for name, queue in self._queues.items() if name not in config.upstreams and queue.idle]:
            del self._queues[name]
        for name, upstream in config.upstreams.items():
            if name not in self._queues:
                self._queues[name] = UpstreamQueue(name, self._permits(upstream), quotas=self.quotas)
        return {name: self._queues[name] for name in config.upstreams}

    def layer(self, queues: Mapping[str, UpstreamQueue], spills: SpillCheck | None) -> QueueLayer:
        """The layer over these queues; without `spills` no call moves to another upstream."""
        return QueueLayer(self._room, queues, self._clock, self._metrics.queue_wait.observer, self._estimate, spills)

    def apply_limits(self, config: cfg.Config, layer: QueueLayer) -> None:
        """Give the queues this config's limits, and grant slots to calls that these let through."""
        for name, upstream in config.upstreams.items():
            queue = self._queues[name]
            queue.admission = self._admission(upstream)
            queue.set_permits(self._permits(upstream))
            queue.total_s, queue.pace = upstream.timeouts.total, self._pace(upstream)
            queue.release_holds()
            layer.grant_next(name)
        self._layer = layer

    def read(self, upstream: str, load: EngineLoad) -> None:
        """Take an engine's metrics, and grant slots to calls that they let through."""
        queue = self._queues.get(upstream)
        if queue is None or queue.admission is None or self._layer is None:
            return
        now = self._clock()
        queue.admission.read(load, queue.in_flight, queue.waiting > 0, now)
        queue.follow_limit(now)
        self._layer.grant_next(upstream)

    def _permits(self, upstream: cfg.UpstreamConfig) -> int:
        admission = self._admission(upstream)
        return self._share.of(upstream.slots or 0) if admission is None else admission.limit.value

    def _admission(self, upstream: cfg.UpstreamConfig) -> EngineAdmission | None:
        if upstream.slots is not None:
            return None
        workers = self._share.workers
        return self._admissions.get(upstream.name, upstream.base_url, lambda: EngineAdmission(workers))

    def _pace(self, upstream: cfg.UpstreamConfig) -> Pace | None:
        rpm, tpm = self._share.part(upstream.rate.rpm), self._share.part(upstream.rate.tpm)
        if rpm is None and tpm is None:
            return None
        return self._paces.get(upstream.name, (rpm, tpm), lambda: Pace(rpm, tpm))
