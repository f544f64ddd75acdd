"""One verdict per attempt that came to nothing: whose fault it was, and whether another try is worth it.

A pure table. Busy (429, 503, 529) is not dead and opens no breaker; a client's own mistake counts against
nobody; what no other try can mend (`never`) is told from what only this upstream cannot do (`elsewhere`).
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from gateway.core.errors import CONTEXT_LENGTH_EXCEEDED, STATUS, UPSTREAM_PATH_UNKNOWN, UpstreamFailure
from gateway.wire.openai.overflow_messages import Overflow, overflow

Verdict = Literal["success", "ignore", "retryable", "fatal"]
Health = Literal["success", "failure", "none"]
Again = Literal["anywhere", "elsewhere", "overflow", "never"]


@dataclass(frozen=True, slots=True)
class Classification:
    """`verdict` is the attempt's label in metrics, `breaker` what its upstream's breaker is told.

    `again` is where another try may go: `anywhere` (the same candidate after its pause, or another at once),
    `elsewhere` (other candidates only), `overflow` (as `elsewhere`, to those whose window is not known to be
    as small; the field `overflow` then holds the numbers) or `never`. `reason` is one of `REASONS`.
    """

    result: Verdict
    breaker_outcome: Health
    retry_scope: Again
    reason: str
    overflow: Overflow | None = None


_BY_CAUSE: Final = {
    "connect": Classification("retryable", "failure", "anywhere", "connect"),
    "reset": Classification("retryable", "failure", "anywhere", "reset"),
    "invalid": Classification("retryable", "failure", "anywhere", "invalid"),
    # The upstream may still be at work on it: the same one would do it twice.
    "first_byte": Classification("retryable", "failure", "elsewhere", "first_byte"),
    "tls": Classification("fatal", "failure", "elsewhere", "tls"),
    "total": Classification("fatal", "failure", "never", "total"),
}
_ACCOUNT: Final = Classification("fatal", "none", "elsewhere", "account")
PATH: Final = "path"
"""The reason of an answer that is about the path."""
_PATH: Final = Classification("fatal", "none", "elsewhere", PATH)
_RATE_LIMITED: Final = Classification("retryable", "none", "anywhere", "rate_limited")
_OVERLOADED: Final = Classification("retryable", "none", "anywhere", "overloaded")
_BY_STATUS: Final = {
    401: _ACCOUNT,
    402: _ACCOUNT,
    403: _ACCOUNT,
    408: Classification("retryable", "none", "anywhere", "timeout"),
    429: _RATE_LIMITED,
    503: _OVERLOADED,
    504: Classification("retryable", "failure", "anywhere", "timeout"),
    529: _OVERLOADED,
}
_CLIENT: Final = Classification("ignore", "none", "never", "client_error")
_SERVER: Final = Classification("retryable", "failure", "anywhere", "server_error")
_OVERFLOW: Final = Classification("ignore", "none", "overflow", "overflow")

REASONS: Final = tuple(
    dict.fromkeys(
        row.reason for row in (*_BY_CAUSE.values(), *_BY_STATUS.values(), _PATH, _CLIENT, _SERVER, _OVERFLOW)
    )
)
"""Every `reason` there is: the label's closed set."""

_SPENT: Final = re.compile(
    r"insufficient_quota|billing_hard_limit|billing hard limit|exceeded_current_quota"
    r"|credit balance is too low|specified (?:workspace )?api usage limits"
    # Gemini says it of a limit per minute as well, and then when to come back.
    r"|exceeded your current quota(?!.*retry in)",
    re.DOTALL,
)
# The words of OpenAI, llama.cpp, FastAPI (so vLLM and SGLang), Azure and Kong; others send a page or nothing.
_NO_PATH: Final = re.compile(
    r"invalid url\b.*|(?:(?:file|resource) )?not found\.?|no route matched with those values\.?",
    re.IGNORECASE | re.DOTALL,
)
_MAY_BE_SPENT: Final = frozenset({400, 402, 403, 429})
_LOOKED_AT: Final = 2000  # characters of a message


def classify(failure: UpstreamFailure) -> Classification:
    """What follows from a failure, the upstream's own `x-should-retry` obeyed.

    `false` speaks for that upstream only: others may still be tried. `true` allows what the table does not,
    except that no second try can make a context larger.
    """
    if failure.cause != STATUS:
        return _BY_CAUSE[failure.cause]
    if failure.kind.code == CONTEXT_LENGTH_EXCEEDED.code:
        return replace(_OVERFLOW, overflow=overflow(failure.message, failure.kind.code))
    if failure.kind is UPSTREAM_PATH_UNKNOWN:
        return _PATH
    row = _ACCOUNT if failure.spent else _of_status(failure.status or 502)
    if failure.should_retry is False and row.retry_scope == "anywhere":
        return replace(row, retry_scope="elsewhere")
    if failure.should_retry and row.retry_scope != "anywhere":
        return replace(row, result="retryable", retry_scope="anywhere")
    return row


def is_spent(status: int, message: str, wait: float | None, *labels: str | None) -> bool:
    """Whether an upstream's error says that the account with it has no money or quota left.

    Providers say so with a 400, a 403 or a 429; only their words tell. `labels` are the error's own code and
    type. A 429 that says when to come back (`wait`, seconds) means what it says.
    """
    if status not in _MAY_BE_SPENT or (status == 429 and wait is not None):
        return False
    return any(_SPENT.search(text[:_LOOKED_AT].lower()) for text in (message, *labels) if text)


def is_wrong_path(status: int, message: str | None) -> bool:
    """Whether an answer is about the path, which is the config's (`base_url`), and not about what was asked.

    `message` is None where there is none that can be read.
    """
    return status == 404 and (message is None or _NO_PATH.fullmatch(message.strip()[:_LOOKED_AT]) is not None)


def _of_status(status: int) -> Classification:
    return _BY_STATUS.get(status) or (_CLIENT if status < 500 else _SERVER)
