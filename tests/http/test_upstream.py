"""The meaning of an upstream's error answers, and which deadline a call meets first."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from kit.calls import make_call

from gateway.core.call import Candidate
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
        redactor=Redactor(["s3cret-key"]),
        connect_s=2.0,
        first_byte_s=first_byte_s,
        idle_s=60.0,
        total_s=600.0,
    )


def error(message: str, **more: Any) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **more}})


TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


@pytest.mark.parametrize(("status", "seen"), [(400, 400), (413, 413), (422, 422), (500, 400), (502, 400), (200, 400)])
def test_route_01_an_overflow_reaches_the_client_as_one(status: int, seen: int) -> None:
    body = error(f"{TOO_LONG} s3cret-key", type="BadRequestError", param="messages", code=None)
    failure = upstream().failure(status, body, "up-model")
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


def test_route_01_a_specific_type_counts_next_to_a_numeric_code() -> None:
    body = error("too much", type="exceed_context_size_error", code=400, n_prompt_tokens=9000, n_ctx=8192)
    assert classify(upstream().failure(400, body, "up-model")).retry_scope == "overflow"


@pytest.mark.parametrize("status", [404, 429, 503])
def test_route_01_other_errors_are_not_an_overflow(status: int) -> None:
    assert classify(upstream().failure(status, error(TOO_LONG), "up-model")).retry_scope != "overflow"


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_retry_10_a_client_error_does_not_count_against_the_upstream(status: int) -> None:
    failure = upstream().failure(status, error("no", code="invalid_value"), "up-model")
    assert (failure.cause, failure.status) == (STATUS, status)
    assert (classify(failure).result, classify(failure).retry_scope) == ("ignore", "never")


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "You have reached your specified API usage limits", None),
        (402, "Insufficient Balance", None),
        (429, "quota", "insufficient_quota"),
        (404, "Your organization has been disabled.", None),
        (422, "API key expired", None),
        (500, "Incorrect API key provided", None),
    ],
)
def test_retry_10_an_exhausted_account_moves_on_to_the_next_candidate(
    status: int, message: str, code: str | None
) -> None:
    failure = upstream().failure(status, error(message, code=code), "up-model", {})
    assert (classify(failure).result, classify(failure).retry_scope) == ("fatal", "elsewhere")
    refusal = failure.as_rejection()
    assert (refusal.kind.status, refusal.kind.code) == (502, "upstream_auth_failed")
    assert message not in refusal.message
    assert not refusal.kind.retryable
    assert refusal.retry_after is None


def test_a_429_with_retry_after_is_not_an_exhausted_account() -> None:
    failure = upstream().failure(429, error("no", code="insufficient_quota"), "up-model", {"retry-after": "20"})
    assert classify(failure).retry_scope == "anywhere"
    assert failure.as_rejection().retry_after == 20.0


@pytest.mark.parametrize("status", [400, 429, 500, 503, 504])
def test_retry_advice_is_available_to_the_gateways_own_retries(status: int) -> None:
    given = {"retry-after-ms": "350", "x-should-retry": "true"}
    failure = upstream().failure(status, error("no"), "up-model", given)
    assert (failure.retry_after, failure.should_retry) == (pytest.approx(0.35), True)
    assert classify(failure).retry_scope == "anywhere"
    told = failure.as_rejection()
    assert (told.retry_after is not None) == (status in (429, 503))


@pytest.mark.parametrize("status", [429, 503])
def test_a_default_wait_is_sent_to_the_client_only(status: int) -> None:
    failure = upstream().failure(status, error("no"), "up-model", {})
    assert failure.retry_after is None
    assert failure.as_rejection().retry_after == 1.0


@pytest.mark.parametrize(("code", "status"), [(429, 429), (503, 503), (None, 502), ("rate_limited", 502)])
def test_sse_16_an_error_in_a_200_counts_by_its_numeric_code(code: object, status: int) -> None:
    failure = upstream().failure(200, error("The request queue is full.", code=code), "up-model")
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
async def test_the_earlier_deadline_names_the_failure(
    stream: bool, first_byte_s: float | None, sent_at: float, deadline: float, late: Cause
) -> None:
    up, call = upstream(first_byte_s), make_call(now=100.0, request_id="r1")
    call.request.stream, call.timing.sent_at = stream, sent_at
    transport = up.transport
    assert isinstance(transport, Asked)
    with pytest.raises(UpstreamFailure):
        await up.send(call, Candidate("up", "m", b'"m"'))
    assert (transport.deadline, transport.late) == (deadline, late)


GEMINI = (
    b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded. Please retry in 37.5s.",'
    b'"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}]}}]'
)


@pytest.mark.parametrize(
    ("status", "body", "seconds"),
    [
        (429, GEMINI, 37.0),
        (429, error("Rate limit reached. Please try again in 7.66s."), 7.66),
        (503, error("The model is overloaded, retry after 20 seconds."), 20.0),
        (529, error("Overloaded, try again in 1m."), 60.0),
        (498, error("Flex tier capacity exceeded, wait 250ms."), 0.25),
        (429, b'{"error":{"message":"no","metadata":{"retry_after_seconds":9}}}', 9.0),
        (429, error("no"), None),
        (400, error("Please retry in 5s with a smaller image."), None),
    ],
)
def test_a_wait_that_stands_in_the_body_only(status: int, body: bytes, seconds: float | None) -> None:
    failure = upstream().failure(status, body, "up-model", {})
    assert failure.retry_after == (None if seconds is None else pytest.approx(seconds))


def test_a_header_wins_over_the_words() -> None:
    assert upstream().failure(429, GEMINI, "up-model", {"retry-after": "3"}).retry_after == 3.0


def test_google_names_the_reason_beside_its_message() -> None:
    body = b'{"error":{"code":400,"message":"Bad.","details":[{"reason":"API_KEY_INVALID"}]}}'
    rejection = upstream().failure(400, body, "up-model", {}).as_rejection()
    assert (rejection.kind.status, rejection.kind.code) == (502, "upstream_auth_failed")
