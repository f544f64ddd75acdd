"""From one config to one generation of the pipeline.

A generation is built beside the one that serves. Calls in flight go on with the upstreams, keys and routes
they started with; only limits change under them. State that belongs to a name outlives the config: queues
with their calls, circuit breakers, retry budgets, accounts, and the connections of unchanged upstreams.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from gateway.assembly import batching, upstreams
from gateway.assembly.accounts import Accounts
from gateway.assembly.cache import CacheFactory
from gateway.assembly.identity import IdentityProviders
from gateway.assembly.queueing import QueueFactory
from gateway.assembly.registry import KeyedRegistry
from gateway.assembly.resilience import ResilienceFactory
from gateway.assembly.routing import RouterFactory, engine_metrics
from gateway.assembly.serving import narrowed
from gateway.assembly.stored import StoredResponsesFactory
from gateway.assembly.tracing import TracingFactory
from gateway.assembly.upstreams import Links, WorkerShare, secrets
from gateway.auth.authenticate import ANONYMOUS, TokenCallers
from gateway.auth.model_names import ModelNames
from gateway.batching.layer import BatchingLayer
from gateway.config import model as cfg
from gateway.core.caller import Caller
from gateway.core.clock import Clock
from gateway.http.client.batch_probe import BatchEndpointProbe
from gateway.http.client.engine_metrics import EngineMetricsPoller
from gateway.http.client.forward import Forward
from gateway.http.client.resolver import Resolver
from gateway.http.client.tcp_health import TcpHealthChecker
from gateway.http.client.upstream import UpstreamClient
from gateway.http.descriptors import Descriptors
from gateway.http.server.body import BodyReader
from gateway.http.server.cors import Cors
from gateway.http.server.generation import Generation
from gateway.http.server.model_list import ModelList
from gateway.http.server.stored_api import StoredApi
from gateway.http.ticker import Ticker, interval_for
from gateway.inspector import layer as inspector_layer
from gateway.inspector.inspector import Inspector
from gateway.limits.body_memory import BodyMemory
from gateway.limits.key_limit_gate import KeyLimitGate
from gateway.pipeline.stack import Deps, build
from gateway.pricing.resolver import Pricing
from gateway.queueing.layer import QueueLayer
from gateway.resilience.attempt import AttemptRunner
from gateway.routing.router import Router
from gateway.telemetry import logging as log
from gateway.telemetry.metrics import Metrics
from gateway.usage import exact_tokens
from gateway.usage.accounting import UsageAccounting
from gateway.usage.estimates import TokenEstimates
from gateway.usage.estimator import Estimator, Exact
from gateway.usage.gpu_cost import GpuCosts, Throughput


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """One config, its generation, and the parts that the gateway, admin views and reloads need."""

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
    names: ModelNames
    caller_named: Callable[[str], Caller | None]
    """The caller of a key, or one that an identity provider vouches for; None if that is gone."""


class ExactCounts:
    """Counts tokens with the vocabularies of every model ever configured, as far as these are known."""

    def __init__(self) -> None:
        self._models: frozenset[str] = frozenset()
        self._count: Exact | None = None

    def __call__(self, body: bytes, model: str) -> int | None:
        """The exact count, see `exact_tokens.ExactTokens`; None where there is none."""
        return None if self._count is None else self._count(body, model)

    async def load(self, config: cfg.Config) -> None:
        """Load the vocabularies for these models, in a thread because it may take seconds."""
        sent = {candidate.model for model in config.models.values() for candidate in model.candidates}
        models = self._models | {model for model in sent if exact_tokens.dialect_of(model) is not None}
        if models != self._models:
            self._count = await asyncio.to_thread(exact_tokens.load, models)
            self._models = models


class PipelineBuilder:
    """Builds one pipeline after the other, on the running loop, and owns what outlives each of them."""

    def __init__(
        self,
        config: cfg.Config,
        share: WorkerShare,
        metrics: Metrics,
        clock: Clock,
        unix: Clock,
        descriptors: Descriptors,
    ) -> None:
        self._links = Links(Resolver(clock=clock), descriptors)
        self._share = share
        self._metrics = metrics
        self._clock = clock
        self._began = int(unix())
        rng = Random()
        self.ticker = Ticker(interval_for(upstreams.shortest_timeout(config)), clock)
        self.accounts = Accounts(config, metrics, self.ticker, clock, unix)
        self._exact = ExactCounts()
        self._pricing = Pricing(unix)
        self._throughputs: KeyedRegistry[Throughput] = KeyedRegistry()
        self.machines = GpuCosts({})
        self._estimates = TokenEstimates(Estimator(self._exact), metrics)
        self.identity = IdentityProviders(self.ticker, clock)
        self.caches = CacheFactory(metrics, clock, rng, self.accounts.record_avoided)
        self.router = RouterFactory(self._estimates.make, metrics, rng, share, clock)
        self.stored = StoredResponsesFactory(config, metrics, clock)
        self.traces = TracingFactory(clock, unix, rng)
        self._queues = QueueFactory(share, config.server.max_queue, metrics, clock, self._estimates.make)
        self.resilience = ResilienceFactory(metrics, clock, rng)
        self.inspector = Inspector(clock, unix, share.number)
        self._bodies = BodyMemory(0)
        self.learned = batching.LearnedModes(batching.learned_path(config))
        self.ticker.add(self.learned)
        self.stored_api: StoredApi | None = None

    async def prepare(self, config: cfg.Config) -> Mapping[str, int]:
        """Do what `build` cannot wait for, and return today's spending for it. Changes nothing for calls.

        UsageUnavailable if that spending cannot be read.
        """
        await self._exact.load(config)
        await self.learned.load()
        await self._pricing.load(config)
        await self.identity.prepare(config)
        await self.router.tiers.load(config)
        return await self.accounts.spent(config)

    def build(self, config: cfg.Config, before: Pipeline | None, spent: Mapping[str, int]) -> Pipeline:
        """The pipeline of this config, which replaces `before` from now on; `spent` as prepared."""
        metrics, clock, estimate = self._metrics, self._clock, self._estimates.make
        ticker = self.ticker if before is None else _ticker(config, before, clock)
        clients = {name: _client(one, before, ticker, clock, self._links) for name, one in config.upstreams.items()}
        hops = {name: upstreams.first_hop(one) for name, one in config.upstreams.items()}
        reachability = _reachability(hops, before, self._links.resolver)
        queues = self._queues.queues(config)
        attempt = self.resilience.attempt_runner(config, self._estimates.make, self._queues.quotas)
        engines = engine_metrics(
            config,
            before.engines if before is not None else None,
            clock,
            self._links.resolver,
            self._queues.read,
        )
        router = self.router.gate(config, queues, engines, attempt)
        queue = self._queues.layer(queues, router.spills if router is not None else None)
        max_body = config.server.max_body
        # There is always room for one body of the largest size.
        self._bodies.most = max(max_body, self._share.of(config.server.max_body_memory))
        max_answer = config.server.max_answer or 4 * max_body
        forward = Forward(clients, max_answer, ticker, reachability, queue.learn, clock, estimate)
        self.accounts.apply(config, spent)
        vouched = partial(upstreams.vouched_caller, models=list(config.models), account_of=self.accounts.vouched)
        tokens = self.identity.tokens(config, vouched, self.accounts.calendar.unix)
        previous = (
            batching.PreviousGeneration(before.config, before.offers, before.batching) if before is not None else None
        )
        offers = batching.batch_probe(config, clients, previous, clock)
        merging = batching.batching_layer(
            config, offers, previous, metrics, clock, self.resilience.poison, self.learned
        )
        deps = self._deps(config, attempt, queue, forward, merging, router, tokens)
        generation = Generation(
            1 if before is None else before.generation.number + 1,
            build(deps),
            ModelList(deps.names, self._began),
            BodyReader(max_body, config.server.body_timeout, self._bodies),
            Cors(config.server.cors_origins),
            ticker,
            config.server.heartbeat,
            deps.names,
            upstreams.steered_models(config),
            self.stored_api,
            None if tokens is None else partial(self.identity.learn_signer, tokens),
        )
        callers = {one.name: one for one in deps.callers.values()} or {ANONYMOUS.name: ANONYMOUS}

        def caller_named(name: str) -> Caller | None:
            return callers.get(name) or (tokens.caller_named(name) if tokens is not None else None)

        self._queues.apply_limits(config, queue)
        self._throughputs.retain(config.upstreams)
        sent = {candidate.model for model in config.models.values() for candidate in model.candidates}
        # Identity providers name callers that no config knows.
        keys = None if config.auth.jwt else {ANONYMOUS.name, *(key.name for key in config.keys)}
        self._estimates.retain(sent, keys)
        return Pipeline(
            config,
            generation,
            clients,
            hops,
            reachability,
            attempt,
            queue,
            merging,
            offers,
            engines,
            deps.names,
            caller_named,
        )

    def _deps(
        self,
        config: cfg.Config,
        attempt: AttemptRunner,
        queue: QueueLayer,
        forward: Forward,
        merging: BatchingLayer,
        router: Router | None,
        tokens: TokenCallers | None,
    ) -> Deps:
        accounts, metrics, estimates = self.accounts, self._metrics, self._estimates
        inspector = self._inspector(config)
        names = list(config.models)
        callers = {key.digest(): upstreams.caller(key, names, accounts.of.get(key.name)) for key in config.keys}
        self.machines = GpuCosts(dict(self._machines(config)))
        gpu_recorders = (self.machines.record_attempt,) if self.machines else ()
        usage = UsageAccounting(
            accounts.calendar,
            estimates.make,
            metrics,
            (estimates.book,),
            always=accounts.has_ledger,
            on_attempt=(*accounts.recorders(), *gpu_recorders),
        )
        routes = upstreams.routes(config, lambda candidate, upstream: self._pricing.resolve(candidate, upstream).price)
        if self._pricing.watch(config, routes):
            self.ticker.add(self._pricing)
        self.limit = KeyLimitGate(estimates.make, accounts.calendar, metrics, inspected=inspector.on)
        return Deps(
            metrics,
            log.access,
            callers,
            ModelNames(
                routes,
                {name: model.aliases for name, model in config.models.items()},
                narrowed(config, routes),
            ),
            self.stored.layer,
            self.limit,
            usage,
            attempt,
            queue,
            forward,
            merging,
            upstreams.context_overflow(config, routes, estimates.make, metrics),
            router,
            self.caches.layer(config),
            self.traces.tracing(config),
            self.router.tiers.layer(config, usage),
            inspector.keep if inspector.on else None,
            inspector_layer.capture(inspector) if inspector.bodies else None,
            tokens,
        )

    def _inspector(self, config: cfg.Config) -> Inspector:
        """The inspector, by this config's settings."""
        settings = config.inspector
        self.inspector.apply(
            settings.calls,
            settings.max_bytes,
            bodies=settings.bodies,
            secrets=secrets(config),
            without=(key.name for key in config.keys if not key.keep_bodies),
        )
        return self.inspector

    def _machines(self, config: cfg.Config) -> Iterator[tuple[str, tuple[int, Throughput]]]:
        for name, upstream in config.upstreams.items():
            if upstream.gpu_hour_usd is not None:
                throughput = self._throughputs.get(name, upstream.base_url, lambda: Throughput(self._clock()))
                yield name, (upstream.gpu_hour_usd, throughput)


