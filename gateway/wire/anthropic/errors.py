"""Errors in Anthropic's shape: the rows of `gateway/core/errors.py`, with the statuses that its SDKs decide on."""

from collections.abc import Mapping
from typing import Final

import msgspec

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


def status_of(status: int) -> int:
    """The HTTP status on this wire of an error that has this one on OpenAI's: an overload is 529."""
    return STATUSES["overloaded_error"] if status == 503 else status


def type_of(status: int) -> str:
    """The type of an error with this status."""
    return _TYPES.get(status_of(status)) or ("invalid_request_error" if status < 500 else "api_error")


def render(
    status: int, message: str, request_id: str | None = None, details: Mapping[str, object] | None = None
) -> bytes:
    """The body of an error. Without `request_id` it is the data of an `error` event, which has none."""
    body: dict[str, object] = {
        "type": "error",
        "error": {**(details or {}), "type": type_of(status), "message": message},
    }
    return msgspec.json.encode(body if request_id is None else {**body, "request_id": request_id})


def event(status: int, message: str) -> bytes:
    """The event that ends a broken stream."""
    return b"event: error\ndata: %b\n\n" % render(status, message)
