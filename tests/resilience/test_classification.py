"""The whole table of verdicts: causes, statuses, spent accounts, the upstream's own advice."""

from typing import get_args

import pytest

from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    UPSTREAM_AUTH_FAILED,
    UPSTREAM_ERROR,
    UPSTREAM_PATH_UNKNOWN,
    UPSTREAM_RATE_LIMITED,
    Cause,
    UpstreamFailure,
    upstream_status,
)
from gateway.resilience.classification import (
    REASONS,
    Classification,
    classify,
    is_wrong_path,
)
from gateway.wire.openai.overflow_messages import Overflow

ANYWHERE = ("retryable", "failure", "anywhere")
BUSY = ("retryable", "none", "anywhere")
ACCOUNT = ("fatal", "none", "elsewhere", "account")
PATH = ("fatal", "none", "elsewhere", "path")
ODD = ("retryable", "none", "elsewhere", "server_error")
CLIENT = ("ignore", "none", "never", "client_error")

CAUSES: dict[Cause, tuple[str, ...]] = {
    "connect": (*ANYWHERE, "connect"),
    "reset": (*ANYWHERE, "reset"),
    "invalid": (*ANYWHERE, "invalid"),
    "first_byte": ("retryable", "failure", "elsewhere", "first_byte"),
    "tls": ("fatal", "failure", "elsewhere", "tls"),
    "total": ("fatal", "failure", "never", "total"),
    "local": (*BUSY, "local"),
    "too_large": ("ignore", "none", "never", "too_large"),
}
STATUSES = {
    **dict.fromkeys((400, 404, 413, 422), CLIENT),
    # Answered as a 502, so another candidate is asked.
    **dict.fromkeys((405, 409, 410, 415, 418, 421, 424, 425, 440, 444, 451, 460, 499), ODD),
    498: (*BUSY, "overloaded"),
    **dict.fromkeys((401, 402, 403), ACCOUNT),
    408: (*BUSY, "timeout"),
    429: (*BUSY, "rate_limited"),
    503: (*BUSY, "overloaded"),
    529: (*BUSY, "overloaded"),
    504: (*ANYWHERE, "timeout"),
    **dict.fromkeys((500, 501, 502, 505, 520, 599), (*ANYWHERE, "server_error")),
}


def refused(
    status: int, *, should_retry: bool | None = None, spent: bool = False, unknown_model: bool = False
) -> UpstreamFailure:
    return UpstreamFailure(
        upstream_status(status),
        "no",
        cause="status",
        status=status,
        should_retry=should_retry,
        unknown_model=unknown_model,
        account_trouble=spent,
    )


def row(judged: Classification) -> tuple[str, ...]:
    return judged.result, judged.breaker_outcome, judged.retry_scope, judged.reason


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_has_its_row(cause: Cause):
    if cause == "status":
        assert row(classify(UpstreamFailure(UPSTREAM_ERROR, "no", cause=cause))) == (
            *ANYWHERE,
            "server_error",
        )
    else:
        assert row(classify(UpstreamFailure(UPSTREAM_ERROR, "no", cause=cause))) == CAUSES[cause]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_its_row(status: int):
    assert row(classify(refused(status))) == STATUSES[status]


def test_route_08_busy_is_not_dead():
    assert {classify(refused(status)).breaker_outcome for status in (429, 503, 529)} == {"none"}


@pytest.mark.parametrize("status", [400, 403, 429])
def test_retry_10_a_spent_account_moves_on(status: int):
    assert row(classify(refused(status, spent=True))) == ACCOUNT


def test_an_unknown_model_is_known_elsewhere():
    assert row(classify(refused(404, unknown_model=True))) == ("fatal", "none", "elsewhere", "model")


@pytest.mark.parametrize("should_retry", [None, True, False])
def test_an_overflow_wants_a_larger_window_whatever_the_upstream_says(should_retry: bool | None):
    message = "prompt is too long: 213462 tokens > 200000 maximum"
    failure = UpstreamFailure(CONTEXT_LENGTH_EXCEEDED, message, cause="status", status=400, should_retry=should_retry)
    judged = classify(failure)
    assert row(judged) == ("ignore", "none", "overflow", "overflow")
    assert judged.overflow == Overflow(213462, 200000)


@pytest.mark.parametrize("status", STATUSES)
def test_x_should_retry_false_speaks_for_this_upstream_only(status: int):
    verdict, breaker, again, reason = STATUSES[status]
    if again == "anywhere":
        again = "elsewhere"
    assert row(classify(refused(status, should_retry=False))) == (verdict, breaker, again, reason)


@pytest.mark.parametrize("status", STATUSES)
def test_x_should_retry_true_allows_what_the_table_does_not(status: int):
    _, breaker, _, reason = STATUSES[status]
    judged = classify(refused(status, should_retry=True))
    assert row(judged) == ("retryable", breaker, "anywhere", reason)


def test_the_reasons_are_a_closed_set():
    seen = {classify(refused(status)).reason for status in range(400, 600)}
    seen |= {classify(UpstreamFailure(UPSTREAM_ERROR, "no", cause=cause)).reason for cause in CAUSES}
    seen.add(classify(UpstreamFailure(CONTEXT_LENGTH_EXCEEDED, "no", cause="status", status=400)).reason)
    seen.add(classify(UpstreamFailure(UPSTREAM_PATH_UNKNOWN, "no", cause="status", status=404)).reason)
    seen.add(classify(refused(404, unknown_model=True)).reason)
    assert seen == set(REASONS)
    assert len(REASONS) == len(set(REASONS))


@pytest.mark.parametrize(
    ("message", "of_the_path"),
    [
        (None, True),  # nginx's page; Go's "404 page not found"; nothing at all
        ("Not Found", True),  # FastAPI: vLLM, SGLang
        ("File Not Found", True),  # llama.cpp
        ("Invalid URL (POST /chat/completions)", True),  # OpenAI
        ("Resource not found", True),  # Azure
        ("no Route matched with those values", True),  # Kong
        ("The model `x` does not exist.", False),  # vLLM
        ("The model `x` does not exist or you do not have access to it.", False),  # OpenAI
        ("model 'x' not found", False),  # Ollama
        ("No endpoints found for x.", False),  # OpenRouter
    ],
)
def test_whose_fault_a_404_is(message: str | None, of_the_path: bool):
    assert is_wrong_path(404, message) is of_the_path
    assert not is_wrong_path(400, message)


def test_a_wrong_path_is_the_operators_fault_and_another_upstream_may_have_a_right_one():
    assert row(classify(UpstreamFailure(UPSTREAM_PATH_UNKNOWN, "no", cause="status", status=404))) == PATH


def test_the_answer_to_a_client_is_advice_only_where_a_retry_can_help():
    busy = UpstreamFailure(UPSTREAM_RATE_LIMITED, "no", cause="status", status=429, retry_after=7.0)
    assert (busy.as_rejection().retry_after, busy.as_rejection().headers) == (7.0, ())
    silent = UpstreamFailure(UPSTREAM_RATE_LIMITED, "no", cause="status", status=429)
    assert silent.as_rejection().retry_after == 1.0
    stop = UpstreamFailure(UPSTREAM_RATE_LIMITED, "no", cause="status", status=429, should_retry=False)
    assert (stop.as_rejection().retry_after, stop.as_rejection().headers) == (
        None,
        (("x-should-retry", "false"),),
    )
    final = UpstreamFailure(UPSTREAM_AUTH_FAILED, "no", cause="status", status=401, retry_after=7.0, should_retry=True)
    assert (final.as_rejection().retry_after, final.as_rejection().headers) == (None, ())
