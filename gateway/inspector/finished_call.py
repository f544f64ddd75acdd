"""What is kept of a finished call. Only this file and `call_record.py` know how a `Call` is made.

A record is rendered when somebody looks at it. Until then a finished call is a handful of references to what the
call has gathered anyway; its credentials, headers and body are let go.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.core.call import Call, CallUsage, FailedAttempt, Routing, Timing
from gateway.core.caller import KeyLimits, LimitStatus
from gateway.core.errors import Rejection
from gateway.inspector.bodies import Bodies

LONGEST_TEXT: Final = 500
"""Characters kept of a name or a sentence that a client or an upstream may have made up."""
BYTES: Final = 4096
"""Bytes that a call without failures and bodies takes at most, with all that it refers to."""


class FinishedCall(Struct, eq=False, gc=False):
    """One call after its end, or as far as it is (`ended_at` 0.0). Times are monotonic seconds."""

    number: int
    ended_at: float
    id: str
    endpoint: str
    asked_model: str
    stream: bool
    key: str
    priority: str
    status: int
    outcome: str
    finish: str
    pieces: int
    attempts: int
    failures: Sequence[FailedAttempt]
    batch_size: int
    cached_by: str
    timing: Timing
    routing: Routing
    usage: CallUsage
    notes: dict[str, str]
    upstream_headers: Sequence[tuple[str, str]]
    error: Rejection | None = None
    limits: KeyLimits | None = None
    limits_after: LimitStatus | None = None
    bodies: Bodies | None = None

    more_bytes: int = 0
    """What it takes beyond `BYTES`."""


def snapshot(call: Call, number: int, ended_at: float, now: float, bodies: Bodies | None = None) -> FinishedCall:
    """What is kept of this call; `ended_at` is 0.0 while it is under way."""
    request, response, caller = call.request, call.response, call.caller
    error, account = response.error, caller.account
    if error is not None and (error.details or len(error.logged or error.message) > LONGEST_TEXT):
        error = Rejection(error.kind, (error.logged or error.message)[:LONGEST_TEXT], retry_after=error.retry_after)
    return FinishedCall(
        number,
        ended_at,
        request.id,
        request.endpoint,
        request.model[:LONGEST_TEXT],
        request.stream,
        caller.name,
        call.priority,
        response.status,
        response.outcome,
        response.finish,
        response.pieces,
        call.attempts,
        call.failures,
        call.batch_size,
        call.cached_by,
        call.timing,
        call.routing,
        call.usage,
        response.notes,
        response.upstream_headers,
        error,
        None if account is None else account.limits,
        None if account is None else account.status(now),
        bodies,
        _more_bytes(error, call.failures, bodies) if error is not None or call.failures or bodies is not None else 0,
    )


def _more_bytes(error: Rejection | None, failures: Sequence[FailedAttempt], bodies: Bodies | None) -> int:
    size = 0 if bodies is None else bodies.size
    if error is not None:
        size += 2 * len(error.logged or error.message)
    return size + sum(512 + 2 * len(failure.sentence) for failure in failures)
