"""Classifies failed attempts: whose fault it was, and where a retry is worth making.

A pure table (Finagle's ResponseClassifier). A busy upstream (429, 503, 529) is not dead and opens no
breaker. A client's mistake counts against no upstream. `never` is for failures that no retry can mend,
`elsewhere` for those of this upstream only.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    PASSED_THROUGH,
    STATUS,
    UPSTREAM_PATH_UNKNOWN,
    UpstreamFailure,
)
from gateway.wire.openai.overflow_messages import Overflow, overflow

AttemptResult = Literal["success", "ignore", "retryable", "fatal"]
BreakerOutcome = Literal["success", "failure", "none"]
RetryScope = Literal["anywhere", "elsewhere", "overflow", "never"]


@dataclass(frozen=True, slots=True)
class Classification:
    """`result` is the attempt's label in metrics; `breaker_outcome` is recorded by the circuit breaker.

    `retry_scope` says where a retry may go: `anywhere` (the same candidate after a pause, or another at
    once), `elsewhere` (other candidates only), `overflow` (other candidates whose context window is not
    known to be as small; the field `overflow` then holds the numbers) or `never`. `reason` is one of
    `REASONS`.
    """

    result: AttemptResult
    breaker_outcome: BreakerOutcome
    retry_scope: RetryScope
    reason: str
    overflow: Overflow | None = None


_BY_CAUSE: Final = {
    "connect": Classification("retryable", "failure", "anywhere", "connect"),
    "reset": Classification("retryable", "failure", "anywhere", "reset"),
    "invalid": Classification("retryable", "failure", "anywhere", "invalid"),
    # The upstream may still be working on it, and would do the work twice.
    "first_byte": Classification("retryable", "failure", "elsewhere", "first_byte"),
    "tls": Classification("fatal", "failure", "elsewhere", "tls"),
    "total": Classification("fatal", "failure", "never", "total"),
    # A gateway without descriptors says nothing about the upstream.
    "local": Classification("retryable", "none", "anywhere", "local"),
    "too_large": Classification("ignore", "none", "never", "too_large"),
}
_ACCOUNT: Final = Classification("fatal", "none", "elsewhere", "account")
PATH: Final = "path"
"""The reason if an upstream does not know the path."""
_PATH: Final = Classification("fatal", "none", "elsewhere", PATH)
MODEL: Final = "model"
"""The reason if an upstream does not know the model."""
_MODEL: Final = Classification("fatal", "none", "elsewhere", MODEL)
_RATE_LIMITED: Final = Classification("retryable", "none", "anywhere", "rate_limited")
_OVERLOADED: Final = Classification("retryable", "none", "anywhere", "overloaded")
_BY_STATUS: Final = {
    401: _ACCOUNT,
    402: _ACCOUNT,
    403: _ACCOUNT,
    408: Classification("retryable", "none", "anywhere", "timeout"),
    429: _RATE_LIMITED,
    498: _OVERLOADED,  # Groq: flex tier capacity exceeded
    503: _OVERLOADED,
    504: Classification("retryable", "failure", "anywhere", "timeout"),
    529: _OVERLOADED,
}
_CLIENT: Final = Classification("ignore", "none", "never", "client_error")
_SERVER: Final = Classification("retryable", "failure", "anywhere", "server_error")
# Answered to the client as a 502, so it is the upstream's; but it may be this request's content.
_ODD_STATUS: Final = Classification("retryable", "none", "elsewhere", "server_error")
_OVERFLOW: Final = Classification("ignore", "none", "overflow", "overflow")

REASONS: Final = tuple(
    dict.fromkeys(
        row.reason for row in (*_BY_CAUSE.values(), *_BY_STATUS.values(), _PATH, _MODEL, _CLIENT, _SERVER, _OVERFLOW)
    )
)
"""All values of the label `reason`."""

# From OpenAI, llama.cpp, FastAPI (so vLLM and SGLang), Azure and Kong; others send a page or no body.
_PATH_UNKNOWN: Final = re.compile(
    r"invalid url\b.*|(?:(?:file|resource) )?not found\.?|no route matched with those values\.?",
    re.IGNORECASE | re.DOTALL,
)
_MAX_MESSAGE: Final = 2000  # characters of a message that are searched


def classify(failure: UpstreamFailure) -> Classification:
    """The classification of a failure; the upstream's `x-should-retry` overrides the table.

    `false` rules out that upstream only. `true` allows a retry that the table does not, except after an
    overflow: no retry makes a context window larger.
    """
    if failure.cause != STATUS:
        return _BY_CAUSE[failure.cause]
    if failure.kind.code == CONTEXT_LENGTH_EXCEEDED.code:
        return replace(_OVERFLOW, overflow=overflow(failure.message, failure.kind.code))
    if failure.kind is UPSTREAM_PATH_UNKNOWN:
        return _PATH
    if failure.unknown_model:
        return _MODEL
    row = _ACCOUNT if failure.account_trouble else _of_status(failure.status or 502)
    if failure.should_retry is False and row.retry_scope == "anywhere":
        return replace(row, retry_scope="elsewhere")
    if failure.should_retry and row.retry_scope != "anywhere":
        return replace(row, result="retryable", retry_scope="anywhere")
    return row


def is_wrong_path(status: int, message: str | None) -> bool:
    """Whether an error is about the path, which comes from `base_url`, and not about the request.

    `message` is None if the body has none.
    """
    return status == 404 and (message is None or _PATH_UNKNOWN.fullmatch(message.strip()[:_MAX_MESSAGE]) is not None)


def _of_status(status: int) -> Classification:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status in PASSED_THROUGH:
        return _CLIENT
    return _SERVER if status >= 500 else _ODD_STATUS
