"""From the config to the gate that routes: which models have a choice, by which rule, and on what grounds."""

from collections.abc import Callable, Mapping
from random import Random

from gateway import __version__
from gateway.assembly.cascade import Tiers
from gateway.assembly.upstreams import Share
from gateway.config import model as cfg
from gateway.core.call import Call, Candidate, Estimate
from gateway.core.clock import Clock
from gateway.http.client.engine_metrics import KINDS, EngineLoads, Source
from gateway.http.client.upstream import fixed_headers
from gateway.queueing.upstream_queue import Line
from gateway.resilience.attempt import Attempt
from gateway.routing.load import Loads
from gateway.routing.prefix_affinity import Prefixes
from gateway.routing.prefix_hashes import beginnings
from gateway.routing.router import Reads, Routing, Rule
from gateway.routing.spillover import Usable
from gateway.telemetry.metrics import Metrics, counter
from gateway.wire.openai.capabilities import needs

_BY_LOAD = ("cheapest", "least_loaded", "complexity")


def rules(config: cfg.Config) -> dict[str, Rule]:
    """The rule of each model for whose calls there may be something to decide."""
    found = {name: _rule(model) for name, model in config.models.items()}
    budgets = any(key.limits.usd_per_day is not None for key in config.keys)
    return {
        name: rule
        for name, rule in found.items()
        if not rule.plain or (budgets and len(config.models[name].candidates) > 1)
    }


def _rule(model: cfg.Model) -> Rule:
    candidates = model.candidates
    several = len(candidates) > 1
    return Rule(
        model.route if several else "priority",
        model.spill_after if several else None,
        any(one.capabilities is not None for one in candidates),
        several and any(one.context_window or one.max_output for one in candidates),
    )


def engine_sources(config: cfg.Config) -> dict[str, Source]:
    """The engines whose load some route goes by."""
    chosen = (
        config.upstreams[one.upstream]
        for name, rule in rules(config).items()
        if rule.kind in _BY_LOAD or rule.spill_s is not None
        for one in config.models[name].candidates
    )
    return {one.name: _source(one) for one in chosen if one.kind in KINDS}


def _source(one: cfg.Upstream) -> Source:
    key = one.api_key.reveal() if one.api_key is not None else None
    extra = {name: value.reveal() for name, value in one.headers.items()}
    return Source(one.kind, one.base_url, fixed_headers(key, extra, f"sluice/{__version__}"))


def engine_loads(config: cfg.Config, before: EngineLoads | None, clock: Clock) -> EngineLoads:
    """The one there is, where the same engines are asked in the same way."""
    sources = engine_sources(config)
    return before if before is not None and before.sources == sources else EngineLoads(sources, clock)


class Router:
    """Makes the gate for one config after the other; what requests were sent where is remembered."""

    def __init__(
        self,
        estimate: Callable[[Call], Estimate],
        metrics: Metrics,
        rng: Random,
        share: Share,
        clock: Clock,
    ) -> None:
        self.tiers = Tiers(share, estimate, metrics, rng, clock)
        self._reads = Reads(needs, beginnings, estimate)
        self._counted = counter(metrics.routed)
        self._fallback = counter(metrics.fallbacks)
        self._rng = rng
        self._prefixes = Prefixes()

    def gate(
        self, config: cfg.Config, lines: Mapping[str, Line], engines: EngineLoads, attempt: Attempt
    ) -> Routing | None:
        """None where no model has a choice."""
        found = rules(config)
        if not found:
            return None
        loads = Loads(lines, engines.of)
        usable, scorers = _usable(attempt), self.tiers.scorers(config)
        told = self._counted, self._rng, scorers, self._fallback
        return Routing(found, loads, self._prefixes, self._reads, usable, *told)


def _usable(attempt: Attempt) -> Usable:
    def usable(candidate: Candidate, now: float) -> bool:
        if attempt.not_before.get(candidate, 0.0) > now:
            return False
        return attempt.health[candidate.upstream].breaker.ready(now)

    return usable
