"""From the config to upstream clients, routes and callers. Nothing here starts or listens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from gateway import __version__
from gateway.config import model as cfg
from gateway.context_window.layer import ContextOverflow, OverflowMetrics
from gateway.context_window.truncation import TruncationRecorder
from gateway.context_window.windows import ContextWindows
from gateway.core.call import Call, Candidate, Price, Route, TokenEstimate
from gateway.core.caller import Caller, KeyLimits, LimitAccount
from gateway.core.clock import Clock
from gateway.core.units import usd
from gateway.http.client.aiohttp_transport import AiohttpTransport, proxy_for
from gateway.http.client.h1_pool import H1Transport
from gateway.http.client.resolver import Resolver
from gateway.http.client.tls import client_context
from gateway.http.client.transport import Transport
from gateway.http.client.upstream import UpstreamClient, fixed_headers, secrets_of
from gateway.http.descriptors import Descriptors
from gateway.http.ticker import Ticker
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.semconv import provider
from gateway.wire.http.redaction import Redactor


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """This worker's share of a total that all workers split: worker `number` (from 0) of `workers`."""

    number: int
    workers: int

    def of(self, total: int) -> int:
        """The share of a count; the shares of all workers add up to the total."""
        return total // self.workers + (self.number < total % self.workers)

    def part(self, total: int | None) -> float | None:
        """The share of a rate, which may be a fraction."""
        return None if total is None else total / self.workers


class Links(NamedTuple):
    """What the connections of all upstreams share."""

    resolver: Resolver
    descriptors: Descriptors


SINGLE_WORKER: Final = WorkerShare(0, 1)


def upstream_headers(config: cfg.UpstreamConfig) -> list[tuple[str, str]]:
    """The headers of every request to an upstream, credentials included."""
    return fixed_headers(*_credentials(config), f"sluice/{__version__}", bearer=config.kind != "anthropic")


def transport(config: cfg.UpstreamConfig, ticker: Ticker, clock: Clock, links: Links) -> Transport:
    """The pool of connections to an upstream."""
    headers, tls = upstream_headers(config), client_context(config.base_url, config.ca_file)
    if config.transport == "httptools":
        return H1Transport(
            config.name,
            config.base_url,
            headers,
            ticker,
            clock,
            tls=tls,
            resolver=links.resolver,
            descriptors=links.descriptors,
        )
    return AiohttpTransport(
        config.name,
        config.base_url,
        headers,
        clock,
        tls=tls,
        resolver=links.resolver,
        descriptors=links.descriptors,
    )


def same_pool(before: cfg.UpstreamConfig, after: cfg.UpstreamConfig) -> bool:
    """Whether connections opened for `before` may serve `after`."""
    return _pool(before) == _pool(after)


def _pool(upstream: cfg.UpstreamConfig) -> tuple[object, ...]:
    return upstream.base_url, upstream.transport, upstream.api_key, upstream.headers, upstream.ca_file


def client(config: cfg.UpstreamConfig, transport: Transport) -> UpstreamClient:
    """The client of an upstream over this pool of connections."""
    key, extra = _credentials(config)
    return UpstreamClient(
        config.name,
        transport,
        redactor=Redactor(secrets_of(config.base_url, key, extra)),
        forward_headers=config.forward_headers,
        own_headers=config.headers,
        connect_s=config.timeouts.connect,
        first_byte_s=config.timeouts.first_byte,
        idle_s=config.timeouts.idle,
        total_s=config.timeouts.total,
        salted=config.cache_salt == "tenant",
        ask_usage=config.ask_usage,
    )


def _credentials(config: cfg.UpstreamConfig) -> tuple[str | None, dict[str, str]]:
    key = config.api_key.reveal() if config.api_key is not None else None
    return key, {name: value.reveal() for name, value in config.headers.items()}


def secrets(config: cfg.Config) -> list[str]:
    """Every secret that the config knows: clients' keys, Redis's password, and those of upstreams."""
    found = [key.key.reveal() for key in config.keys if key.key is not None]
    if config.redis is not None and (password := urlsplit(config.redis.address().reveal()).password):
        found += [password, unquote(password)]
    for upstream in config.upstreams.values():
        key, extra = _credentials(upstream)
        found += secrets_of(upstream.base_url, key, extra)
    return found


def provider_of(config: cfg.Config, upstream: str) -> str:
    """OpenTelemetry's name of the provider, or the upstream's name if a reload has removed it."""
    settings = config.upstreams.get(upstream)
    return upstream if settings is None else provider(settings.kind, settings.base_url)


