"""The gate of limits: what it asks for a call, how it words a refusal, and what it gives back."""

import math

import pytest

from gateway.core import errors
from gateway.core.budget_calendar import Calendar
from gateway.core.call import (
    CHAT,
    EMBEDDINGS,
    Call,
    Candidate,
    Credentials,
    Price,
    Route,
    TokenEstimate,
    TokenUsage,
)
from gateway.core.caller import Caller, KeyLimits
from gateway.core.errors import Rejection
from gateway.limits.account import Account, Denial, ReservationRequest
from gateway.limits.gate import KeyLimitGate
from gateway.telemetry.metrics import Metrics

NOW = 1000.0
TODAY = "1970-01-01"
PRICE = Price(1_000_000, 2_000_000, 0)  # a nano-dollar an input token, two an output token
CAPPED = TokenEstimate(10, 90, True)
GUESSED = TokenEstimate(10, 256, False)


class Estimating:
    """Counts how often an estimate was made."""

    def __init__(self, estimate: TokenEstimate = CAPPED) -> None:
        self.estimate = estimate
        self.made = 0

    def __call__(self, call: Call) -> TokenEstimate:
        self.made += 1
        call.estimate = self.estimate
        return self.estimate


def route(*prices: Price | None) -> Route:
    candidates = tuple(Candidate("local", "m", b'"m"', price) for price in prices)
    return Route("m-small", b'"m-small"', candidates)


def called(account: Account | None, at: Route | None = None) -> Call:
    """A call of this account's key that has come as far as the gate."""
    call = Call(CHAT, "id", Credentials(None, None, None), NOW)
    call.caller = Caller("team-a", None, account)
    call.route = at if at is not None else route(PRICE)
    return call


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def estimating() -> Estimating:
    return Estimating()


@pytest.fixture
def limit(estimating: Estimating, metrics: Metrics) -> KeyLimitGate:
    # An hour and a half before the end of the first day of 1970.
    return KeyLimitGate(estimating, Calendar("UTC", 81_000.0, NOW), metrics)


def refused(limit: KeyLimitGate, call: Call) -> Rejection:
    refusal = limit.admit(call, NOW)
    assert refusal is not None
    return refusal


def test_who_has_no_limits_costs_no_estimate(limit: KeyLimitGate, estimating: Estimating) -> None:
    assert limit.admit(called(None), NOW) is None
    stranger = called(None)
    stranger.caller = None
    assert limit.admit(stranger, NOW) is None
    assert limit.admit(called(Account(KeyLimits(rpm=1, concurrency=1))), NOW) is None
    assert estimating.made == 0


@pytest.mark.parametrize(
    ("terms", "estimate", "ask"),
    [
        (KeyLimits(rpm=1, concurrency=1), CAPPED, ReservationRequest()),
        (KeyLimits(tpm=1000), CAPPED, ReservationRequest(100, 0)),
        (KeyLimits(tpm=1000), GUESSED, ReservationRequest(10, 256)),
        (KeyLimits(tpm=100), GUESSED, ReservationRequest(10, 90)),
        (KeyLimits(tpm=5), GUESSED, ReservationRequest(10, 0)),
        (KeyLimits(usd_per_day=1000), CAPPED, ReservationRequest(100, 0, 190)),
        (KeyLimits(usd_per_day=1000), GUESSED, ReservationRequest(10, 256, 10, 512)),
    ],
)
def test_what_is_asked_for(
    limit: KeyLimitGate,
    estimating: Estimating,
    terms: KeyLimits,
    estimate: TokenEstimate,
    ask: ReservationRequest,
) -> None:
    estimating.estimate = estimate
    assert limit.ask(called(None), terms) == ask


def test_the_dearest_candidate_is_reserved_for(limit: KeyLimitGate) -> None:
    dearer = Price(3_000_000, 3_000_000, 0)
    assert limit.ask(called(None, route(PRICE, dearer)), KeyLimits(usd_per_day=1000)).committed_cost == 300


def test_an_estimate_is_made_once(limit: KeyLimitGate, estimating: Estimating) -> None:
    call = called(Account(KeyLimits(tpm=1000)))
    call.estimate = GUESSED
    assert limit.admit(call, NOW) is None
    assert estimating.made == 0


def test_what_a_call_has_used_is_charged_when_it_is_over(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=10, tpm=1000, concurrency=1, usd_per_day=1000))
    call = called(account)
    assert limit.admit(call, NOW) is None
    assert (account.in_flight, account.spent(TODAY), account.status(NOW).tokens_left) == (1, 190, 900)
    call.tokens, call.cost = TokenUsage(20, 30), 80
    call.lease.settle(call, NOW)
    standing = account.status(NOW)
    assert (account.in_flight, account.spent(TODAY)) == (0, 80)
    assert (standing.requests_left, standing.tokens_left) == (9, 950)


def test_a_call_that_used_nothing_gets_all_but_the_request_back(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=10, tpm=1000, concurrency=1, usd_per_day=1000))
    call = called(account)
    assert limit.admit(call, NOW) is None
    call.outcome = "upstream_error"
    call.lease.settle(call, NOW)
    standing = account.status(NOW)
    assert (account.in_flight, account.spent(TODAY)) == (0, 0)
    assert (standing.requests_left, standing.tokens_left) == (9, 1000)


