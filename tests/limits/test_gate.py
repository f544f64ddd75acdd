"""The limit gate: what it reserves for a call, how it words a rejection, and what it returns."""

import math

import pytest
from kit.calls import make_call
from kit.samples import samples, value

from gateway.core import errors
from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, Price, Route, TokenEstimate, TokenUsage
from gateway.core.caller import STRANGER, Caller, KeyLimits
from gateway.core.errors import Rejection
from gateway.limits.account import Account, Denial, ReservationRequest
from gateway.limits.key_limit_gate import KeyLimitGate
from gateway.telemetry.metrics import Metrics
from gateway.wire.openai.embeddings import EMBEDDINGS

NOW = 1000.0
TODAY = "1970-01-01"
PRICE = Price(1_000_000, 2_000_000, 0)  # a nano-dollar an input token, two an output token
CAPPED = TokenEstimate(10, 90, True)
UNCAPPED = TokenEstimate(10, 256, False)


class Estimating:
    """Counts the estimates made."""

    def __init__(self, estimate: TokenEstimate = CAPPED) -> None:
        self.estimate = estimate
        self.made = 0

    def __call__(self, call: Call) -> TokenEstimate:
        self.made += 1
        call.usage.estimate = self.estimate
        return self.estimate


def route(*prices: Price | None) -> Route:
    candidates = tuple(Candidate("local", "m", b'"m"', price) for price in prices)
    return Route("m-small", b'"m-small"', candidates)


def called(account: Account | None, at: Route | None = None) -> Call:
    """A call of this account's key as it reaches the gate."""
    call = make_call(now=NOW)
    call.caller = Caller("team-a", None, account)
    call.routing.route = at if at is not None else route(PRICE)
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


def rejected(limit: KeyLimitGate, call: Call) -> Rejection:
    rejection = limit.admit(call, NOW)
    assert rejection is not None
    return rejection


def test_a_caller_without_limits_needs_no_estimate(limit: KeyLimitGate, estimating: Estimating) -> None:
    assert limit.admit(called(None), NOW) is None
    stranger = called(None)
    stranger.caller = STRANGER
    assert limit.admit(stranger, NOW) is None
    assert limit.admit(called(Account(KeyLimits(rpm=1, concurrency=1))), NOW) is None
    assert estimating.made == 0


@pytest.mark.parametrize(
    ("limits", "estimate", "wanted"),
    [
        (KeyLimits(rpm=1, concurrency=1), CAPPED, ReservationRequest()),
        (KeyLimits(tpm=1000), CAPPED, ReservationRequest(100, 0)),
        (KeyLimits(tpm=1000), UNCAPPED, ReservationRequest(10, 256)),
        (KeyLimits(tpm=100), UNCAPPED, ReservationRequest(10, 90)),
        (KeyLimits(tpm=5), UNCAPPED, ReservationRequest(10, 0)),
        (KeyLimits(usd_per_day=1000), CAPPED, ReservationRequest(100, 0, 190)),
        (KeyLimits(usd_per_day=1000), UNCAPPED, ReservationRequest(10, 256, 10, 512)),
    ],
)
def test_what_is_reserved(
    limit: KeyLimitGate,
    estimating: Estimating,
    limits: KeyLimits,
    estimate: TokenEstimate,
    wanted: ReservationRequest,
) -> None:
    estimating.estimate = estimate
    assert limit.request(called(None), limits) == wanted


def test_the_cost_of_the_dearest_candidate_is_reserved(limit: KeyLimitGate) -> None:
    dearer = Price(3_000_000, 3_000_000, 0)
    assert limit.request(called(None, route(PRICE, dearer)), KeyLimits(usd_per_day=1000)).committed_cost == 300


def test_an_estimate_is_made_once(limit: KeyLimitGate, estimating: Estimating) -> None:
    call = called(Account(KeyLimits(tpm=1000)))
    call.usage.estimate = UNCAPPED
    assert limit.admit(call, NOW) is None
    assert estimating.made == 0


def test_a_call_is_charged_for_what_it_used_when_it_ends(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=10, tpm=1000, concurrency=1, usd_per_day=1000))
    call = called(account)
    assert limit.admit(call, NOW) is None
    assert (account.in_flight, account.spent(TODAY), account.status(NOW).tokens_left) == (1, 190, 900)
    call.usage.tokens, call.usage.cost = TokenUsage(20, 30), 80
    call.lease.settle(call, NOW)
    standing = account.status(NOW)
    assert (account.in_flight, account.spent(TODAY)) == (0, 80)
    assert (standing.requests_left, standing.tokens_left) == (9, 950)


