"""Which settings a failed request points at: what the reader of its log line looks at next."""

from collections.abc import Mapping
from typing import Final

_BY_CODE: Final[Mapping[str, str]] = {
    "rate_limit_exceeded": "keys.{key}.limits",
    "insufficient_quota": "keys.{key}.limits.usd_per_day",
    "request_too_large": "keys.{key}.limits.tpm, upstreams.*.rate.tpm",
    "model_not_allowed": "keys.{key}.models",
    "model_not_found": "models",
    "context_length_exceeded": "models.{model}.on_overflow",
    "body_too_large": "server.max_body",
    "body_timeout": "server.body_timeout",
    "queue_full": "server.max_queue, upstreams.*.max_concurrency",
    "deadline_in_queue": "upstreams.*.max_concurrency, the client's timeout",
    "memory_full": "server.max_body_memory",
    "limits_unavailable": "redis",
    "gateway_overloaded": "the limit of open files (ulimit -n)",
}
_BY_RESULT: Final[Mapping[str, str]] = {
    "account": "upstreams.{upstream}.api_key",
    "connect": "upstreams.{upstream}.base_url",
    "first_byte": "upstreams.{upstream}.timeouts.first_byte",
    "invalid": "upstreams.{upstream}.base_url",
    "local": "the limit of open files (ulimit -n)",
    "model": "models.{model}.candidates",
    "path": "upstreams.{upstream}.base_url",
    "rate_limited": "upstreams.{upstream}.rate",
    "tls": "upstreams.{upstream}.base_url, upstreams.{upstream}.ca_file",
    "too_large": "server.max_answer",
    "total": "upstreams.{upstream}.timeouts.total, the client's timeout",
    "upstream_timeout": "upstreams.{upstream}.timeouts.idle",
}
"""By what the retry policy calls the last attempt, or how its stream ended."""


def settings_of(code: str, result: str, names: Mapping[str, str]) -> str:
    """Return the settings behind a failure; empty if no setting is.

    `result` is that of the last failed attempt, empty without one. `names` has `key`, `model` (the public name) and
    `upstream`, empty where unknown.
    """
    settings = _BY_RESULT.get(result.partition(" ")[0]) or _BY_CODE.get(code, "")
    return settings.format_map({what: name or "*" for what, name in names.items()})
