"""Converts LiteLLM's settings beside model_list: retries, timeouts, cooldowns, Redis, cache, keys, logs."""

import re
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from gateway.cli.import_litellm import values
from gateway.cli.import_litellm.deployment import breaker_of
from gateway.cli.import_litellm.models import Named
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import join

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_OPEN_URL: Final = re.compile(r"rediss?://[A-Za-z0-9_.-]+(:[0-9]{1,4})?(/[0-9]*)?", re.ASCII)

Sections = list[tuple[dict[str, Any], str]]
"""LiteLLM's sections with their paths; a field in an earlier section wins."""


def first(sections: Sections, *names: str) -> tuple[dict[str, Any], str]:
    """The first section that has one of these fields, and its path."""
    having = (pair for pair in sections if any(pair[0].get(name) is not None for name in names))
    return next(having, ({}, ""))


def retry(sections: Sections, notes: Notes) -> dict[str, Any]:
    """The retry section. LiteLLM counts retries, the gateway attempts, which is one more."""
    section, place = first(sections, "num_retries")
    fields: dict[str, Any] = {}
    retries = values.number(section, "num_retries", place, notes)
    if isinstance(retries, Decimal):
        fields["attempts"] = int(retries) + 1
    elif retries is not None:
        notes.add(join(place, "num_retries"), "cannot be computed from a variable; set retry.attempts")
    section, place = first(sections, "retry_after")
    pause = values.duration(section, "retry_after", place, notes)
    if pause is not None:
        fields |= {"backoff_base": pause, "backoff_max": pause}
    return fields


def for_all(upstreams: dict[str, Named], sections: Sections, notes: Notes) -> None:
    """Apply LiteLLM's settings for all deployments to the upstreams that have none of their own."""
    timed, timed_at = first(sections, "timeout", "request_timeout")
    name = "timeout" if timed.get("timeout") is not None else "request_timeout"
    streamed, streamed_at = first(sections, "stream_timeout")
    timeouts = {
        "first_byte": values.duration(streamed, "stream_timeout", streamed_at, notes),
        "total": values.duration(timed, name, timed_at, notes),
    }
    cooled, cooled_at = first(sections, "allowed_fails", "cooldown_time")
    breaker = breaker_of(cooled, cooled_at, notes)
    bounded, bounded_at = first(sections, "default_max_parallel_requests")
    most = values.whole_number(bounded, "default_max_parallel_requests", bounded_at, notes)
    for upstream in upstreams.values():
        fields = upstream.fields
        if any(timeouts.values()):
            common = {field: value for field, value in timeouts.items() if value is not None}
            fields["timeouts"] = common | fields.get("timeouts", {})
        if breaker:
            fields["breaker"] = breaker | fields.get("breaker", {})
        if most is not None:
            fields.setdefault("max_concurrency", most)


def redis(
    section: dict[str, Any], prefix: str, place: str, secrets: values.Secrets, notes: Notes
) -> dict[str, Any] | None:
    """The redis section from fields such as `redis_host` (with the prefix `redis_`); None without any."""

    def field(name: str) -> Any:
        return section.get(f"{prefix}{name}")

    url, host = values.text(field("url")), values.text(field("host"))
    if url is not None:
        if values.is_reference(field("url")) or _OPEN_URL.fullmatch(url):
            return {"url": url}
        # It may contain a password, or be a placeholder such as <your redis url>.
        return {"url": secrets.reference(url, "REDIS_URL", join(place, f"{prefix}url")) or "${REDIS_URL}"}
    if host is None:
        return None
    if not values.is_reference(field("host")) and not _HOST.fullmatch(host):
        host = "${REDIS_HOST}"
    port = values.text(field("port")) or "6379"
    if not values.is_reference(field("port")) and not (port.isdecimal() and 0 < int(port) < 65536):
        notes.add(join(place, f"{prefix}port"), "must be a port; replaced by 6379")
        port = "6379"
    password = secrets.reference(field("password"), "REDIS_PASSWORD", join(place, f"{prefix}password"))
    user = (
        quote(str(field("username") or ""), safe="")
        if not values.is_reference(field("username"))
        else (values.text(field("username")))
    )
    login = f"{user}@" if user and password is not None else ""
    url = f"{'rediss' if values.yes(field('ssl')) else 'redis'}://{login}{host}:{port}"
    # In a field of its own a password may have any character.
    return {"url": url} | ({"password": password} if password is not None else {})