def test_a_call_that_used_nothing_is_charged_only_the_request(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=10, tpm=1000, concurrency=1, usd_per_day=1000))
    call = called(account)
    assert limit.admit(call, NOW) is None
    call.response.outcome = "upstream_error"
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
        (Denial("usd_per_day", math.inf), errors.INSUFFICIENT_QUOTA, "1 h 30 min"),
    ],
)
def test_a_rejection_is_worded_and_counted(
    limit: KeyLimitGate, metrics: Metrics, denial: Denial, kind: errors.ErrorKind, words: str
) -> None:
    limits = KeyLimits(3, 100, 2, 1000)
    account = Account(limits, TODAY, 1000)
    rejection = limit.reject(called(account), account, denial, NOW)
    assert rejection.kind is kind
    assert words in rejection.message
    assert rejection.retry_after == (denial.wait if kind.retryable else None)
    assert value(metrics, "sluice_limit_rejections_total", key="team-a", limit=denial.limit) == 1


def budget_message(limit: KeyLimitGate, account: Account, endpoint: str = "", at: Route | None = None) -> str:
    call = called(account, at)
    if endpoint:
        call.request.endpoint = endpoint
    rejection = rejected(limit, call)
    assert rejection.kind is errors.INSUFFICIENT_QUOTA
    return rejection.message


def spent(budget: int, used: int) -> Account:
    account = Account(KeyLimits(usd_per_day=budget))
    account.day, account.spent_today = TODAY, used
    return account


def test_a_call_beyond_the_rest_of_the_day_is_told_both_amounts(limit: KeyLimitGate) -> None:
    assert budget_message(limit, spent(2000, 1900)) == (
        "This call may cost up to 0.00000019 USD; 0.0000001 of this key's 0.000002 USD for today are left. "
        "Send a smaller max_tokens, or wait 1 h 30 min for the next day."
    )


def test_a_call_beyond_the_whole_day_is_told_that_no_day_will_do(limit: KeyLimitGate) -> None:
    message = budget_message(limit, spent(100, 0))
    assert message == (
        "This call may cost up to 0.00000019 USD, more than this key's whole budget of 0.0000001 USD a day, "
        "so waiting does not help. Send a smaller max_tokens, or use a cheaper model."
    )


def test_a_spent_budget_is_told_to_be_spent(limit: KeyLimitGate) -> None:
    assert budget_message(limit, spent(2000, 2000)) == (
        "Nothing of this key's 0.000002 USD for today is left. The next day begins in 1 h 30 min."
    )
    assert "Nothing of" in budget_message(limit, spent(2000, 2500))


def test_what_calls_under_way_reserve_is_told(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=300))
    assert limit.admit(called(account), NOW) is None
    assert account.reserved(TODAY) == 190
    message = budget_message(limit, account)
    assert "0.00000011 of this key's 0.0000003 USD for today are left" in message
    assert "(0.00000019 USD are reserved by calls under way)" in message


def test_a_call_without_a_cap_is_told_what_its_input_costs(limit: KeyLimitGate, estimating: Estimating) -> None:
    estimating.estimate = TokenEstimate(500, 256, False)
    message = budget_message(limit, spent(2000, 1900))
    assert "costs for its input at least 0.0000005 USD" in message
    assert "Send less input, or wait" in message
    assert "no more than" not in message


def test_a_call_without_output_is_not_told_to_send_a_smaller_max_tokens(
    limit: KeyLimitGate, estimating: Estimating
) -> None:
    estimating.estimate = TokenEstimate(500, 0, True)
    for account in (spent(2000, 1900), spent(100, 0)):
        message = budget_message(limit, account, EMBEDDINGS)
        assert "max_tokens" not in message
        assert "Send less input" in message


def test_the_cost_told_is_that_of_the_cheapest_candidate(limit: KeyLimitGate) -> None:
    dear = Price(4_000_000, 4_000_000, 0)
    assert "may cost up to 0.00000019 USD;" in budget_message(limit, spent(2000, 1900), at=route(dear, PRICE))


def test_a_settled_call_reserves_nothing(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=1000))
    call = called(account)
    assert limit.admit(call, NOW) is None
    call.usage.cost = 80
    call.lease.settle(call, NOW)
    assert (account.spent(TODAY), account.reserved(TODAY)) == (80, 0)
    assert account.reserved("1970-01-02") == 0


