"""Which path means what. An exact table; forgiving of a missing `/v1` and of doubled or trailing slashes."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from gateway.core.call import CHAT, COMPLETIONS, EMBEDDINGS
from gateway.core.errors import METHOD_NOT_ALLOWED, UNKNOWN_URL, Rejection

MODELS: Final = "/v1/models"
HEALTH: Final = "/health"

_METHODS: Final = {
    CHAT: ("POST",),
    COMPLETIONS: ("POST",),
    EMBEDDINGS: ("POST",),
    MODELS: ("GET", "HEAD"),
    HEALTH: ("GET", "HEAD"),
}
_OF_OPENAI: Final = (
    *("responses", "files", "batches", "uploads", "fine_tuning", "moderations"),
    *("assistants", "threads", "vector_stores", "realtime", "videos"),
)
_NOT_SERVED: Final = dict.fromkeys(_OF_OPENAI, f"use {CHAT} instead") | {
    "messages": f"use {CHAT} instead, with a client that speaks OpenAI's API",
    "rerank": f"ask the engine that ranks directly, or compare the vectors of {EMBEDDINGS}",
    "audio": f"ask the provider directly, or send audio to {CHAT} as part of a message, if the model hears",
    "images": f"ask the provider directly; a model that sees takes images in the messages of {CHAT}",
}
_SLASHES: Final = re.compile(r"/{2,}")


@dataclass(frozen=True, slots=True)
class Match:
    """A served endpoint; `model` is set for `/v1/models/{id}`."""

    endpoint: str
    model: str | None = None


_EXACT: Final = {(method, path): Match(path) for path, methods in _METHODS.items() for method in methods}


def match(method: str, target: str) -> Match | Rejection:
    """Find the endpoint of a request target (path and query; the query is ignored)."""
    return _EXACT.get((method, target)) or _match(method, target)


def _match(method: str, target: str) -> Match | Rejection:
    if not target.startswith("/"):  # absolute form, RFC 9112 section 3.2.2
        scheme, _, rest = target.partition("://")
        if scheme.lower() in ("http", "https"):
            target = "/" + rest.partition("/")[2]
    path = _SLASHES.sub("/", target.partition("?")[0]).rstrip("/") or "/"
    found = _find(path)
    if isinstance(found, Rejection):
        return found
    allowed = _METHODS[found.endpoint]
    if method in allowed:
        return found
    allow = ", ".join(allowed)
    message = f"{method[:20]} is not allowed on {found.endpoint}; use {allowed[0]}."
    return Rejection(METHOD_NOT_ALLOWED, message, headers=(("Allow", allow),))


def _find(path: str) -> Match | Rejection:
    if path == HEALTH:
        return Match(HEALTH)
    full = path if path.startswith("/v1/") else "/v1" + path
    if full in _METHODS and full != HEALTH:
        return Match(full)
    if full.startswith(MODELS + "/"):
        # Model names may hold slashes ("org/model"), plain or escaped.
        return Match(MODELS, unquote(full.removeprefix(MODELS + "/")))
    if path.startswith("/v1/v1/"):
        right = "/v1/" + path.removeprefix("/v1/v1/")
        known = right in _METHODS or right.startswith(MODELS + "/")
        hint = f"Did you mean {_shown(right)}?" if known else "The base URL ends in /v1 already."
        return Rejection(UNKNOWN_URL, f"Unknown URL {_shown(path)}: /v1 stands twice in it. {hint}")
    area = full.removeprefix("/v1/").split("/")[0]
    if area in _NOT_SERVED:
        return Rejection(UNKNOWN_URL, f"/v1/{area} is not served by this gateway; {_NOT_SERVED[area]}.")
    served = ", ".join(_METHODS)
    return Rejection(UNKNOWN_URL, f"Unknown URL {_shown(path)}. Served are: {served}.")


def _shown(path: str) -> str:
    text = path[:100]
    return text if text.isprintable() else repr(text)
