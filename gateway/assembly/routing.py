"""From the config to the router: which models have a choice, by which rule and from which data."""

from collections.abc import Callable, Mapping
from random import Random

from gateway.admission.engine_admission import EngineLoad
from gateway.assembly.cascade import CascadeFactory
from gateway.assembly.upstreams import WorkerShare, upstream_headers
from gateway.config import model as cfg
from gateway.core.call import Call, Candidate, TokenEstimate
from gateway.core.clock import Clock
from gateway.http.client.engine_metrics import KINDS, EngineMetricsPoller, MetricsSource
from gateway.http.client.resolver import Resolver
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.resilience.attempt import AttemptRunner
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.prefix_hashes import prefix_hashes
from gateway.routing.router import RequestInspectors, Router, RoutingRule
from gateway.routing.spillover import Usable
from gateway.telemetry.metrics import Metrics
from gateway.wire.openai.capabilities import needs

_BY_LOAD = ("cheapest", "least_loaded", "complexity")


def rules(config: cfg.Config) -> dict[str, RoutingRule]:
    """The rule of each model whose calls may have a choice."""
    all_rules = {name: _rule(model) for name, model in config.models.items()}
    budgets = any(key.limits.usd_per_day is not None for key in config.keys)
    return {
        name: rule
        for name, rule in all_rules.items()
        if not rule.plain or (budgets and len(config.models[name].candidates) > 1)
    }


def _rule(model: cfg.ModelConfig) -> RoutingRule:
    candidates = model.candidates
    several = len(candidates) > 1
    return RoutingRule(
        model.route if several else "priority",
        model.spill_after if several else None,
        any(candidate.capabilities is not None for candidate in candidates),
        several and any(candidate.context_window or candidate.max_output for candidate in candidates),
    )


def engine_sources(config: cfg.Config) -> dict[str, MetricsSource]:
    """The engines whose load some strategy or the admission uses."""
    by_route = {
        candidate.upstream
        for name, rule in rules(config).items()
        if rule.kind in _BY_LOAD or rule.spill_s is not None
        for candidate in config.models[name].candidates
    }
    return {
        name: _source(upstream)
        for name, upstream in config.upstreams.items()
        if upstream.kind in KINDS and (name in by_route or upstream.slots is None)
    }


def _source(upstream: cfg.UpstreamConfig) -> MetricsSource:
    return MetricsSource(upstream.kind, upstream.base_url, upstream_headers(upstream), upstream.ca_file)


def engine_metrics(
    config: cfg.Config,
    before: EngineMetricsPoller | None,
    clock: Clock,
    resolver: Resolver,
    on_reading: Callable[[str, EngineLoad], None],
) -> EngineMetricsPoller:
    """The previous poller if it has the same sources, else a new one."""
    sources = engine_sources(config)
    if before is not None and before.sources == sources:
        return before
    return EngineMetricsPoller(sources, clock, resolver, on_reading)


class RouterFactory:
    """Makes the router of each generation; the map of prefixes outlives them."""

    def __init__(
        self,
        estimate: Callable[[Call], TokenEstimate],
        metrics: Metrics,
        rng: Random,
        share: WorkerShare,
        clock: Clock,
    ) -> None:
        self.tiers = CascadeFactory(share, estimate, metrics, rng, clock)
        self._inspectors = RequestInspectors(needs, prefix_hashes, estimate)
        self._count_decision = metrics.routing_decisions.count
        self._count_fallback = metrics.fallbacks.count
        self._rng = rng
        self._prefixes = PrefixMap()

    def gate(
        self,
        config: cfg.Config,
        queues: Mapping[str, UpstreamQueue],
        engines: EngineMetricsPoller,
        attempt: AttemptRunner,
    ) -> Router | None:
        """The router for this config; None if no model has a choice."""
        model_rules = rules(config)
        if not model_rules:
            return None
        loads = UpstreamLoads(queues, engines.of)
        usable, scorers = _usable(attempt), self.tiers.scorers(config)
        return Router(
            model_rules,
            loads,
            self._prefixes,
            self._inspectors,
            usable,
            self._count_decision,
            self._rng,
            scorers,
            self._count_fallback,
        )


def _usable(attempt: AttemptRunner) -> Usable:
    def usable(call: Call, candidate: Candidate, now: float) -> bool:
        holds = attempt.holds
        if (holds.due or holds.quotas) and attempt.busy(call, candidate, now):
            return False
        return attempt.breaker(candidate, call.request.endpoint).ready(now)

    return usable
