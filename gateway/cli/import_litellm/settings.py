"""LiteLLM's settings beside model_list: retries, time-outs, cooldowns, Redis, cache, master key, logs."""

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
"""LiteLLM's sections with their places; what the first says goes before what the next ones say."""


def first(sections: Sections, *names: str) -> tuple[dict[str, Any], str]:
    """The first section that has one of these fields, and its place."""
    return next((one for one in sections if any(one[0].get(name) is not None for name in names)), ({}, ""))


def retry(sections: Sections, notes: Notes) -> dict[str, Any]:
    """Ours: LiteLLM counts what comes after the first call, we count all of them."""
    section, place = first(sections, "num_retries")
    found: dict[str, Any] = {}
    retries = values.number(section, "num_retries", place, notes)
    if isinstance(retries, Decimal):
        found["attempts"] = int(retries) + 1
    elif retries is not None:
        notes.tell(join(place, "num_retries"), "cannot be counted from a variable; set retry.attempts")
    section, place = first(sections, "retry_after")
    pause = values.duration(section, "retry_after", place, notes)
    if pause is not None:
        found |= {"backoff_base": pause, "backoff_max": pause}
    return found


def for_all(upstreams: dict[str, Named], sections: Sections, notes: Notes) -> None:
    """What LiteLLM says of all deployments at once, for upstreams that do not say otherwise."""
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
    most = values.whole(bounded, "default_max_parallel_requests", bounded_at, notes)
    for upstream in upstreams.values():
        fields = upstream.fields
        if any(timeouts.values()):
            known = {one: value for one, value in timeouts.items() if value is not None}
            fields["timeouts"] = known | fields.get("timeouts", {})
        if breaker:
            fields["breaker"] = breaker | fields.get("breaker", {})
        if most is not None:
            fields.setdefault("max_concurrency", most)


def redis(
    section: dict[str, Any], prefix: str, place: str, secrets: values.Secrets, notes: Notes
) -> dict[str, Any] | None:
    """Where Redis is, out of fields such as `redis_host` (the prefix is `redis_`); None without any."""

    def given(name: str) -> Any:
        return section.get(f"{prefix}{name}")

    url, host = values.text(given("url")), values.text(given("host"))
    if url is not None:
        if values.is_reference(given("url")) or _OPEN_URL.fullmatch(url):
            return {"url": url}
        # It may hold a password, or is a place for one such as <your redis url>.
        return {"url": secrets.reference(url, "REDIS_URL", join(place, f"{prefix}url")) or "${REDIS_URL}"}
    if host is None:
        return None
    if not values.is_reference(given("host")) and not _HOST.fullmatch(host):
        host = "${REDIS_HOST}"
    port = values.text(given("port")) or "6379"
    if not values.is_reference(given("port")) and not (port.isdecimal() and 0 < int(port) < 65536):
        notes.tell(join(place, f"{prefix}port"), "must be a port; 6379 was written")
        port = "6379"
    password = secrets.reference(given("password"), "REDIS_PASSWORD", join(place, f"{prefix}password"))
    user = (
        quote(str(given("username") or ""), safe="")
        if not values.is_reference(given("username"))
        else (values.text(given("username")))
    )
    login = f"{user}:{password}@" if password is not None else ""
    return {"url": f"{'rediss' if values.yes(given('ssl')) else 'redis'}://{login}{host}:{port}"}


def cache(
    section: dict[str, Any], place: str, secrets: values.Secrets, notes: Notes
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The cache, and the Redis that it is in; nothing where there is none."""
    if not values.yes(section.get("cache")):
        return {}, None
    params = values.section(section, "cache_params", notes, place)
    inside = join(place, "cache_params")
    kind = str(params.get("type") or "redis")
    ours: dict[str, Any] = {"enabled": True, "store": "redis" if kind.startswith("redis") else "memory"}
    if kind not in ("redis", "local"):
        notes.tell(
            join(inside, "type"),
            f"there is a cache of equal calls, in memory or in redis; {ours['store']} it is",
        )
    ttl = values.duration(params, "ttl", inside, notes)
    if ttl is not None:
        ours["ttl"] = ttl
    if params.get("mode") == "default_off":
        ours["enabled"] = False
        notes.tell(join(inside, "mode"), "calls ask for it with the header x-sluice-cache: on")
    taken = {"type", "ttl", "mode", "host", "port", "password", "username", "ssl", "url"}
    notes.rest(params, inside, frozenset(taken), {})
    if ours["store"] == "memory":
        return ours, None
    known = {
        "host": "os.environ/REDIS_HOST",
        "port": "os.environ/REDIS_PORT",
        "password": "os.environ/REDIS_PASSWORD",
    }
    named = redis(params, "", inside, secrets, notes)
    return ours, named or redis(known, "", inside, secrets, notes)


def keys(general: dict[str, Any], place: str, secrets: values.Secrets, notes: Notes) -> list[dict[str, Any]]:
    """The master key, which may everything, as the only key."""
    key, at = general.get("master_key"), join(place, "master_key")
    reference = secrets.reference(key, "LITELLM_MASTER_KEY", at)
    if reference is not None and not values.is_reference(key) and len(str(key)) < 8:
        notes.tell(at, "has less than 8 characters, which no key may have here; take another")
    return [{"name": "master", "key": reference}] if reference is not None else []


def max_body(general: dict[str, Any], place: str, notes: Notes) -> dict[str, Any]:
    """Fields of the server section."""
    most = values.whole(general, "max_request_size_mb", place, notes)
    return {"max_body": f"{most}MiB"} if isinstance(most, int) else {}


def log(section: dict[str, Any]) -> dict[str, Any]:
    """Fields of the log section."""
    found = {"level": "debug"} if values.yes(section.get("set_verbose")) else {}
    return found | ({"format": "json"} if values.yes(section.get("json_logs")) else {})
