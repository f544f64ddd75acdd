"""Browsers: answer preflights without a key, and put the permission on every answer, errors included."""

from collections.abc import Mapping, Sequence

from gateway.http.server.response import Response, lines
from gateway.wire.http import header_policy as wire_headers

_EXPOSED = (
    "x-request-id, x-upstream-request-id, x-sluice-upstream, x-sluice-upstream-model, x-sluice-attempts, "
    "x-sluice-queue-ms, x-sluice-overhead-ms, x-sluice-batch-size, x-sluice-cost-usd, x-sluice-usage, "
    "x-sluice-routing, x-sluice-overflow, x-sluice-truncated, x-cache-hit, cache-status, age, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "openai-processing-ms, openai-version, retry-after, retry-after-ms, x-should-retry"
)


class Cors:
    """Off without origins; `*` allows every one."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)

    def headers(self, request: Mapping[str, str]) -> str:
        """Headers for an answer to this request; none where CORS does not apply."""
        origin = request.get("origin") if self._origins else None
        if origin is None or not ("*" in self._origins or origin in self._origins):
            return ""
        allowed = "*" if "*" in self._origins else origin
        return lines(
            [
                ("Access-Control-Allow-Origin", allowed),
                ("Vary", "Origin"),
                ("Access-Control-Expose-Headers", _EXPOSED),
            ]
        )

    def preflight(self, request: Mapping[str, str], request_id: str) -> Response | None:
        """The answer to an OPTIONS request, or None when it is not an allowed preflight."""
        headers = self.headers(request)
        if not headers or "access-control-request-method" not in request:
            return None
        asked = (
            wire_headers.clean(request.get("access-control-request-headers", ""))
            or "authorization, content-type"
        )
        headers += lines(
            [
                ("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"),
                ("Access-Control-Allow-Headers", asked),
                ("Access-Control-Max-Age", "600"),
                ("x-request-id", request_id),
            ]
        )
        return Response(204, headers, b"")
