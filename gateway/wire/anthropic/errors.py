"""Errors in Anthropic's shape: the rows of `gateway/core/errors.py`, with the statuses that its SDKs decide on."""

from typing import Final

import msgspec

from gateway.core.errors import ErrorKind, Rejection

STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Anthropic's types of errors, and the status of each."""

_TYPES: Final = {status: kind for kind, status in STATUSES.items()}


class AnthropicErrors:
    """An `ErrorShape`: `{"type": "error", "error": {"type", "message"}, "request_id"}`."""

    heartbeat = b'event: ping\ndata: {"type": "ping"}\n\n'

    def status(self, kind: ErrorKind) -> int:
        """The status of the error's row; an overload is 529."""
        return STATUSES["overloaded_error"] if kind.status == 503 else kind.status

    def body(self, rejection: Rejection, request_id: str) -> bytes:
        """The body of an error response."""
        return msgspec.json.encode({"type": "error", "error": self._error(rejection), "request_id": request_id})

    def event(self, rejection: Rejection, request_id: str) -> bytes:
        """The last event of a broken stream."""
        data = msgspec.json.encode({"type": "error", "error": self._error(rejection)})
        return b"event: error\ndata: %b\n\n" % data

    def _error(self, rejection: Rejection) -> dict[str, object]:
        status = self.status(rejection.kind)
        kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
        return {**(rejection.details or {}), "type": kind, "message": rejection.message}
