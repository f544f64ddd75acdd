"""Checks across the fields of a config: names that must exist, pairs that exclude or need one another."""

import graphlib
import importlib.util
import ipaddress
from collections.abc import Container, Iterator
from fnmatch import fnmatchcase
from typing import Final

from gateway.config.model import Config, LimitsConfig, ModelConfig, UpstreamConfig
from gateway.config.problems import Problem, did_you_mean, join, plain, quoted

_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)
_BODY: Final = frozenset(("content-type", "content-encoding", "accept-encoding", "x-request-id"))
_CREDENTIALS: Final = frozenset(("authorization", "x-api-key", "api-key", "cookie"))


def header_problems(config: Config) -> Iterator[Problem]:
    """Header names in `headers` and `forward_headers` that must not or need not stand there."""
    for name, upstream in config.upstreams.items():
        yield from _fixed(upstream, join(join("upstreams", name), "headers"))
        yield from _forwarded(upstream, join(join("upstreams", name), "forward_headers"))


def _fixed(upstream: UpstreamConfig, place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for header in upstream.headers:
        name = header.lower()
        if name in _CONNECTION | _BODY:
            yield Problem(join(place, header), "the gateway sets this header itself")
        elif name == "authorization" and upstream.api_key is not None:
            yield Problem(join(place, header), "api_key sets this header already; give one of the two")
        elif name in seen:
            yield Problem(join(place, header), "this header stands twice; case makes no difference")
        seen.add(name)


def _forwarded(upstream: UpstreamConfig, place: str) -> Iterator[Problem]:
    fixed = {header.lower() for header in upstream.headers}
    for i, header in enumerate(upstream.forward_headers):
        name = header.lower()
        if name in _CREDENTIALS:
            yield Problem(f"{place}[{i}]", "a client's credentials never travel to an upstream; use api_key")
        elif name in _CONNECTION | _BODY or name.startswith("x-sluice-"):
            yield Problem(f"{place}[{i}]", "this header belongs to the gateway and cannot be forwarded")
        elif name in fixed:
            yield Problem(f"{place}[{i}]", "headers sets this header already; give it in one of the two")


def cross_problems(config: Config, written: Container[str]) -> Iterator[Problem]:
    """What is wrong between fields. `written` holds the places that the user wrote, rightly or not."""
    yield from _keys(config, written)
    yield from _listening(config, written)
    yield from _needs_redis(config, written)
    yield from _shares(config)
    yield from _models(config)
    yield from _bounds(config)
    if config.traces.enabled and not _installed("opentelemetry.exporter.otlp.proto.http"):
        yield Problem("traces.enabled", "needs more packages: pip install 'sluice-gateway[otlp]'")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def unmatched_patterns(config: Config) -> Iterator[str]:
    """A warning for each pattern of `keys.models` that matches no model."""
    for i, key in enumerate(config.keys):
        for j, pattern in enumerate(key.models):
            if pattern and not any(fnmatchcase(name, pattern) for name in config.models):
                hint = did_you_mean(pattern, config.models)
                yield f"keys[{i}].models[{j}]: {quoted(pattern)} matches no model{hint}"


def _keys(config: Config, written: Container[str]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    digests: dict[bytes, int] = {}
    for i, key in enumerate(config.keys):
        place = f"keys[{i}]"
        both = f"{place}.key" in written, f"{place}.key_sha256" in written
        if not any(both):
            yield Problem(f"{place}.key", "required, unless key_sha256 is given")
        if all(both):
            yield Problem(f"{place}.key_sha256", "give either key or key_sha256, not both")
        first = names.setdefault(key.name, i)
        if key.name and first != i:
            yield Problem(f"{place}.name", f"{quoted(key.name)} is already the name of keys[{first}]")
        if key.name == "shadow" and any(model.shadow.share for model in config.models.values()):
            yield Problem(f"{place}.name", '"shadow" is the name that shadow answers are booked under')
        if key.key is not None or key.key_sha256 is not None:
            first = digests.setdefault(key.digest(), i)
            if first != i:
                yield Problem(f"{place}.key", f"the same key as that of keys[{first}]")


def _listening(config: Config, written: Container[str]) -> Iterator[Problem]:
    server, admin = config.server, config.admin
    if not config.keys and "keys" not in written and not _is_loopback(server.host):
        yield Problem(
            "server.host",
            f"{server.host} can be reached from other machines, and no keys are configured; "
            "add keys, or listen on 127.0.0.1",
        )
    if admin.port == server.port != 0 and (
        admin.host == server.host or _is_wildcard(admin.host, server.host)
    ):
        yield Problem(
            "admin.port", f"{admin.port} is also server.port; take another one, or 0 for a free one"
        )


def _is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(*hosts: str) -> bool:
    return any(host in ("0.0.0.0", "::") for host in hosts)


def _needs_redis(config: Config, written: Container[str]) -> Iterator[Problem]:
    if config.redis is not None or "redis" in written:
        return
    limited = [key.name for key in config.keys if key.limits != LimitsConfig()]
    if config.server.workers > 1 and limited:
        yield Problem(
            "server.workers",
            f"several workers with limits on keys ({plain(', '.join(limited))}) need redis to count in; "
            "add a redis section, set workers: 1, or take the limits away",
        )
    caches = {"cache": config.cache.store} | {
        join(join("models", name), "cache"): model.cache.store
        for name, model in config.models.items()
        if model.cache.store != config.cache.store
    }
    stores = {**caches, "usage": config.usage.store}
    for section, store in stores.items():
        if store == "redis":
            yield Problem(f"{section}.store", "redis is not configured; add a redis section with its url")


def _shares(config: Config) -> Iterator[Problem]:
    """Each worker has its own part of an upstream's slots, and a part of nothing is no slot."""
    workers = config.server.workers
    for name, upstream in config.upstreams.items():
        if upstream.max_concurrency < workers:
            yield Problem(
                f"{join('upstreams', name)}.max_concurrency",
                f"{upstream.max_concurrency} cannot be shared by {workers} workers; "
                f"set server.workers to at most {upstream.max_concurrency}",
            )
        if upstream.rate.rpm is not None and upstream.rate.rpm < workers:
            yield Problem(
                f"{join('upstreams', name)}.rate.rpm",
                f"{upstream.rate.rpm} cannot be shared by {workers} workers",
            )


def _models(config: Config) -> Iterator[Problem]:
    if not config.upstreams:
        yield Problem("upstreams", "name at least one upstream with its base_url")
    if "cache" in config.upstreams:
        yield Problem("upstreams.cache", "reports call kept answers by this name; choose another one")
    if not config.models:
        yield Problem("models", "name at least one model with its candidates")
    for name, model in config.models.items():
        place = join("models", name)
        if not model.candidates:
            yield Problem(f"{place}.candidates", "list at least one candidate, such as - upstream: local")
        for i, candidate in enumerate(model.candidates):
            if candidate.upstream and config.upstreams and candidate.upstream not in config.upstreams:
                hint = did_you_mean(candidate.upstream, config.upstreams)
                message = f"no upstream named {quoted(candidate.upstream)}{hint}"
                yield Problem(f"{place}.candidates[{i}].upstream", message)
        if isinstance(model.baseline, str) and model.baseline and model.baseline not in config.models:
            hint = did_you_mean(model.baseline, config.models)
            yield Problem(f"{place}.baseline", f"no model named {quoted(model.baseline)}{hint}")
        yield from _tiers(place, model)
        for i, fallback in enumerate(model.fallbacks):
            if fallback == name:
                yield Problem(f"{place}.fallbacks[{i}]", "a model cannot be its own fallback")
            elif fallback and fallback not in config.models:
                hint = did_you_mean(fallback, config.models)
                yield Problem(f"{place}.fallbacks[{i}]", f"no model named {quoted(fallback)}{hint}")
    yield from _circles({name: _others(model) for name, model in config.models.items()})


def _tiers(place: str, model: ModelConfig) -> Iterator[Problem]:
    if model.route == "complexity" and len(model.candidates) > 1:
        return
    asked = {"cascade.enabled": model.cascade.enabled, "shadow.share": model.shadow.share}
    for field in (field for field, wanted in asked.items() if wanted and model.candidates):
        yield Problem(f"{place}.{field}", "needs route: complexity and at least two candidates")


def _others(model: ModelConfig) -> set[str]:
    return {fallback for fallback in model.fallbacks if fallback != model.name}


def _circles(fallbacks: dict[str, set[str]]) -> Iterator[Problem]:
    """Each circle of fallbacks once."""
    while True:
        try:
            graphlib.TopologicalSorter(fallbacks).prepare()
        except graphlib.CycleError as error:
            # Listed from each model to the one that falls back to it.
            circle = list(reversed(error.args[1]))
            way = " -> ".join(plain(name) for name in circle)
            yield Problem(join("models", circle[0]) + ".fallbacks", f"go round in a circle: {way}")
            fallbacks[circle[0]].discard(circle[1])
        else:
            return


def _bounds(config: Config) -> Iterator[Problem]:
    if config.retry.backoff_max < config.retry.backoff_base:
        yield Problem("retry.backoff_max", "must not be less than retry.backoff_base")
    for name, upstream in config.upstreams.items():
        if upstream.cache_salt is not None and upstream.kind != "vllm":
            place = join(join("upstreams", name), "cache_salt")
            yield Problem(place, "only vLLM knows it; set kind: vllm, or take it away")
        if upstream.breaker.max_open_for < upstream.breaker.open_for:
            place = join(join("upstreams", name), "breaker.max_open_for")
            yield Problem(place, "must not be less than breaker.open_for")
