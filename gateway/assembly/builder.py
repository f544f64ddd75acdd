"""From one config to one generation of the pipeline, and what outlives it because it is known by name.

A generation is built beside the one that serves, and nothing that the old one uses is changed but for its
limits: calls under way go on with their own upstreams, keys and routes. What calls have taught is not lost:
lines keep those who wait, breakers and budgets what they have seen, unchanged upstreams their connections.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from gateway.assembly import batching as merging
from gateway.assembly import upstreams as assembly
from gateway.assembly.accounts import Accounts
from gateway.assembly.cache import CacheFactory
from gateway.assembly.routing import RouterFactory, engine_loads
from gateway.assembly.tracing import TracingFactory
from gateway.assembly.upstreams import WorkerShare
from gateway.batching.layer import BatchingLayer
from gateway.config import model as cfg
from gateway.core.call import Gate, Stack
from gateway.core.clock import Clock, unix, unix_now
from gateway.http.client.batch_probe import BatchEndpointProbe
from gateway.http.client.engine_metrics import EngineMetricsPoller
from gateway.http.client.forward import Forward
from gateway.http.client.tcp_health import TcpHealthChecker
from gateway.http.client.upstream import UpstreamClient
from gateway.http.server.body import BodyReader
from gateway.http.server.cors import Cors
from gateway.http.server.generation import Generation
from gateway.http.server.model_list import ModelList
from gateway.http.ticker import Ticker, interval_for
from gateway.limits.body_memory import BodyMemory
from gateway.limits.gate import KeyLimitGate
from gateway.pipeline.stack import Deps, build
from gateway.pricing.resolver import Pricing
from gateway.queueing.layer import QueueLayer
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.poison_requests import PoisonRequests
from gateway.resilience.retry_budget import RetryBudget
from gateway.telemetry import logging as log
from gateway.telemetry.metrics import Metrics, counter, fast_incs, fast_observe
from gateway.usage import exact_tokens
from gateway.usage.accounting import UsageAccounting
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator, Exact
from gateway.usage.gpu_cost import GpuCosts, Throughput

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """One config, the generation made of it, and its parts that others ask."""

    config: cfg.Config
    generation: Generation
    upstreams: Mapping[str, UpstreamClient]
    hops: Mapping[str, str]
    reachability: TcpHealthChecker
    attempt: AttemptRunner
    queue: QueueLayer
    batching: BatchingLayer
    offers: BatchEndpointProbe
    engines: EngineMetricsPoller


class KeyedRegistry(Generic[_T]):
    """Things by name; made anew only where the settings that they were made from are others."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, _T]] = {}

    def get(self, name: str, settings: object, make: Callable[[], _T]) -> _T:
        """The one of this name."""
        known = self._made.get(name)
        if known is None or known[0] != settings:
            known = self._made[name] = (settings, make())
        return known[1]


class ExactCounts:
    """Counts with the vocabularies of all models that there have been, as far as these are known."""

    def __init__(self) -> None:
        self._models: frozenset[str] = frozenset()
        self._count: Exact | None = None

    def __call__(self, body: bytes, model: str) -> int | None:
        """See `exact_tokens.ExactTokens`."""
        return None if self._count is None else self._count(body, model)

    async def load(self, config: cfg.Config) -> None:
        """Load what these models need; off the loop, for it may take seconds."""
        sent = {one.model for model in config.models.values() for one in model.candidates}
        wanted = self._models | {model for model in sent if exact_tokens.dialect_of(model) is not None}
        if wanted != self._models:
            self._count = await asyncio.to_thread(exact_tokens.load, wanted)
            self._models = wanted


