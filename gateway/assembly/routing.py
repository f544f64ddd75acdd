"""From the config to the gate that routes: which models have a choice, by which rule, and on what grounds."""

from collections.abc import Callable, Mapping
from random import Random

from gateway import __version__
from gateway.assembly.cascade import CascadeFactory
from gateway.assembly.upstreams import WorkerShare
from gateway.config import model as cfg
from gateway.core.call import Call, Candidate, TokenEstimate
from gateway.core.clock import Clock
from gateway.http.client.engine_metrics import KINDS, EngineMetricsPoller, MetricsSource
from gateway.http.client.upstream import fixed_headers
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.resilience.attempt import AttemptRunner
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router, RoutingRule
from gateway.routing.spillover import Usable
from gateway.telemetry.metrics import Metrics, counter
from gateway.wire.openai.capabilities import needs

_BY_LOAD = ("cheapest", "least_loaded", "complexity")


def rules(config: cfg.Config) -> dict[str, RoutingRule]:
    """The rule of each model for whose calls there may be something to decide."""
    found = {name: _rule(model) for name, model in config.models.items()}
    budgets = any(key.limits.usd_per_day is not None for key in config.keys)
    return {
        name: rule
        for name, rule in found.items()
        if not rule.plain or (budgets and len(config.models[name].candidates) > 1)
    }


def _rule(model: cfg.ModelConfig) -> RoutingRule:
    candidates = model.candidates
    several = len(candidates) > 1
    return RoutingRule(
        model.route if several else "priority",
        model.spill_after if several else None,
        any(one.capabilities is not None for one in candidates),
        several and any(one.context_window or one.max_output for one in candidates),
    )


def engine_sources(config: cfg.Config) -> dict[str, MetricsSource]:
    """The engines whose load some route goes by."""
    chosen = (
        config.upstreams[one.upstream]
        for name, rule in rules(config).items()
        if rule.kind in _BY_LOAD or rule.spill_s is not None
        for one in config.models[name].candidates
    )
    return {one.name: _source(one) for one in chosen if one.kind in KINDS}


def _source(one: cfg.UpstreamConfig) -> MetricsSource:
    key = one.api_key.reveal() if one.api_key is not None else None
    extra = {name: value.reveal() for name, value in one.headers.items()}
    return MetricsSource(one.kind, one.base_url, fixed_headers(key, extra, f"sluice/{__version__}"))


def engine_loads(config: cfg.Config, before: EngineMetricsPoller | None, clock: Clock) -> EngineMetricsPoller:
    """The one there is, where the same engines are asked in the same way."""
    sources = engine_sources(config)
    return before if before is not None and before.sources == sources else EngineMetricsPoller(sources, clock)


class RouterFactory:
    """Makes the gate for one config after the other; what requests were sent where is remembered."""

    def __init__(
        self,
        estimate: Callable[[Call], TokenEstimate],
        metrics: Metrics,
        rng: Random,
        share: WorkerShare,
        clock: Clock,
    ) -> None:
        self.tiers = CascadeFactory(share, estimate, metrics, rng, clock)
        self._reads = RequestInspectors(needs, prefix_hashes, estimate)
        self._counted = counter(metrics.routing_decisions)
        self._fallback = counter(metrics.fallbacks)
        self._rng = rng
        self._prefixes = PrefixMap()

    def gate(
        self,
        config: cfg.Config,
        lines: Mapping[str, UpstreamQueue],
        engines: EngineMetricsPoller,
        attempt: AttemptRunner,
    ) -> Router | None:
        """None where no model has a choice."""
        found = rules(config)
        if not found:
            return None
        loads = UpstreamLoads(lines, engines.of)
        usable, scorers = _usable(attempt), self.tiers.scorers(config)
        told = self._counted, self._rng, scorers, self._fallback
        return Router(found, loads, self._prefixes, self._reads, usable, *told)


def _usable(attempt: AttemptRunner) -> Usable:
    def usable(candidate: Candidate, now: float) -> bool:
        if attempt.not_before.get(candidate, 0.0) > now:
            return False
        return attempt.health[candidate.upstream].breaker.ready(now)

    return usable
