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
from gateway.resilience.classification import REASONS, Classification, classify, is_spent, is_wrong_path
from gateway.wire.openai.overflow_messages import Overflow

ANYWHERE = ("retryable", "failure", "anywhere")
BUSY = ("retryable", "none", "anywhere")
ACCOUNT = ("fatal", "none", "elsewhere", "account")
PATH = ("fatal", "none", "elsewhere", "path")
CLIENT = ("ignore", "none", "never", "client_error")

CAUSES: dict[Cause, tuple[str, ...]] = {
    "connect": (*ANYWHERE, "connect"),
    "reset": (*ANYWHERE, "reset"),
    "invalid": (*ANYWHERE, "invalid"),
    "first_byte": ("retryable", "failure", "elsewhere", "first_byte"),
    "tls": ("fatal", "failure", "elsewhere", "tls"),
    "total": ("fatal", "failure", "never", "total"),
}
STATUSES = {
    **dict.fromkeys((400, 404, 405, 409, 410, 413, 415, 418, 422, 451, 499), CLIENT),
    **dict.fromkeys((401, 402, 403), ACCOUNT),
    408: (*BUSY, "timeout"),
    429: (*BUSY, "rate_limited"),
    503: (*BUSY, "overloaded"),
    529: (*BUSY, "overloaded"),
    504: (*ANYWHERE, "timeout"),
    **dict.fromkeys((500, 501, 502, 505, 520, 599), (*ANYWHERE, "server_error")),
}


def refused(status: int, *, should_retry: bool | None = None, spent: bool = False) -> UpstreamFailure:
    return UpstreamFailure(
        upstream_status(status),
        "no",
        cause="status",
        status=status,
        should_retry=should_retry,
        quota_exhausted=spent,
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


@pytest.mark.parametrize("should_retry", [None, True, False])
def test_an_overflow_wants_a_larger_window_whatever_the_upstream_says(should_retry: bool | None):
    message = "prompt is too long: 213462 tokens > 200000 maximum"
    failure = UpstreamFailure(
        CONTEXT_LENGTH_EXCEEDED, message, cause="status", status=400, should_retry=should_retry
    )
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


QUOTA = "You exceeded your current quota, please check your plan and billing details."
# Each with where it is from: a report to a tracker that quotes the message.
SPENT = [
    # OpenAI; simonw/llm#494
    (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    (429, QUOTA, None),
    (429, "no", "insufficient_quota"),
    # OpenAI; bajrangCoder/acode-plugin-chatgpt#19
    (400, "Billing hard limit has been reached", "billing_hard_limit_reached"),
    # Anthropic; anthropics/claude-code#66314
    (
        400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
        "invalid_request_error",
    ),
    (
        400,
        "You have reached your specified API usage limits. You will regain access on 2026-08-01.",
        "invalid_request_error",
    ),
    (400, "You have reached your specified workspace API usage limits.", None),
    # Moonshot
    (429, "Your account is suspended", "exceeded_current_quota_error"),
    (403, "insufficient_quota", None),
]
NOT_SPENT = [
    (429, "Rate limit reached for requests", "rate_limit_exceeded"),
    (429, "This request would exceed the rate limit for your organization of 50 requests per minute.", None),
    # Gemini's limit per minute
    (
        429,
        f"{QUOTA}\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 10\n"
        "Please retry in 27.5s.",
        None,
    ),
    (400, "'temperature' must be at most 2", "invalid_value"),
    (400, "prompt is too long: 213462 tokens > 200000 maximum", None),
    (500, "insufficient_quota", None),
]


@pytest.mark.parametrize(("status", "message", "label"), SPENT)
def test_retry_10_the_words_of_a_spent_account(status: int, message: str, label: str | None):
    assert is_spent(status, message, None, label, None)
    assert is_spent(status, message, None, None, label)


@pytest.mark.parametrize(("status", "message", "label"), NOT_SPENT)
def test_retry_10_other_refusals_are_not(status: int, message: str, label: str | None):
    assert not is_spent(status, message, None, label)


def test_a_429_that_says_when_to_come_back_means_it():
    assert not is_spent(429, "You exceeded your current quota", 20.0, "insufficient_quota")
    assert is_spent(400, "Your credit balance is too low", 20.0)


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
    final = UpstreamFailure(
        UPSTREAM_AUTH_FAILED, "no", cause="status", status=401, retry_after=7.0, should_retry=True
    )
    assert (final.as_rejection().retry_after, final.as_rejection().headers) == (None, ())