class PipelineBuilder:
    """Builds one pipeline after the other, on the running loop."""

    def __init__(self, config: cfg.Config, share: WorkerShare, metrics: Metrics, clock: Clock) -> None:
        self._share = share
        self._metrics = metrics
        self._clock = clock
        self._began = unix_now()
        self._rng = Random()
        self.sweep = Ticker(interval_for(assembly.shortest(config)), clock)
        self.accounts = Accounts(config, metrics, self.sweep)
        self._exact = ExactCounts()
        self._pricing = Pricing(unix)
        self._done: KeyedRegistry[Throughput] = KeyedRegistry()
        self.machines = GpuCosts({})
        self._estimates = TokenEstimates(Estimator(self._exact), metrics)
        self.caches = CacheFactory(metrics, clock, self._rng, self.accounts.spared)
        self.router = RouterFactory(self._estimates.make, metrics, self._rng, share, clock)
        self.traces = TracingFactory(clock, self._rng)
        self._room = WaitingRoom(share.of(config.server.max_queue))
        self._bodies = BodyMemory(0)
        self._lines: dict[str, UpstreamQueue] = {}
        self._paces: KeyedRegistry[Pace | None] = KeyedRegistry()
        self._breakers: KeyedRegistry[CircuitBreaker] = KeyedRegistry()
        self._budgets: KeyedRegistry[RetryBudget] = KeyedRegistry()
        self._poison = PoisonRequests()

    async def prepare(self, config: cfg.Config) -> Mapping[str, int]:
        """What has to be waited for before `build`, and is for it. Changes nothing for calls.

        UsageTrouble where it cannot be known what has been spent.
        """
        await self._exact.load(config)
        await self._pricing.load(config)
        await self.router.tiers.load(config)
        return await self.accounts.spent(config)

    def build(self, config: cfg.Config, before: Pipeline | None, spent: Mapping[str, int]) -> Pipeline:
        """The pipeline of this config, to be used from now on instead of `before`; `spent` as prepared."""
        sweep = self.sweep if before is None else _sweep(config, before, self._clock)
        upstreams = {name: _upstream(one, before, sweep) for name, one in config.upstreams.items()}
        hops = {name: assembly.first_hop(one) for name, one in config.upstreams.items()}
        attempt, queue = self._attempt(config), self._queue(config)
        reachability = _reachability(hops, before)
        max_body = config.server.max_body
        # One body of the largest size finds room everywhere.
        self._bodies.most = max(max_body, self._share.of(config.server.max_body_memory))
        estimate = self._estimates.make
        forward = Forward(upstreams, max_body, sweep, reachability, queue.learn, self._clock, estimate)
        self.accounts.take(config, spent)
        last = (
            merging.PreviousGeneration(before.config, before.offers, before.batching)
            if before is not None
            else None
        )
        offers = merging.offers(config, upstreams, last, self._clock)
        batching = merging.batching(config, offers, last, self._metrics, self._clock, self._poison)
        engines = engine_loads(config, before.engines if before is not None else None, self._clock)
        routing = self.router.gate(config, self._lines, engines, attempt)
        if routing is not None:
            queue.spills = routing.spills
        generation = Generation(
            1 if before is None else before.generation.number + 1,
            self._stack(config, attempt, queue, forward, batching, routing),
            ModelList(config.models, self._began),
            BodyReader(max_body, config.server.body_timeout, self._bodies),
            Cors(config.server.cors_origins),
            sweep,
            config.server.heartbeat,
        )
        self._adjust(config, queue)
        return Pipeline(
            config, generation, upstreams, hops, reachability, attempt, queue, batching, offers, engines
        )

    def _attempt(self, config: cfg.Config) -> AttemptRunner:
        retry = config.retry
        health = {name: self._health(one, retry.budget) for name, one in config.upstreams.items()}
        metrics = self._metrics
        counts = RetryMetrics(
            fast_incs(metrics.attempts), counter(metrics.retries), counter(metrics.fallbacks)
        )
        rules = RetryPolicy(retry.attempts, retry.backoff_base, retry.backoff_max)
        sleep = asyncio.sleep  # noqa: TID251 - handed on: the pause between two attempts
        attempt = AttemptRunner(health, rules, counts, self._clock, sleep, self._rng)
        attempt.poison = self._poison
        return attempt

    def _health(self, one: cfg.UpstreamConfig, share: float) -> UpstreamHealth:
        """What is known of an upstream is no news of another server that has its name now."""
        failures, open_s, max_open_s = one.breaker.failures, one.breaker.open_for, one.breaker.max_open_for
        breaker = self._breakers.get(
            one.name,
            (one.base_url, one.breaker),
            lambda: CircuitBreaker(failures, open_s, max_open_s, self._rng),
        )
        budget = self._budgets.get(one.name, (one.base_url, share), lambda: RetryBudget(share))
        return UpstreamHealth(breaker, budget, one.timeouts.total)

    def _queue(self, config: cfg.Config) -> QueueLayer:
        for name, one in config.upstreams.items():
            if name not in self._lines:
                self._lines[name] = UpstreamQueue(name, self._permits(one))
        lines = {name: self._lines[name] for name in config.upstreams}
        waited = {name: fast_observe(self._metrics.queue_wait.labels(name)) for name in lines}
        return QueueLayer(self._room, lines, self._clock, waited, self._estimates.make)

    def _permits(self, one: cfg.UpstreamConfig) -> int:
        return self._share.of(one.max_concurrency)

    def _adjust(self, config: cfg.Config, queue: QueueLayer) -> None:
        """Give the lines their limits, and let go whom these let go."""
        for name, one in config.upstreams.items():
            line, permits = self._lines[name], self._permits(one)
            line.free += permits - line.permits  # below 0 while more are under way
            line.permits, line.total_s = permits, one.timeouts.total
            line.pace = self._pace(one)
            queue.look(name)

    def _pace(self, one: cfg.UpstreamConfig) -> Pace | None:
        rpm, tpm = self._share.part(one.rate.rpm), self._share.part(one.rate.tpm)
        if rpm is None and tpm is None:
            return None
        return self._paces.get(one.name, (rpm, tpm), lambda: Pace(rpm, tpm))

    def _throughputs(self, config: cfg.Config) -> Iterator[tuple[str, tuple[int, Throughput]]]:
        for name, one in config.upstreams.items():
            if one.gpu_hour_usd is not None:
                done = self._done.get(name, one.base_url, lambda: Throughput(self._clock()))
                yield name, (one.gpu_hour_usd, done)

    def _stack(
        self,
        config: cfg.Config,
        attempt: AttemptRunner,
        queue: QueueLayer,
        forward: Forward,
        batching: BatchingLayer,
        routing: Gate | None,
    ) -> Stack:
        accounts, metrics, estimates = self.accounts, self._metrics, self._estimates
        names = list(config.models)
        callers = {
            key.digest(): assembly.caller(key, names, accounts.of.get(key.name)) for key in config.keys
        }
        limit = KeyLimitGate(estimates.make, accounts.calendar, metrics)
        self.machines = GpuCosts(dict(self._throughputs(config)))
        paid = (*accounts.books(), *((self.machines.paid,) if self.machines else ()))
        books = (estimates.book,)
        spend = UsageAccounting(
            accounts.calendar, estimates.make, metrics, books, always=accounts.keeps, paid=paid
        )
        routes = assembly.routes(config, lambda one, upstream: self._pricing.known(one, upstream).price)
        if self._pricing.watch(config, routes):
            self.sweep.add(self._pricing)
        overflows = assembly.overflows(config, routes, estimates.make, metrics)
        return build(
            Deps(
                metrics,
                log.access,
                callers,
                routes,
                limit,
                spend,
                attempt,
                queue,
                forward,
                batching,
                overflows,
                routing,
                self.caches.layers(config),
                self.traces.tracing(config),
                self.router.tiers.layer(config, spend),
            )
        )


def _sweep(config: cfg.Config, before: Pipeline, clock: Clock) -> Ticker:
    """The one there is, unless shorter or longer times call for another pace."""
    interval = interval_for(assembly.shortest(config))
    if interval == interval_for(assembly.shortest(before.config)):
        return before.generation.sweep
    return Ticker(interval, clock)


def _upstream(config: cfg.UpstreamConfig, before: Pipeline | None, sweep: Ticker) -> UpstreamClient:
    """The one there is, or one with its pool, or all anew."""
    if before is not None and config.name in before.upstreams and sweep is before.generation.sweep:
        known, former = before.upstreams[config.name], before.config.upstreams[config.name]
        if former == config:
            return known
        if assembly.same_pool(former, config):
            return assembly.upstream(config, known.transport)
    return assembly.upstream(config, assembly.transport(config, sweep))


def _reachability(hops: Mapping[str, str], before: Pipeline | None) -> TcpHealthChecker:
    if before is not None and before.hops == hops:
        return before.reachability
    found = TcpHealthChecker(hops)
    if before is not None:
        for name, hop in hops.items():
            if before.hops.get(name) == hop and before.reachability.of(name):
                found.note(name, reachable=True)
    return found
