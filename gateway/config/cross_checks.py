"""Checks across fields: names that must exist, and fields that exclude or require one another."""

import graphlib
import importlib.util
from collections.abc import Container, Iterator
from typing import Final

from gateway.config.model import Config, LimitsConfig, ModelConfig, UpstreamConfig
from gateway.config.problems import Problem, did_you_mean, join, plain, quoted
from gateway.config.scalars import is_loopback
from gateway.core.headers import HOP_BY_HOP

_SET_BY_GATEWAY: Final = HOP_BY_HOP | {"content-type", "content-encoding", "accept-encoding", "x-request-id"}
_CREDENTIALS: Final = frozenset(("authorization", "x-api-key", "api-key", "cookie"))


def header_problems(config: Config) -> Iterator[Problem]:
    """Problems of the header names in `headers` and `forward_headers`."""
    for name, upstream in config.upstreams.items():
        yield from _fixed(upstream, join(join("upstreams", name), "headers"))
        yield from _forwarded(upstream, join(join("upstreams", name), "forward_headers"))


def _fixed(upstream: UpstreamConfig, path: str) -> Iterator[Problem]:
    names: set[str] = set()
    for header in upstream.headers:
        name = header.lower()
        if name in _SET_BY_GATEWAY:
            yield Problem(join(path, header), "the gateway sets this header itself")
        elif name == "authorization" and upstream.api_key is not None:
            yield Problem(join(path, header), "api_key sets this header already; give one of the two")
        elif name in names:
            yield Problem(join(path, header), "this header is set twice; case makes no difference")
        names.add(name)


def _forwarded(upstream: UpstreamConfig, path: str) -> Iterator[Problem]:
    fixed = {header.lower() for header in upstream.headers}
    for i, header in enumerate(upstream.forward_headers):
        name = header.lower()
        if name in _CREDENTIALS:
            yield Problem(f"{path}[{i}]", "a client's credentials never travel to an upstream; use api_key")
        elif name in _SET_BY_GATEWAY or name.startswith("x-sluice-"):
            yield Problem(f"{path}[{i}]", "this header belongs to the gateway and cannot be forwarded")
        elif name in fixed:
            yield Problem(f"{path}[{i}]", "headers sets this header already; give it in one of the two")


