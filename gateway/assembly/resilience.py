"""From the config to the runner of attempts, with the circuit breakers and retry budgets of its upstreams."""

import asyncio
from collections.abc import Callable
from random import Random

from gateway.assembly.registry import KeyedRegistry
from gateway.config import model as cfg
from gateway.core.call import Call, TokenEstimate
from gateway.core.clock import Clock
from gateway.queueing.advertised_quota import Quotas
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.poison_requests import PoisonRequests
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers
from gateway.telemetry.metrics import Metrics


class ResilienceFactory:
    """Circuit breakers and retry budgets by upstream, and the poison requests of one process."""

    def __init__(self, metrics: Metrics, clock: Clock, rng: Random) -> None:
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._breakers: KeyedRegistry[UpstreamBreakers] = KeyedRegistry()
        self._budgets: KeyedRegistry[RetryBudget] = KeyedRegistry()
        self.poison = PoisonRequests()
        self._drained: set[str] = set()

    def attempt_runner(
        self, config: cfg.Config, estimate: Callable[[Call], TokenEstimate], quotas: Quotas
    ) -> AttemptRunner:
        """The runner for this config; `estimate` fills in `call.usage.estimate`, the queues keep `quotas`."""
        retry, metrics = config.retry, self._metrics
        self._breakers.retain(config.upstreams)
        self._budgets.retain(config.upstreams)
        return AttemptRunner(
            {name: self._health(upstream, retry.budget) for name, upstream in config.upstreams.items()},
            RetryPolicy(retry.attempts, retry.backoff_base, retry.backoff_max),
            RetryMetrics(metrics.attempts.adder, metrics.retries.count, metrics.fallbacks.count),
            self._clock,
            asyncio.sleep,  # noqa: TID251 - passed on: the pause between two attempts
            self._rng,
            self.poison,
            estimate,
            quotas,
        )

    def drain(self, upstream: str, runner: AttemptRunner) -> None:
        """Take an upstream out until `close`, whatever a reload changes about it."""
        self._drained.add(upstream)
        runner.health[upstream].breakers.drain()

    def close(self, upstream: str, runner: AttemptRunner, now: float) -> None:
        """Close the breakers of an upstream, and end a drain."""
        self._drained.discard(upstream)
        runner.health[upstream].breakers.close(now)

    def _health(self, upstream: cfg.UpstreamConfig, budget_ratio: float) -> UpstreamHealth:
        """The state of one upstream. Another address under the same name starts afresh."""
        name, base_url, rules = upstream.name, upstream.base_url, upstream.breaker
        breakers = self._breakers.get(
            name,
            (base_url, rules),
            lambda: UpstreamBreakers(
                lambda: CircuitBreaker(rules.failures, rules.open_for, rules.max_open_for, self._rng)
            ),
        )
        if name in self._drained and not breakers.drained:
            breakers.drain()
        budget = self._budgets.get(name, (base_url, budget_ratio), lambda: RetryBudget(budget_ratio))
        return UpstreamHealth(breakers, budget, upstream.timeouts.total)
