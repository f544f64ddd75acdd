"""The table of errors: everything the gateway can answer when a request does not succeed.

A `Rejection` is the gateway's own answer and is *returned*; an `UpstreamFailure` is a failed attempt and is
*raised*. Both carry an `ErrorKind`, a row of the table below, so HTTP status, OpenAI type and code, metric
outcome and retry advice always agree.

    Rejection (returned)        bad input, wrong key, unknown model, full queue, draining
    UpstreamFailure (raised)    the upstream was unreachable, refused, stalled, died or sent garbage
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row: how an error looks to the client (`status`, `type`, `code`) and to metrics (`outcome`).

    `retryable` False means that no retry by the client can help; it becomes `x-should-retry: false`.
    `closes_connection`: the connection cannot serve another request after this answer.
    """

    status: int
    type: str
    code: str
    outcome: str
    retryable: bool = True
    closes_connection: bool = False


_INVALID: Final = "invalid_request_error"

INVALID_JSON = ErrorKind(400, _INVALID, "invalid_json", "client_error", retryable=False)
INVALID_VALUE = ErrorKind(400, _INVALID, "invalid_value", "client_error", retryable=False)
CONTEXT_LENGTH_EXCEEDED = ErrorKind(400, _INVALID, "context_length_exceeded", "client_error", retryable=False)
INVALID_API_KEY = ErrorKind(401, _INVALID, "invalid_api_key", "client_error", retryable=False)
MODEL_NOT_ALLOWED = ErrorKind(403, "permission_error", "model_not_allowed", "client_error", retryable=False)
MODEL_NOT_FOUND = ErrorKind(404, _INVALID, "model_not_found", "client_error", retryable=False)
RESPONSE_NOT_FOUND = ErrorKind(404, _INVALID, "response_not_found", "client_error", retryable=False)
UNKNOWN_URL = ErrorKind(404, _INVALID, "unknown_url", "client_error", retryable=False)
OBJECT_NOT_FOUND = ErrorKind(404, _INVALID, "not_found", "client_error", retryable=False)
UPSTREAM_PATH_UNKNOWN = ErrorKind(404, "upstream_error", "upstream_error", "upstream_error", retryable=False)
METHOD_NOT_ALLOWED = ErrorKind(405, _INVALID, "method_not_allowed", "client_error", retryable=False)
BODY_TIMEOUT = ErrorKind(408, _INVALID, "body_timeout", "client_error", closes_connection=True)
BODY_TOO_LARGE = ErrorKind(413, _INVALID, "body_too_large", "client_error", retryable=False, closes_connection=True)
UNSUPPORTED_MEDIA_TYPE = ErrorKind(415, _INVALID, "unsupported_media_type", "client_error", retryable=False)
RANGE_NOT_SATISFIABLE = ErrorKind(416, _INVALID, "invalid_range", "client_error", retryable=False)
EXPECTATION_FAILED = ErrorKind(417, _INVALID, "expectation_failed", "client_error", retryable=False)
REQUEST_RATE_LIMITED = ErrorKind(429, "requests", "rate_limit_exceeded", "limited")
AUTH_RATE_LIMITED = ErrorKind(429, "requests", "rate_limit_exceeded", "limited", closes_connection=True)
TOKEN_RATE_LIMITED = ErrorKind(429, "tokens", "rate_limit_exceeded", "limited")
CONCURRENCY_LIMITED = ErrorKind(429, "concurrency", "rate_limit_exceeded", "limited")
REQUEST_TOO_LARGE = ErrorKind(429, "tokens", "request_too_large", "limited", retryable=False)
INSUFFICIENT_QUOTA = ErrorKind(429, "insufficient_quota", "insufficient_quota", "limited", retryable=False)
UPSTREAM_RATE_LIMITED = ErrorKind(429, "requests", "upstream_rate_limited", "upstream_error")
INTERNAL_ERROR = ErrorKind(500, "server_error", "internal_error", "internal_error", retryable=False)
UPSTREAM_ERROR = ErrorKind(502, "upstream_error", "upstream_error", "upstream_error", retryable=False)
UPSTREAM_INVALID_RESPONSE = ErrorKind(
    502, "upstream_error", "upstream_invalid_response", "upstream_error", retryable=False
)
UPSTREAM_AUTH_FAILED = ErrorKind(502, "upstream_error", "upstream_auth_failed", "upstream_error", retryable=False)
QUEUE_FULL = ErrorKind(503, "overloaded_error", "queue_full", "shed")
DEADLINE_IN_QUEUE = ErrorKind(503, "overloaded_error", "deadline_in_queue", "shed")
MEMORY_FULL = ErrorKind(503, "overloaded_error", "memory_full", "shed", closes_connection=True)
LIMITS_UNAVAILABLE = ErrorKind(503, "overloaded_error", "limits_unavailable", "shed")
REQUEST_SUSPENDED = ErrorKind(503, "overloaded_error", "request_suspended", "shed")
DRAINING = ErrorKind(503, "overloaded_error", "draining", "shed")
GATEWAY_OVERLOADED = ErrorKind(503, "overloaded_error", "gateway_overloaded", "shed")
STORAGE_UNAVAILABLE = ErrorKind(503, "overloaded_error", "storage_unavailable", "shed")
UPSTREAM_UNAVAILABLE = ErrorKind(503, "overloaded_error", "upstream_unavailable", "upstream_error")
CACHE_MISS = ErrorKind(504, _INVALID, "cache_miss", "client_error", retryable=False)
UPSTREAM_TIMEOUT = ErrorKind(504, "upstream_error", "upstream_timeout", "upstream_timeout", retryable=False)
STORAGE_FULL = ErrorKind(507, "server_error", "storage_full", "shed", retryable=False)