@pytest.mark.parametrize(
    ("denial", "kind", "words"),
    [
        (
            Denial("rpm", 6.0),
            errors.REQUEST_RATE_LIMITED,
            "3 requests a minute is reached. Try again in 6.000 s.",
        ),
        (
            Denial("tpm", 0.5),
            errors.TOKEN_RATE_LIMITED,
            "100 tokens a minute is reached. Try again in 0.500 s.",
        ),
        (Denial("concurrency", 0.0001), errors.CONCURRENCY_LIMITED, "2 calls at a time is reached."),
        (Denial("too_large", math.inf), errors.REQUEST_TOO_LARGE, "about 100 tokens, more than"),
        (Denial("usd_per_day", math.inf), errors.INSUFFICIENT_QUOTA, "begins in 1 h 30 min."),
    ],
)
def test_a_refusal_is_worded_and_counted(
    limit: KeyLimitGate, metrics: Metrics, denial: Denial, kind: errors.ErrorKind, words: str
) -> None:
    terms = KeyLimits(3, 100, 2, 1000)
    refusal = limit.refused(called(Account(terms)), terms, denial, NOW)
    assert refusal.kind is kind
    assert words in refusal.message
    assert refusal.retry_after == (None if kind.final else denial.wait)
    counted = metrics.registry.get_sample_value(
        "sluice_limit_rejections_total", {"key": "team-a", "limit": denial.limit}
    )
    assert counted == 1


def test_a_refused_call_holds_nothing(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=1, concurrency=1))
    assert limit.admit(called(account), NOW) is None
    second = called(account)
    assert refused(limit, second).kind is errors.REQUEST_RATE_LIMITED
    second.lease.settle(second, NOW)
    assert account.in_flight == 1


def test_a_budget_needs_a_price(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=1000))
    refusal = refused(limit, called(account, route(None)))
    assert refusal.kind is errors.MODEL_NOT_ALLOWED
    assert "`models.m-small.candidates[0].price`" in refusal.message
    assert refusal.param == "model"
    assert account.in_flight == 0
    assert limit.admit(called(Account(KeyLimits(rpm=1)), route(None)), NOW) is None


def test_a_budget_needs_a_price_of_the_answer_where_there_is_one(limit: KeyLimitGate) -> None:
    read_only = route(PRICE._replace(output=None))
    account = Account(KeyLimits(usd_per_day=1000))
    assert refused(limit, called(account, read_only)).kind is errors.MODEL_NOT_ALLOWED
    embedding = called(account, read_only)
    embedding.endpoint, embedding.estimate = EMBEDDINGS, TokenEstimate(10, 0, True)
    assert limit.admit(embedding, NOW) is None
    assert account.spent_today == 10


def test_a_budget_needs_the_price_of_all_that_may_serve_the_call(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=1000))
    assert "candidates[1].price" in refused(limit, called(account, route(PRICE, None))).message
    falls_back = route(PRICE)
    falls_back.fallbacks = (Route("m-other", b'"m-other"', route(None).candidates),)
    assert "`models.m-other.candidates[0].price`" in refused(limit, called(account, falls_back)).message
    assert account.in_flight == 0


def test_a_budget_that_does_not_reach_for_the_dearest_makes_do_with_the_cheapest(limit: KeyLimitGate) -> None:
    dear, cheap = Price(4_000_000, 4_000_000, 0), PRICE  # 400 nano-dollars and 190
    account = Account(KeyLimits(usd_per_day=700))
    first, second, third = (called(account, route(dear, cheap)) for _ in range(3))
    assert limit.admit(first, NOW) is None
    assert (first.ceiling, account.spent(TODAY)) == (None, 400)
    assert limit.admit(second, NOW) is None
    assert (second.ceiling, account.spent(TODAY)) == (190, 590)
    assert refused(limit, third).kind is errors.INSUFFICIENT_QUOTA
    assert account.spent(TODAY) == 590


def test_it_makes_do_with_no_less_than_the_budget_has_left(limit: KeyLimitGate) -> None:
    """The cheapest one may lack what the call needs: what the next one costs is there, and is promised."""
    dear, middle, cheap = Price(4_000_000, 4_000_000, 0), PRICE, Price(0, 0, 0)  # 400 nano-dollars, 190, 0
    account = Account(KeyLimits(usd_per_day=300))
    call = called(account, route(cheap, middle, dear))
    assert limit.admit(call, NOW) is None
    assert (call.ceiling, account.spent(TODAY)) == (190, 190)


def test_when_the_budget_is_spent_what_is_free_is_left(limit: KeyLimitGate, metrics: Metrics) -> None:
    account = Account(KeyLimits(usd_per_day=100))
    account.spent_today, account.day = 120, TODAY
    call = called(account, route(PRICE, Price(0, 0, 0)))
    assert limit.admit(call, NOW) is None
    assert call.ceiling == 0
    assert account.spent(TODAY) == 120
    labels = {"key": "team-a", "limit": "usd_per_day"}
    assert metrics.registry.get_sample_value("sluice_limit_rejections_total", labels) is None


def test_fallbacks_are_no_reason_to_begin_with_what_cannot_be_paid(limit: KeyLimitGate) -> None:
    """The cheapest is looked for among the model's own candidates: a fallback may never be reached."""
    at = route(PRICE)
    at.fallbacks = (Route("m-other", b'"m-other"', route(Price(0, 0, 0)).candidates),)
    call = called(Account(KeyLimits(usd_per_day=100)), at)
    assert refused(limit, call).kind is errors.INSUFFICIENT_QUOTA


def test_one_that_is_refused_for_another_limit_is_not_asked_to_make_do(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=1, usd_per_day=1000))
    assert limit.admit(called(account, route(PRICE, Price(0, 0, 0))), NOW) is None
    second = called(account, route(PRICE, Price(0, 0, 0)))
    assert refused(limit, second).kind is errors.REQUEST_RATE_LIMITED
    assert second.ceiling is None
