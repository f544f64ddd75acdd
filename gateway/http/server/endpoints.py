"""The table of endpoints. Paths match exactly, except for a missing `/v1` and doubled or trailing slashes."""

import difflib
import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from gateway.core.endpoint import Endpoint
from gateway.core.errors import INVALID_VALUE, METHOD_NOT_ALLOWED, UNKNOWN_URL, Rejection
from gateway.http.server import stored_endpoints
from gateway.http.server.known_paths import INSTEAD, elsewhere
from gateway.http.server.stored_endpoints import StoredTarget
from gateway.wire.anthropic.messages import UNKNOWN_MESSAGES
from gateway.wire.endpoints import ENDPOINTS
from gateway.wire.openai.models import HEALTH, MODELS, UNKNOWN
from gateway.wire.openai.responses import CANCEL, INPUT_ITEMS, STORED

_BY_PATH: Final[dict[str, Endpoint]] = {str(endpoint): endpoint for endpoint in ENDPOINTS}
_NEAR: Final = [path for path in _BY_PATH if path != HEALTH]
_STORED: Final = re.compile(r"/v1/responses/([A-Za-z0-9._-]{1,256})(/cancel|/input_items)?")
_STORED_AT: Final = {"": STORED, "/cancel": CANCEL, "/input_items": INPUT_ITEMS}
_QUERY: Final = re.compile(r"[!-\"$-~]{1,2048}")
_MESSAGES_AREA: Final = re.compile(r"^[^?]*/messages(?:[/?]|$)")
_SLASHES: Final = re.compile(r"/{2,}")


@dataclass(frozen=True, slots=True)
class Match:
    """The endpoint of a request; `model` is set for `/v1/models/{id}`.

    `stored_id` is that of the answer which the path names; `target` is what an upstream is asked for, where that
    is not the endpoint's own path; `stream`: its query asks for a stream.
    """

    endpoint: Endpoint
    model: str | None = None
    stored: StoredTarget | None = None
    """Set for what is below `/v1/files` and `/v1/batches`."""
    stored_id: str = ""
    target: str = ""
    stream: bool = False


_EXACT: Final = {(method, path): Match(one) for path, one in _BY_PATH.items() for method in one.methods}


def match(method: str, target: str) -> Match | Rejection:
    """The endpoint of a request target (path and query; the query is ignored), or a 404 or 405."""
    return _EXACT.get((method, target)) or _match(method, target)


def match_stored(method: str, target: str) -> Match | Rejection | None:
    """The file or batch that a request target names, or a 405; None for another path."""
    path = _path(target)
    stored = stored_endpoints.find(path if path.startswith("/v1/") else "/v1" + path)
    if stored is None:
        return None
    if method in stored.methods:
        return Match(stored.area, stored=stored)
    return _wrong_method(method, path, stored.methods)


def _path(target: str) -> str:
    if not target.startswith("/"):  # absolute form, RFC 9112 section 3.2.2
        scheme, _, rest = target.partition("://")
        if scheme.lower() in ("http", "https"):
            target = "/" + rest.partition("/")[2]
    return _SLASHES.sub("/", target.partition("?")[0]).rstrip("/") or "/"


def _match(method: str, target: str) -> Match | Rejection:
    endpoint, query = _find(_path(target)), target.partition("?")[2]
    if isinstance(endpoint, Rejection):
        return endpoint
    allowed = endpoint.endpoint.methods
    if method in allowed:
        return _with_query(endpoint, query) if query and endpoint.endpoint.takes_query else endpoint
    return _wrong_method(method, endpoint.endpoint, allowed)


def _wrong_method(method: str, path: str, allowed: tuple[str, ...]) -> Rejection:
    message = f"{method[:20]} is not allowed on {_printable(path)}; use {allowed[0]}."
    return Rejection(METHOD_NOT_ALLOWED, message, headers=(("Allow", ", ".join(allowed)),))


def _find(path: str) -> Match | Rejection:
    if path == HEALTH:
        return Match(HEALTH)
    full = path if path.startswith("/v1/") else "/v1" + path
    if (found := _BY_PATH.get(path) or _BY_PATH.get(full)) is not None and found is not HEALTH:
        return Match(found)
    if (stored := _STORED.fullmatch(full)) is not None:
        return Match(_STORED_AT[stored[2] or ""], stored_id=stored[1], target=full.removeprefix("/v1"))
    if full.startswith(MODELS + "/") and ":generateContent" not in full and ":streamGenerate" not in full:
        # Model names may contain slashes ("org/model"), plain or escaped.
        return Match(MODELS, unquote(full.removeprefix(MODELS + "/")))
    if path.startswith("/v1/v1/"):
        fixed = "/v1/" + path.removeprefix("/v1/v1/")
        exists = fixed in _BY_PATH or fixed.startswith(MODELS + "/")
        hint = f"Did you mean {_printable(fixed)}?" if exists else "The base URL already ends in /v1."
        return Rejection(UNKNOWN_URL, f"Unknown URL {_printable(path)}: it contains /v1 twice. {hint}")
    full = full[:200]
    area = full.removeprefix("/v1/").split("/")[0]
    if area in INSTEAD:
        return Rejection(UNKNOWN_URL, f"Sluice does not serve /v1/{area}; {INSTEAD[area]}.")
    if (instead := elsewhere(path)) is not None:
        return Rejection(UNKNOWN_URL, f"Sluice does not serve {_printable(path)} here; {instead}.")
    if near := difflib.get_close_matches(full, _NEAR, n=1, cutoff=0.8):
        return Rejection(UNKNOWN_URL, f"Unknown URL {_printable(path)}. Did you mean {near[0]}?")
    return Rejection(UNKNOWN_URL, f"Unknown URL {_printable(path)}. Sluice serves {', '.join(_BY_PATH)}.")


def _with_query(match: Match, query: str) -> Match | Rejection:
    if _QUERY.fullmatch(query) is None:
        return Rejection(INVALID_VALUE, "The query may have at most 2048 printable characters.")
    target = f"{match.target or match.endpoint.upstream_path}?{query}"
    return replace(match, target=target, stream="stream=true" in query.split("&"))


def unknown(target: str) -> Endpoint:
    """What stands in for a path that is no endpoint: it answers in the shape of the wire that the path is like."""
    return UNKNOWN_MESSAGES if _MESSAGES_AREA.search(target) else UNKNOWN


def _printable(path: str) -> str:
    text = path[:100]
    return text if text.isprintable() else repr(text)
