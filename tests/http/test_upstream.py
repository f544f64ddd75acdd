"""What an upstream's refusals mean, and which of its deadlines a call runs into."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.call import CHAT, Call, Candidate, Credentials
from gateway.core.errors import FIRST_BYTE, STATUS, TOTAL, UPSTREAM_TIMEOUT, Cause, UpstreamFailure
from gateway.http.client.transport import Exchange, Pieces
from gateway.http.client.upstream import UpstreamClient
from gateway.resilience.classification import classify
from gateway.wire.http.redaction import Redactor


class Asked:
    """A Transport that keeps what it was asked for."""

    def __init__(self) -> None:
        self.deadline = 0.0
        self.late: Cause | None = None

    async def send(
        self,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: Pieces,
        connect_s: float,
        deadline: float,
        late: Cause,
    ) -> Exchange:
        self.deadline, self.late = deadline, late
        raise UpstreamFailure(UPSTREAM_TIMEOUT, "late", cause=late)

    async def close(self) -> None:
        """Nothing is open."""


def upstream(first_byte_s: float | None = None) -> UpstreamClient:
    return UpstreamClient(
        "up",
        Asked(),
        masker=Redactor(["s3cret-key"]),
        connect_s=2.0,
        first_byte_s=first_byte_s,
        idle_s=60.0,
        total_s=600.0,
    )


def error(message: str, **more: Any) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **more}})


TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("status", "seen"), [(400, 400), (413, 413), (422, 422), (500, 400), (502, 400), (200, 400)]
)
def test_route_01_an_overflow_reaches_the_client_as_one(status: int, seen: int) -> None:
    body = error(f"{TOO_LONG} s3cret-key", type="BadRequestError", param="messages", code=None)
    failure = upstream().failure(status, body)
    refusal = failure.as_rejection()
    assert (refusal.kind.status, refusal.kind.type, refusal.kind.code) == (
        seen,
        "invalid_request_error",
        "context_length_exceeded",
    )
    assert refusal.message == f"{TOO_LONG} ***"
    assert refusal.param == "messages"
    judged = classify(failure)
    assert judged.retry_scope == "overflow"
    assert judged.overflow is not None
    assert (judged.overflow.needed, judged.overflow.limit) == (213462, 200000)


def test_route_01_a_type_of_its_own_is_seen_beside_a_numeric_code() -> None:
    body = error("too much", type="exceed_context_size_error", code=400, n_prompt_tokens=9000, n_ctx=8192)
    assert classify(upstream().failure(400, body)).retry_scope == "overflow"


@pytest.mark.parametrize("status", [404, 429, 503])
def test_route_01_what_cannot_be_an_overflow_is_none(status: int) -> None:
    assert classify(upstream().failure(status, error(TOO_LONG))).retry_scope != "overflow"


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_retry_10_a_clients_own_mistake_counts_against_nobody(status: int) -> None:
    failure = upstream().failure(status, error("no", code="invalid_value"))
    assert (failure.cause, failure.status) == (STATUS, status)
    assert (classify(failure).result, classify(failure).retry_scope) == ("ignore", "never")


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "You have reached your specified API usage limits", None),
        (402, "Insufficient Balance", None),
        (429, "no", "insufficient_quota"),
    ],
)
def test_retry_10_a_spent_account_moves_on(status: int, message: str, code: str | None) -> None:
    failure = upstream().failure(status, error(message, code=code), {})
    assert (classify(failure).result, classify(failure).retry_scope) == ("fatal", "elsewhere")
    refusal = failure.as_rejection()
    assert refusal.kind.status == {400: 400, 402: 502, 429: 429}[status]
    assert refusal.kind.final
    assert refusal.retry_after is None


def test_a_429_that_says_when_to_come_back_is_no_spent_account() -> None:
    failure = upstream().failure(429, error("no", code="insufficient_quota"), {"retry-after": "20"})
    assert classify(failure).retry_scope == "anywhere"
    assert failure.as_rejection().retry_after == 20.0


@pytest.mark.parametrize("status", [400, 429, 500, 503, 504])
def test_advice_is_kept_for_our_own_retries(status: int) -> None:
    given = {"retry-after-ms": "350", "x-should-retry": "true"}
    failure = upstream().failure(status, error("no"), given)
    assert (failure.retry_after, failure.should_retry) == (pytest.approx(0.35), True)
    assert classify(failure).retry_scope == "anywhere"
    told = failure.as_rejection()
    assert (told.retry_after is not None) == (status in (429, 503))


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_that_nobody_asked_for_is_told_to_the_client_only(status: int) -> None:
    failure = upstream().failure(status, error("no"), {})
    assert failure.retry_after is None
    assert failure.as_rejection().retry_after == 1.0


@pytest.mark.parametrize(("code", "status"), [(429, 429), (503, 503), (None, 502), ("rate_limited", 502)])
def test_sse_16_an_error_in_a_200_counts_by_its_numeric_code(code: object, status: int) -> None:
    failure = upstream().failure(200, error("The request queue is full.", code=code))
    assert (failure.cause, failure.status) == (STATUS, status)


@pytest.mark.parametrize(
    ("stream", "first_byte_s", "sent_at", "deadline", "late"),
    [
        (True, None, 100.0, 220.0, FIRST_BYTE),
        (False, None, 100.0, 700.0, TOTAL),
        (False, 30.0, 100.0, 130.0, FIRST_BYTE),
        (True, None, 650.0, 700.0, TOTAL),
        (True, 900.0, 100.0, 700.0, TOTAL),
    ],
)
async def test_the_nearer_deadline_names_the_failure(
    stream: bool, first_byte_s: float | None, sent_at: float, deadline: float, late: Cause
) -> None:
    up, call = upstream(first_byte_s), Call(CHAT, "r1", Credentials(None, None, None), 100.0)
    call.stream, call.sent_at = stream, sent_at
    transport = up.transport
    assert isinstance(transport, Asked)
    with pytest.raises(UpstreamFailure):
        await up.send(call, Candidate("up", "m", b'"m"'))
    assert (transport.deadline, transport.late) == (deadline, late)