def test_a_rejected_call_holds_nothing(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=1, concurrency=1))
    assert limit.admit(called(account), NOW) is None
    second = called(account)
    assert rejected(limit, second).kind is errors.REQUEST_RATE_LIMITED
    second.lease.settle(second, NOW)
    assert account.in_flight == 1


def test_a_budget_needs_a_price(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=1000))
    rejection = rejected(limit, called(account, route(None)))
    assert rejection.kind is errors.MODEL_NOT_ALLOWED
    assert "`models.m-small.candidates[0].price`" in rejection.message
    assert rejection.param == "model"
    assert account.in_flight == 0
    assert limit.admit(called(Account(KeyLimits(rpm=1)), route(None)), NOW) is None


def test_a_budget_needs_an_output_price_where_there_is_output(limit: KeyLimitGate) -> None:
    read_only = route(PRICE._replace(output=None))
    account = Account(KeyLimits(usd_per_day=1000))
    assert rejected(limit, called(account, read_only)).kind is errors.MODEL_NOT_ALLOWED
    embedding = called(account, read_only)
    embedding.request.endpoint, embedding.usage.estimate = EMBEDDINGS, TokenEstimate(10, 0, True)
    assert limit.admit(embedding, NOW) is None
    assert account.spent_today == 10


def test_a_budget_needs_the_price_of_every_candidate(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(usd_per_day=1000))
    assert "candidates[1].price" in rejected(limit, called(account, route(PRICE, None))).message
    falls_back = route(PRICE)
    falls_back.fallbacks = (Route("m-other", b'"m-other"', route(None).candidates),)
    assert "`models.m-other.candidates[0].price`" in rejected(limit, called(account, falls_back)).message
    assert account.in_flight == 0


def test_a_budget_too_small_for_the_dearest_candidate_reserves_for_a_cheaper_one(limit: KeyLimitGate) -> None:
    dear, cheap = Price(4_000_000, 4_000_000, 0), PRICE  # 400 nano-dollars and 190
    account = Account(KeyLimits(usd_per_day=700))
    first, second, third = (called(account, route(dear, cheap)) for _ in range(3))
    assert limit.admit(first, NOW) is None
    assert (first.routing.ceiling, account.spent(TODAY)) == (None, 400)
    assert limit.admit(second, NOW) is None
    assert (second.routing.ceiling, account.spent(TODAY)) == (190, 590)
    assert rejected(limit, third).kind is errors.INSUFFICIENT_QUOTA
    assert account.spent(TODAY) == 590


def test_it_reserves_for_the_dearest_candidate_that_the_budget_covers(limit: KeyLimitGate) -> None:
    """The cheapest candidate may be unable to serve the call, so the price goes down step by step."""
    dear, middle, cheap = Price(4_000_000, 4_000_000, 0), PRICE, Price(0, 0, 0)  # 400 nano-dollars, 190, 0
    account = Account(KeyLimits(usd_per_day=300))
    call = called(account, route(cheap, middle, dear))
    assert limit.admit(call, NOW) is None
    assert (call.routing.ceiling, account.spent(TODAY)) == (190, 190)


def test_with_a_spent_budget_only_free_candidates_remain(limit: KeyLimitGate, metrics: Metrics) -> None:
    account = Account(KeyLimits(usd_per_day=100))
    account.spent_today, account.day = 120, TODAY
    call = called(account, route(PRICE, Price(0, 0, 0)))
    assert limit.admit(call, NOW) is None
    assert call.routing.ceiling == 0
    assert account.spent(TODAY) == 120
    assert samples(metrics, "sluice_limit_rejections_total") == []


def test_cheap_fallbacks_do_not_admit_a_call_whose_own_candidates_cost_too_much(limit: KeyLimitGate) -> None:
    """Only the model's own candidates count, because a fallback may never be reached."""
    at = route(PRICE)
    at.fallbacks = (Route("m-other", b'"m-other"', route(Price(0, 0, 0)).candidates),)
    call = called(Account(KeyLimits(usd_per_day=100)), at)
    assert rejected(limit, call).kind is errors.INSUFFICIENT_QUOTA


def test_a_denial_by_another_limit_is_not_retried_at_a_lower_price(limit: KeyLimitGate) -> None:
    account = Account(KeyLimits(rpm=1, usd_per_day=1000))
    assert limit.admit(called(account, route(PRICE, Price(0, 0, 0))), NOW) is None
    second = called(account, route(PRICE, Price(0, 0, 0)))
    assert rejected(limit, second).kind is errors.REQUEST_RATE_LIMITED
    assert second.routing.ceiling is None