def first_hop(config: cfg.UpstreamConfig) -> str:
    """The address that connections to an upstream go to first: the proxy, if it is used, or the upstream."""
    return (config.transport == "aiohttp" and proxy_for(config.base_url)) or config.base_url


def routes(
    config: cfg.Config, price: Callable[[cfg.CandidateConfig, cfg.UpstreamConfig], Price | None]
) -> dict[str, Route]:
    """The routes of the public models, by name."""
    upstreams = config.upstreams
    made = {name: _route(model, upstreams, price) for name, model in config.models.items()}
    for name, model in config.models.items():
        made[name].fallbacks = tuple(made[fallback] for fallback in model.fallbacks)
        if model.baseline is not None:
            made[name].baseline = _baseline(model.baseline, made)
    return made


def steered_models(config: cfg.Config) -> frozenset[str]:
    """Public models with a candidate, or a fallback with one, at an upstream that is an engine by its kind."""
    steered = {
        name
        for name, model in config.models.items()
        if any(config.upstreams[one.upstream].kind not in cfg.PROVIDERS for one in model.candidates)
    }
    while more := {
        name for name, model in config.models.items() if name not in steered and steered & set(model.fallbacks)
    }:
        steered |= more
    return frozenset(steered)


def _baseline(declared: str | cfg.BaselineConfig, routes: Mapping[str, Route]) -> Candidate:
    if isinstance(declared, str):
        return routes[declared].candidates[0]
    prompt, answer = declared.price.input, declared.price.output
    return Candidate("", f"{usd(prompt)} in, {usd(answer)} out", b"", Price(prompt, answer, prompt))


def context_overflow(
    config: cfg.Config,
    routes: Mapping[str, Route],
    estimate: Callable[[Call], TokenEstimate],
    metrics: Metrics,
) -> ContextOverflow:
    """The layer for prompts that exceed the context window."""
    windows = ContextWindows()
    truncations = TruncationRecorder(windows, estimate, metrics.truncated.count)
    actions = {name: model.on_overflow for name, model in config.models.items()}
    counts = OverflowMetrics(metrics.overflows.count, metrics.fallbacks.count)
    return ContextOverflow(routes, actions, windows, truncations, estimate, counts)


def _route(
    model: cfg.ModelConfig,
    upstreams: Mapping[str, cfg.UpstreamConfig],
    price: Callable[[cfg.CandidateConfig, cfg.UpstreamConfig], Price | None],
) -> Route:
    candidates = tuple(
        Candidate(
            candidate.upstream,
            candidate.model,
            msgspec.json.encode(candidate.model),
            price(candidate, upstreams[candidate.upstream]),
            candidate.context_window,
            candidate.max_output,
            candidate.capabilities,
            candidate.weight,
        )
        for candidate in model.candidates
    )
    return Route(model.name, msgspec.json.encode(model.name), candidates)


def caller(key: cfg.KeyConfig, models: Sequence[str], account: LimitAccount | None) -> Caller:
    """The caller that a key stands for."""
    return Caller(key.name, _usable(key.models, models), account, key.priority, key.engine_fields)


def vouched_caller(
    key: cfg.KeyConfig,
    models: Sequence[str],
    account_of: Callable[[str, str, KeyLimits | None], tuple[str, LimitAccount | None]],
) -> Callable[[str, str], Caller]:
    """Makes the callers, by name and label, that an identity provider vouches for with the rights of this key."""
    usable, limits = _usable(key.models, models), key_limits(key.limits)

    def make(name: str, label: str) -> Caller:
        name, account = account_of(name, label, limits)
        return Caller(name, usable, account, key.priority, key.engine_fields, label, key.name)

    return make


def key_limits(limits: cfg.LimitsConfig) -> KeyLimits | None:
    """A key's limits, or None if it has none."""
    key = KeyLimits(limits.rpm, limits.tpm, limits.concurrency, limits.usd_per_day)
    return None if key == KeyLimits() else key


def _usable(patterns: Sequence[str], models: Sequence[str]) -> frozenset[str] | None:
    if "*" in patterns:
        return None
    return frozenset(name for name in models if any(fnmatchcase(name, pattern) for pattern in patterns))


def shortest_timeout(config: cfg.Config) -> float:
    """The shortest deadline that the ticker has to meet, in seconds."""
    times = [config.server.heartbeat or 15.0]
    for upstream in config.upstreams.values():
        limits = upstream.timeouts
        times += [limits.idle, limits.total, limits.first_byte or limits.total]
    return min(times)