def cross_problems(config: Config, written: Container[str]) -> Iterator[Problem]:
    """The problems between fields. `written` has the paths of all fields in the file, wrong ones included."""
    yield from _keys(config, written)
    yield from _jwt(config)
    yield from _listening(config, written)
    yield from _needs_redis(config, written)
    yield from _redis_login(config)
    yield from _shares(config)
    yield from _models(config)
    yield from _bounds(config)
    if config.batches.enabled and config.batches.url is not None:
        if config.redis is None and "redis" not in written:
            yield Problem("batches.url", "several gateways share their batches through redis; add a redis section")
        if not config.batches.url.startswith("file:") and not _installed("obstore"):
            yield Problem("batches.url", "needs one more package: pip install 'sluice-gateway[object-store]'")
    if config.traces.enabled and not _installed("opentelemetry.exporter.otlp.proto.http"):
        yield Problem("traces.enabled", "needs more packages: pip install 'sluice-gateway[otlp]'")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _keys(config: Config, written: Container[str]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    digests: dict[bytes, int] = {}
    for i, key in enumerate(config.keys):
        path = f"keys[{i}]"
        set_fields = f"{path}.key" in written, f"{path}.key_sha256" in written
        if not any(set_fields):
            yield Problem(f"{path}.key", "required, unless key_sha256 is given")
        if all(set_fields):
            yield Problem(f"{path}.key_sha256", "give either key or key_sha256, not both")
        first = names.setdefault(key.name, i)
        if key.name and first != i:
            yield Problem(f"{path}.name", f"{quoted(key.name)} is already the name of keys[{first}]")
        if key.name == "shadow" and any(model.shadow.share for model in config.models.values()):
            yield Problem(f"{path}.name", '"shadow" is the name that shadow answers are recorded under')
        if key.key is not None or key.key_sha256 is not None:
            first = digests.setdefault(key.digest(), i)
            if first != i:
                yield Problem(f"{path}.key", f"the same key as that of keys[{first}]")


def _jwt(config: Config) -> Iterator[Problem]:
    keys = [key.name for key in config.keys]
    names: dict[str, int] = {}
    for i, provider in enumerate(config.auth.jwt):
        path = f"auth.jwt[{i}]"
        first = names.setdefault(provider.name, i)
        if first != i:
            yield Problem(
                f"{path}.name",
                f"auth.jwt[{first}] has the name {quoted(provider.name)} too; their callers could not be told apart",
            )
        for key in (key for key in keys if key.startswith(f"{provider.name}:")):
            yield Problem(f"{path}.name", f"callers get names like that of the key {quoted(key)}; choose another")
        if (provider.jwks_url is None) is (provider.jwks_file is None):
            yield Problem(f"{path}.jwks_url", "give either jwks_url or jwks_file, where the provider's keys are")
        if provider.ca_file is not None and not (provider.jwks_url or "").startswith("https:"):
            yield Problem(f"{path}.ca_file", "only a jwks_url with https:// has a certificate; remove one of the two")
        if not provider.algorithms:
            yield Problem(f"{path}.algorithms", "name at least one, such as RS256")
        if not provider.map:
            yield Problem(
                f"{path}.map", 'map at least one group to a key, such as {engineering: team-a}, or {"*": team-a}'
            )
        for group, name in provider.map.items():
            if name and name not in keys:
                hint = did_you_mean(name, keys)
                yield Problem(join(f"{path}.map", group), f"no key named {quoted(name)}{hint}")


def _listening(config: Config, written: Container[str]) -> Iterator[Problem]:
    server, admin = config.server, config.admin
    if not config.keys and "keys" not in written and not is_loopback(server.host):
        yield Problem(
            "server.host",
            f"{server.host} can be reached from other machines, and no keys are configured; "
            "add keys, or listen on 127.0.0.1",
        )
    if admin.trusted_header is not None and not admin.trusted_proxies:
        yield Problem("admin.trusted_proxies", "name the proxies whose trusted_header counts, such as [10.0.0.7]")
    if admin.trusted_header is None and admin.trusted_proxies:
        yield Problem("admin.trusted_header", "name the header in which these proxies say who has signed in")
    guarded = "admin.keys" in written or "admin.trusted_header" in written
    if not guarded and not is_loopback(admin.host):
        yield Problem(
            "admin.host",
            f"{admin.host} can be reached from other machines; add admin.keys (sluice key new prints one) or "
            "admin.trusted_header for the page and /admin, or listen on 127.0.0.1",
        )
    if admin.port == server.port != 0 and (admin.host == server.host or _is_wildcard(admin.host, server.host)):
        yield Problem("admin.port", f"{admin.port} is also server.port; choose another, or 0 for a free port")


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
            "add a redis section, set workers: 1, or remove the limits",
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


def _redis_login(config: Config) -> Iterator[Problem]:
    if config.redis is None:
        return
    url = config.redis.url.reveal()
    login, at, _ = url.partition("://")[2].rpartition("@")
    in_url = ":" in login.removesuffix(":") or "password=" in url.partition("?")[2]
    if config.redis.password is not None and in_url:
        yield Problem("redis.password", "redis.url holds a password too; give it in one of the two")
    elif config.redis.password is None and at and ":" not in login and not in_url:
        message = "names a user and no password; write redis://user:password@host, or set redis.password"
        yield Problem("redis.url", f"{message}; a password alone is redis://:password@host")


def _shares(config: Config) -> Iterator[Problem]:
    """Workers split an upstream's concurrency slots; each needs at least one."""
    workers = config.server.workers
    for name, upstream in config.upstreams.items():
        if upstream.slots is not None and upstream.slots < workers:
            yield Problem(
                f"{join('upstreams', name)}.max_concurrency",
                f"{upstream.slots} cannot be shared by {workers} workers; "
                f"set server.workers to at most {upstream.slots}",
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
        yield Problem("upstreams.cache", "reports list cached answers under this name; choose another")
    if not config.models:
        yield Problem("models", "name at least one model with its candidates")
    for name, model in config.models.items():
        path = join("models", name)
        if not model.candidates:
            yield Problem(f"{path}.candidates", "list at least one candidate, such as - upstream: local")
        for i, candidate in enumerate(model.candidates):
            if candidate.upstream and config.upstreams and candidate.upstream not in config.upstreams:
                hint = did_you_mean(candidate.upstream, config.upstreams)
                message = f"no upstream named {quoted(candidate.upstream)}{hint}"
                yield Problem(f"{path}.candidates[{i}].upstream", message)
        if isinstance(model.baseline, str) and model.baseline and model.baseline not in config.models:
            hint = did_you_mean(model.baseline, config.models)
            yield Problem(f"{path}.baseline", f"no model named {quoted(model.baseline)}{hint}")
        yield from _tiers(path, model)
        for i, fallback in enumerate(model.fallbacks):
            if fallback == name:
                yield Problem(f"{path}.fallbacks[{i}]", "a model cannot be its own fallback")
            elif fallback and fallback not in config.models:
                hint = did_you_mean(fallback, config.models)
                yield Problem(f"{path}.fallbacks[{i}]", f"no model named {quoted(fallback)}{hint}")
    yield from _aliases(config)
    yield from _circles({name: _distinct_fallbacks(model) for name, model in config.models.items()})


def _aliases(config: Config) -> Iterator[Problem]:
    """One problem for each alias that is taken, by a model's name or by an alias before it."""
    owners = dict.fromkeys(config.models, "")
    for name, model in config.models.items():
        for i, alias in enumerate(model.aliases):
            path = f"{join('models', name)}.aliases[{i}]"
            if alias in owners:
                owner = owners[alias]
                taken = f"an alias of {quoted(owner)}" if owner else "the name of a model"
                yield Problem(path, f"{quoted(alias)} is already {taken}")
            elif alias:
                owners[alias] = name


def _tiers(path: str, model: ModelConfig) -> Iterator[Problem]:
    if model.route == "complexity" and len(model.candidates) > 1:
        return
    enabled = {"cascade.enabled": model.cascade.enabled, "shadow.share": model.shadow.share}
    for field in (field for field, on in enabled.items() if on and model.candidates):
        yield Problem(f"{path}.{field}", "needs route: complexity and at least two candidates")


def _distinct_fallbacks(model: ModelConfig) -> set[str]:
    return {fallback for fallback in model.fallbacks if fallback != model.name}


def _circles(fallbacks: dict[str, set[str]]) -> Iterator[Problem]:
    """One problem for each circle of fallbacks."""
    while True:
        try:
            graphlib.TopologicalSorter(fallbacks).prepare()
        except graphlib.CycleError as error:
            # Listed from each model to the one that falls back to it.
            circle = list(reversed(error.args[1]))
            names = " -> ".join(plain(name) for name in circle)
            yield Problem(join("models", circle[0]) + ".fallbacks", f"go round in a circle: {names}")
            fallbacks[circle[0]].discard(circle[1])
        else:
            return


def _bounds(config: Config) -> Iterator[Problem]:
    if config.retry.backoff_max < config.retry.backoff_base:
        yield Problem("retry.backoff_max", "must not be less than retry.backoff_base")
    for name, upstream in config.upstreams.items():
        if upstream.cache_salt is not None and upstream.kind != "vllm":
            path = join(join("upstreams", name), "cache_salt")
            yield Problem(path, "only vLLM supports it; set kind: vllm, or remove it")
        if upstream.breaker.max_open_for < upstream.breaker.open_for:
            path = join(join("upstreams", name), "breaker.max_open_for")
            yield Problem(path, "must not be less than breaker.open_for")
