"""From sections of the config to the objects of the running gateway. Nothing here starts or listens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from gateway import __version__
from gateway.config import model as cfg
from gateway.context_window.layer import ContextOverflow, OverflowMetrics
from gateway.context_window.truncation import TruncationRecorder
from gateway.context_window.windows import ContextWindows
from gateway.core.call import Call, Candidate, Price, Route, TokenEstimate
from gateway.core.caller import Caller, KeyLimits, LimitAccount
from gateway.core.clock import monotonic
from gateway.core.units import usd
from gateway.http.client.aiohttp_transport import AiohttpTransport, proxy_for
from gateway.http.client.h1_pool import H1Transport
from gateway.http.client.transport import Transport
from gateway.http.client.upstream import UpstreamClient, fixed_headers, secrets_of
from gateway.http.ticker import Ticker
from gateway.telemetry.metrics import Metrics, counter
from gateway.telemetry.semconv import provider
from gateway.wire.http.redaction import Redactor


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """This process's part of what all workers hold together: worker `number` (from 0) of `workers`."""

    number: int
    workers: int

    def of(self, whole: int) -> int:
        """The parts of all workers add up to the whole."""
        return whole // self.workers + (self.number < whole % self.workers)

    def part(self, whole: int | None) -> float | None:
        """The same of a rate, which need not be a whole number."""
        return None if whole is None else whole / self.workers


SINGLE_WORKER: Final = WorkerShare(0, 1)


def transport(config: cfg.UpstreamConfig, sweep: Ticker) -> Transport:
    """An upstream's pool of connections."""
    fixed = fixed_headers(*_credentials(config), f"sluice/{__version__}")
    if config.transport == "httptools":
        return H1Transport(config.name, config.base_url, fixed, sweep, monotonic)
    return AiohttpTransport(config.name, config.base_url, fixed)


def same_pool(one: cfg.UpstreamConfig, other: cfg.UpstreamConfig) -> bool:
    """Whether connections made for the one may serve the other."""
    return (one.base_url, one.transport, one.api_key, one.headers) == (
        other.base_url,
        other.transport,
        other.api_key,
        other.headers,
    )


def upstream(config: cfg.UpstreamConfig, transport: Transport) -> UpstreamClient:
    """An upstream with its pool of connections."""
    key, extra = _credentials(config)
    return UpstreamClient(
        config.name,
        transport,
        masker=Redactor(secrets_of(config.base_url, key, extra)),
        forward_headers=config.forward_headers,
        connect_s=config.timeouts.connect,
        first_byte_s=config.timeouts.first_byte,
        idle_s=config.timeouts.idle,
        total_s=config.timeouts.total,
        salted=config.cache_salt == "tenant",
    )


def _credentials(config: cfg.UpstreamConfig) -> tuple[str | None, dict[str, str]]:
    key = config.api_key.reveal() if config.api_key is not None else None
    return key, {name: value.reveal() for name, value in config.headers.items()}


def provider_of(config: cfg.Config, upstream: str) -> str:
    """OpenTelemetry's name of what answers there; one that a reload took out is called by its own name."""
    one = config.upstreams.get(upstream)
    return upstream if one is None else provider(one.kind, one.base_url)


def first_hop(config: cfg.UpstreamConfig) -> str:
    """Where connections to an upstream go first."""
    return (config.transport == "aiohttp" and proxy_for(config.base_url)) or config.base_url


def routes(
    config: cfg.Config, price: Callable[[cfg.CandidateConfig, cfg.UpstreamConfig], Price | None]
) -> dict[str, Route]:
    """The public models, by name."""
    found = {name: _route(model, config.upstreams, price) for name, model in config.models.items()}
    for name, model in config.models.items():
        found[name].fallbacks = tuple(found[other] for other in model.fallbacks)
        if model.baseline is not None:
            found[name].baseline = _baseline(model.baseline, found)
    return found


def _baseline(declared: str | cfg.BaselineConfig, routes: Mapping[str, Route]) -> Candidate:
    if isinstance(declared, str):
        return routes[declared].candidates[0]
    given, made = declared.price.input, declared.price.output
    return Candidate("", f"{usd(given)} in, {usd(made)} out", b"", Price(given, made, given))


def overflows(
    config: cfg.Config,
    routes: Mapping[str, Route],
    estimate: Callable[[Call], TokenEstimate],
    metrics: Metrics,
) -> ContextOverflow:
    """What becomes of calls that do not fit."""
    windows = ContextWindows()
    finishes = TruncationRecorder(windows, estimate, counter(metrics.truncated))
    actions = {name: model.on_overflow for name, model in config.models.items()}
    counts = OverflowMetrics(counter(metrics.overflows), counter(metrics.fallbacks))
    return ContextOverflow(routes, actions, windows, finishes, estimate, counts)


def _route(
    model: cfg.ModelConfig,
    upstreams: Mapping[str, cfg.UpstreamConfig],
    price: Callable[[cfg.CandidateConfig, cfg.UpstreamConfig], Price | None],
) -> Route:
    candidates = tuple(
        Candidate(
            one.upstream,
            one.model,
            msgspec.json.encode(one.model),
            price(one, upstreams[one.upstream]),
            one.context_window,
            one.max_output,
            one.capabilities,
            one.weight,
        )
        for one in model.candidates
    )
    return Route(model.name, msgspec.json.encode(model.name), candidates)


def caller(key: cfg.KeyConfig, models: Sequence[str], account: LimitAccount | None) -> Caller:
    """The owner of a key."""
    return Caller(key.name, _usable(key.models, models), account, key.priority, key.engine_fields)


def terms(limits: cfg.LimitsConfig) -> KeyLimits | None:
    """A key's limits, or None without any."""
    found = KeyLimits(limits.rpm, limits.tpm, limits.concurrency, limits.usd_per_day)
    return None if found == KeyLimits() else found


def _usable(patterns: Sequence[str], models: Sequence[str]) -> frozenset[str] | None:
    if "*" in patterns:
        return None
    return frozenset(name for name in models if any(fnmatchcase(name, pattern) for pattern in patterns))


def shortest(config: cfg.Config) -> float:
    """The shortest time that the sweep has to keep, in seconds."""
    times = [config.server.heartbeat or 15.0]
    for upstream in config.upstreams.values():
        limits = upstream.timeouts
        times += [limits.idle, limits.total, limits.first_byte or limits.total]
    return min(times)