PASSED_THROUGH: Final = frozenset({400, 404, 413, 422})
"""Upstream statuses that are the client's own fault; they pass through with the upstream's message."""

Cause = Literal["connect", "tls", "reset", "first_byte", "total", "invalid", "too_large", "status", "local"]
"""How an attempt failed; `resilience.classification` decides the consequences."""

CONNECT: Final = "connect"
"""No connection: refused, unreachable, unknown host or timed out. The upstream has served nothing."""
TLS: Final = "tls"
RESET: Final = "reset"
"""The connection ended before or during the answer."""
FIRST_BYTE: Final = "first_byte"
"""No answer, or no stream event, within the time limit of one attempt."""
TOTAL: Final = "total"
"""The deadline of the whole call has passed."""
INVALID: Final = "invalid"
"""The answer is not valid HTTP, JSON or server-sent events."""
TOO_LARGE: Final = "too_large"
"""The answer is larger than the gateway holds (`server.max_answer`); no fault of the upstream."""
STATUS: Final = "status"
"""The upstream answered with an error, by its status or in the body of a 200."""

LOCAL: Final = "local"
"""This machine has no descriptor, port or memory for a connection; no fault of the upstream."""

_WAIT_S: Final = 1.0  # retry-after of a retryable failure whose upstream sent none


@dataclass(frozen=True, slots=True)
class Rejection:
    """An error answer of the gateway itself. `retry_after` is in seconds; `headers` are sent as they are.

    `details` are further members of an upstream's error, masked. `logged` replaces a message that quotes an
    upstream, because the upstream may quote the request.
    """

    kind: ErrorKind
    message: str
    param: str | None = None
    retry_after: float | None = None
    headers: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, object] | None = None
    logged: str | None = None


class UpstreamFailure(Exception):
    """A failed attempt at an upstream.

    `status` is set with the cause `status`: the upstream's own, or 502 for an error in a 200 without one.
    `retry_after` (seconds) and `should_retry` are the upstream's advice, None if it gave none.
    `sendings`: how often the request was sent in this attempt: 2 if a reused connection closed at once.
    `details` are further members of the upstream's error, masked, where its error reaches the client.
    `logged` replaces a message that quotes the upstream in the log.
    `engine_full`: an engine's own admission refused the call, which took nothing and may be sent again.
    `account_trouble`: it refuses the gateway's key, account, money or region, whatever the status.
    `unknown_model`: it does not know the candidate's model, whose name comes from the config.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        cause: Cause,
        status: int | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        should_retry: bool | None = None,
        account_trouble: bool = False,
        unknown_model: bool = False,
        engine_full: bool = False,
        details: Mapping[str, object] | None = None,
        logged: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.cause: Cause = cause
        self.status = status
        self.param = param
        self.retry_after = retry_after
        self.should_retry = should_retry
        self.account_trouble = account_trouble
        self.unknown_model = unknown_model
        self.engine_full = engine_full
        self.sendings = 1
        self.details = details
        self.logged = logged

    def copy(self, message: str | None = None) -> "UpstreamFailure":
        """A copy for one more caller, with its own message if given. Raising the same object again would grow
        its traceback.
        """
        twin = UpstreamFailure.__new__(UpstreamFailure)
        twin.__dict__.update(self.__dict__)
        twin.message = self.message if message is None else message
        return twin

    def drop_frames(self) -> None:
        """Clear the tracebacks of this failure and its context chain.

        Their frames hold the call and its body, and hold the failure in turn: the cycle would live until the
        next full garbage collection.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__, error = None, error.__context__

    def as_rejection(self) -> Rejection:
        """The answer to send if no byte has gone to the client yet. Drops the failure's frames."""
        self.drop_frames()
        if not self.kind.retryable:  # whatever the upstream advises
            return Rejection(self.kind, self.message, self.param, details=self.details, logged=self.logged)
        wait, advice = self.retry_after, self.should_retry
        if wait is None and advice is not False:
            wait = _WAIT_S
        headers = () if advice is None else (("x-should-retry", "true" if advice else "false"),)
        return Rejection(self.kind, self.message, self.param, wait, headers, self.details, self.logged)


def upstream_status(status: int) -> ErrorKind:
    """The row for an upstream's HTTP status, or for the numeric `code` of an error inside a 200."""
    if status in PASSED_THROUGH:
        return replace(_PASSED, status=status)
    if status in (401, 402, 403):
        return UPSTREAM_AUTH_FAILED
    if status == 429:
        return UPSTREAM_RATE_LIMITED
    if status in (408, 504):
        return UPSTREAM_TIMEOUT
    if status in (503, 529):
        return UPSTREAM_UNAVAILABLE
    return UPSTREAM_ERROR


_PASSED: Final = ErrorKind(400, _INVALID, "", "client_error", retryable=False)
