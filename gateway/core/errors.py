"""What can go wrong, decided once: one table from a kind of error to everything that follows from it.

A refusal is a normal answer of the gateway and is *returned*; a failure is an accident on the way and is
*raised*. Both carry a `Kind`, a row of the table below, so status, OpenAI type and code, the metric's outcome
and the advice to the client's SDK can never disagree.

    Refusal (value)     bad input, wrong key, unknown model, full, draining
    Failure (raised)    the upstream could not be reached, refused, lied, stalled or died
"""

from dataclasses import dataclass, replace
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row: how an error looks to the client (`status`, `type`, `code`) and to metrics (`outcome`).

    `final` says that no retry by the client can help; it becomes `x-should-retry: false`.
    """

    status: int
    type: str
    code: str
    outcome: str
    final: bool = False


_INVALID: Final = "invalid_request_error"

INVALID_JSON = ErrorKind(400, _INVALID, "invalid_json", "client_error", final=True)
INVALID_VALUE = ErrorKind(400, _INVALID, "invalid_value", "client_error", final=True)
CONTEXT_LENGTH_EXCEEDED = ErrorKind(400, _INVALID, "context_length_exceeded", "client_error", final=True)
INVALID_API_KEY = ErrorKind(401, _INVALID, "invalid_api_key", "client_error", final=True)
MODEL_NOT_ALLOWED = ErrorKind(403, "permission_error", "model_not_allowed", "client_error", final=True)
MODEL_NOT_FOUND = ErrorKind(404, _INVALID, "model_not_found", "client_error", final=True)
UNKNOWN_URL = ErrorKind(404, _INVALID, "unknown_url", "client_error", final=True)
UPSTREAM_PATH_UNKNOWN = ErrorKind(404, "upstream_error", "upstream_error", "upstream_error", final=True)
METHOD_NOT_ALLOWED = ErrorKind(405, _INVALID, "method_not_allowed", "client_error", final=True)
BODY_TIMEOUT = ErrorKind(408, _INVALID, "body_timeout", "client_error")
BODY_TOO_LARGE = ErrorKind(413, _INVALID, "body_too_large", "client_error", final=True)
UNSUPPORTED_MEDIA_TYPE = ErrorKind(415, _INVALID, "unsupported_media_type", "client_error", final=True)
EXPECTATION_FAILED = ErrorKind(417, _INVALID, "expectation_failed", "client_error", final=True)
REQUEST_RATE_LIMITED = ErrorKind(429, "requests", "rate_limit_exceeded", "limited")
AUTH_RATE_LIMITED = ErrorKind(429, "requests", "rate_limit_exceeded", "limited")
TOKEN_RATE_LIMITED = ErrorKind(429, "tokens", "rate_limit_exceeded", "limited")
CONCURRENCY_LIMITED = ErrorKind(429, "concurrency", "rate_limit_exceeded", "limited")
REQUEST_TOO_LARGE = ErrorKind(429, "tokens", "request_too_large", "limited", final=True)
INSUFFICIENT_QUOTA = ErrorKind(429, "insufficient_quota", "insufficient_quota", "limited", final=True)
UPSTREAM_RATE_LIMITED = ErrorKind(429, "requests", "upstream_rate_limited", "upstream_error")
UPSTREAM_QUOTA_SPENT = ErrorKind(429, "requests", "upstream_rate_limited", "upstream_error", final=True)
INTERNAL_ERROR = ErrorKind(500, "server_error", "internal_error", "internal_error", final=True)
UPSTREAM_ERROR = ErrorKind(502, "upstream_error", "upstream_error", "upstream_error", final=True)
UPSTREAM_INVALID_RESPONSE = ErrorKind(
    502, "upstream_error", "upstream_invalid_response", "upstream_error", final=True
)
UPSTREAM_AUTH_FAILED = ErrorKind(502, "upstream_error", "upstream_auth_failed", "upstream_error", final=True)
QUEUE_FULL = ErrorKind(503, "overloaded_error", "queue_full", "shed")
DEADLINE_IN_QUEUE = ErrorKind(503, "overloaded_error", "deadline_in_queue", "shed")
MEMORY_FULL = ErrorKind(503, "overloaded_error", "memory_full", "shed")
LIMITS_UNAVAILABLE = ErrorKind(503, "overloaded_error", "limits_unavailable", "shed")
REQUEST_SUSPENDED = ErrorKind(503, "overloaded_error", "request_suspended", "shed")
DRAINING = ErrorKind(503, "overloaded_error", "draining", "shed")
UPSTREAM_UNAVAILABLE = ErrorKind(503, "overloaded_error", "upstream_unavailable", "upstream_error")
CACHE_MISS = ErrorKind(504, _INVALID, "cache_miss", "client_error", final=True)
UPSTREAM_TIMEOUT = ErrorKind(504, "upstream_error", "upstream_timeout", "upstream_timeout", final=True)

PASSED_THROUGH: Final = frozenset({400, 404, 413, 422})
"""Statuses of an upstream that are the client's own fault and reach it with the upstream's words."""

Cause = Literal["connect", "tls", "reset", "first_byte", "total", "invalid", "status"]
"""In which way an attempt came to nothing; `policy.verdict` says what follows from it."""

CONNECT: Final = "connect"
"""Refused, unreachable, no such name, no connection in time: nothing has been served, for certain."""
TLS: Final = "tls"
RESET: Final = "reset"
"""The connection ended before the answer, or within it."""
FIRST_BYTE: Final = "first_byte"
"""No answer, or no event of a stream, in the time that one attempt has for it."""
TOTAL: Final = "total"
"""The time that the whole call has is over."""
INVALID: Final = "invalid"
"""No answer in HTTP, in JSON or in events."""
STATUS: Final = "status"
"""The upstream's own refusal, by its status or in the body of a 200."""

