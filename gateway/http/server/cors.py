"""CORS: answers browsers' preflights without a key and adds the headers to every response, even an error."""

from collections.abc import Mapping, Sequence

from gateway.http.server.response import Response, header_lines
from gateway.wire.http import header_policy

_EXPOSED = (
    "x-request-id, x-upstream-request-id, x-sluice-upstream, x-sluice-upstream-model, x-sluice-attempts, "
    "x-sluice-queue-ms, x-sluice-overhead-ms, x-sluice-batch-size, x-sluice-cost-usd, x-sluice-usage, "
    "x-sluice-routing, x-sluice-overflow, x-sluice-truncated, x-cache-hit, cache-status, age, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "openai-processing-ms, openai-version, retry-after, retry-after-ms, x-should-retry"
)

# Chrome asks before a public page may call an address of the user's own machine or network.
_PRIVATE_NETWORK = (("Access-Control-Allow-Private-Network", "true"),)


class Cors:
    """The CORS policy of a list of allowed origins. An empty list turns CORS off; `*` allows every origin."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)

    def headers(self, request: Mapping[str, str]) -> str:
        """The CORS headers for a response to this request; empty if CORS does not apply."""
        origin = request.get("origin") if self._origins else None
        if origin is None or not ("*" in self._origins or origin in self._origins):
            return ""
        allowed = "*" if "*" in self._origins else origin
        return header_lines(
            [
                ("Access-Control-Allow-Origin", allowed),
                ("Vary", "Origin"),
                ("Access-Control-Expose-Headers", _EXPOSED),
            ]
        )

    def preflight(self, request: Mapping[str, str], request_id: str) -> Response | None:
        """The response to an OPTIONS request, or None if it is not a preflight from an allowed origin."""
        headers = self.headers(request)
        if not headers or "access-control-request-method" not in request:
            return None
        requested = header_policy.clean(request.get("access-control-request-headers", ""))
        headers += header_lines(
            [
                ("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"),
                ("Access-Control-Allow-Headers", requested or "authorization, content-type"),
                ("Access-Control-Max-Age", "600"),
                ("x-request-id", request_id),
                *_PRIVATE_NETWORK * (request.get("access-control-request-private-network") == "true"),
            ]
        )
        return Response(204, headers, b"")