def _ticker(config: cfg.Config, before: Pipeline, clock: Clock) -> Ticker:
    """The previous ticker, unless the timeouts call for another interval."""
    interval = interval_for(upstreams.shortest_timeout(config))
    if interval == interval_for(upstreams.shortest_timeout(before.config)):
        return before.generation.ticker
    return Ticker(interval, clock)


def _client(
    config: cfg.UpstreamConfig, before: Pipeline | None, ticker: Ticker, clock: Clock, links: Links
) -> UpstreamClient:
    """The previous client, or a new one with the previous pool of connections, or all new."""
    if before is not None and config.name in before.upstreams and ticker is before.generation.ticker:
        client, former = before.upstreams[config.name], before.config.upstreams[config.name]
        if former == config:
            return client
        if upstreams.same_pool(former, config):
            return upstreams.client(config, client.transport)
    return upstreams.client(config, upstreams.transport(config, ticker, clock, links))


def _reachability(hops: Mapping[str, str], before: Pipeline | None, resolver: Resolver) -> TcpHealthChecker:
    """The previous checker if the addresses are the same, else a new one that starts from its results."""
    if before is not None and before.hops == hops:
        return before.reachability
    checker = TcpHealthChecker(hops, resolver)
    if before is not None:
        for name, hop in hops.items():
            if before.hops.get(name) == hop and before.reachability.of(name):
                checker.note(name, reachable=True)
    return checker