_WAIT_S: Final = 1.0  # what a client is told that may try again, where the upstream names no time


@dataclass(frozen=True, slots=True)
class Rejection:
    """An answer of the gateway itself. `retry_after` is in seconds, `headers` are added as they are."""

    kind: ErrorKind
    message: str
    param: str | None = None
    retry_after: float | None = None
    headers: tuple[tuple[str, str], ...] = ()


class UpstreamFailure(Exception):
    """An attempt at an upstream came to nothing.

    `status` belongs to the cause `status`: the upstream's own, 502 for an error in a 200 that names none.
    `retry_after` (seconds) and `should_retry` are the upstream's own advice, None where it gave none. `spent`
    says that its account has no money or quota left, whatever the status.
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
        quota_exhausted: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.cause: Cause = cause
        self.status = status
        self.param = param
        self.retry_after = retry_after
        self.should_retry = should_retry
        self.spent = quota_exhausted

    def copy(self, message: str | None = None) -> "UpstreamFailure":
        """The same for one more who has to hear it, maybe in other words: raised twice, it would grow."""
        twin = UpstreamFailure.__new__(UpstreamFailure)
        twin.__dict__.update(self.__dict__)
        twin.message = self.message if message is None else message
        return twin

    def drop_frames(self) -> None:
        """Drop what the frames of its traceback hold, and of those that it followed: calls and their bodies.

        They hold the failure in turn, so all of it would stay until the next full collection.
        """
        one: BaseException | None = self
        while one is not None:
            one.__traceback__, one = None, one.__context__

    def as_rejection(self) -> Rejection:
        """The answer to give while no byte has gone to the client; the failure ends here."""
        self.drop_frames()
        if self.kind.final:  # no retry by the client can help, whatever the upstream says
            return Rejection(self.kind, self.message, self.param)
        wait, advice = self.retry_after, self.should_retry
        if wait is None and advice is not False:
            wait = _WAIT_S
        told = () if advice is None else (("x-should-retry", "true" if advice else "false"),)
        return Rejection(self.kind, self.message, self.param, wait, told)


def upstream_status(status: int) -> ErrorKind:
    """The row for an upstream's own HTTP status (also for the numeric `code` of an error inside a 200)."""
    if status in PASSED_THROUGH:
        return replace(_PASSED, status=status)
    if status in (401, 403):
        return UPSTREAM_AUTH_FAILED
    if status == 429:
        return UPSTREAM_RATE_LIMITED
    if status in (408, 504):
        return UPSTREAM_TIMEOUT
    if status in (503, 529):
        return UPSTREAM_UNAVAILABLE
    return UPSTREAM_ERROR


_PASSED: Final = ErrorKind(400, _INVALID, "", "client_error", final=True)