def one_redis(routed: dict[str, Any] | None, cached: dict[str, Any] | None, notes: Notes) -> dict[str, Any] | None:
    """The Redis of the router and of the cache, of which here one serves both; the password may be at either."""
    if routed is None or cached is None or routed == cached:
        return routed or cached
    if _server(routed) == _server(cached):
        return routed if "password" in routed else cached
    notes.add("litellm_settings.cache_params", f"one Redis serves all: that of router_settings, {_server(routed)}")
    return routed


def _server(section: dict[str, Any]) -> str:
    return str(section["url"]).rpartition("@")[2].removeprefix("redis://").removeprefix("rediss://")


def cache(
    section: dict[str, Any], place: str, secrets: values.Secrets, notes: Notes
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The cache section and the redis section that it needs, if any."""
    if not values.yes(section.get("cache")):
        return {}, None
    params = values.section(section, "cache_params", notes, place)
    inside = join(place, "cache_params")
    kind = str(params.get("type") or "redis")
    notes.add(
        join(place, "cache"),
        "LiteLLM caches every request, for all keys together; here embeddings and requests with temperature: 0 "
        "are cached, for each key, so expect fewer hits",
    )
    result: dict[str, Any] = {"enabled": True, "store": "redis" if kind.startswith("redis") else "memory"}
    if kind not in ("redis", "local"):
        notes.add(
            join(inside, "type"),
            f"the cache compares requests exactly and is in memory or redis; set to {result['store']}",
        )
    ttl = values.duration(params, "ttl", inside, notes)
    if ttl is not None:
        result["ttl"] = ttl
    if params.get("mode") == "default_off":
        result["enabled"] = False
        notes.add(join(inside, "mode"), "requests opt in with the header x-sluice-cache: on")
    converted = {"type", "ttl", "mode", "host", "port", "password", "username", "ssl", "url"}
    notes.add_unconverted(params, inside, frozenset(converted), {})
    if result["store"] == "memory":
        return result, None
    default = {
        "host": "os.environ/REDIS_HOST",
        "port": "os.environ/REDIS_PORT",
        "password": "os.environ/REDIS_PASSWORD",
    }
    named = redis(params, "", inside, secrets, notes)
    return result, named or redis(default, "", inside, secrets, notes)


def keys(general: dict[str, Any], place: str, secrets: values.Secrets, notes: Notes) -> list[dict[str, Any]]:
    """The master key, without limits, as the only key."""
    key, at = general.get("master_key"), join(place, "master_key")
    reference = secrets.reference(key, "LITELLM_MASTER_KEY", at)
    if reference is not None and not values.is_reference(key) and len(str(key)) < 8:
        notes.add(at, "has less than 8 characters; choose a longer key")
    return [{"name": "master", "key": reference}] if reference is not None else []


def max_body(general: dict[str, Any], place: str, notes: Notes) -> dict[str, Any]:
    """The fields of the server section."""
    most = values.whole_number(general, "max_request_size_mb", place, notes)
    return {"max_body": f"{most}MiB"} if isinstance(most, int) else {}


def log(section: dict[str, Any]) -> dict[str, Any]:
    """The fields of the log section."""
    fields = {"level": "debug"} if values.yes(section.get("set_verbose")) else {}
    return fields | ({"format": "json"} if values.yes(section.get("json_logs")) else {})
