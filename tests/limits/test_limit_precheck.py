"""The gate that refuses at the door: only what would be refused anyway, and it takes nothing."""

import math

import pytest

from gateway.core.budget_calendar import Calendar
from gateway.core.call import BATCH_CHAT, CHAT, EMBEDDINGS, Call, Credentials, Estimate
from gateway.core.caller import Caller, Terms
from gateway.limits.account import Account, Ask, Denial
from gateway.limits.gate import Full, Limit, full
from gateway.telemetry.metrics import Metrics

NOW = 1000.0
DAY = "1970-01-01"
NOTHING = Ask()


@pytest.fixture
def limit() -> Limit:
    return Limit(lambda call: Estimate(1, 1, True), Calendar("UTC", 0.0, NOW), Metrics())


def account(terms: Terms, calls: int = 0, ask: Ask = NOTHING) -> Account:
    """One that so many calls have asked this of."""
    made = Account(terms, DAY)
    for _ in range(calls):
        assert not isinstance(made.reserve(ask, DAY, NOW), Denial)
    return made


def called(of: Account | None, endpoint: str = CHAT) -> Call:
    call = Call(endpoint, "id", Credentials(None, None, None), NOW)
    call.caller = Caller("team-a", None, of)
    return call


def test_it_refuses_as_the_limit_does_and_takes_nothing(limit: Limit) -> None:
    of = account(Terms(rpm=3, concurrency=9), 3)
    before = of.standing(NOW), of.places
    refusal = Full(limit).admit(called(of), NOW)
    assert refusal == limit.admit(called(of), NOW)
    assert refusal is not None
    assert refusal.retry_after == pytest.approx(20.0)
    assert (of.standing(NOW), of.places) == before


def test_who_is_not_over_a_limit_passes_and_nothing_is_taken(limit: Limit) -> None:
    of = account(Terms(rpm=3, tpm=1000, concurrency=9), 2)
    call = called(of)
    before = of.standing(NOW), of.places
    assert Full(limit).admit(call, NOW) is None
    call.lease.settle(call, NOW)
    assert (of.standing(NOW), of.places) == before


def test_without_limits_and_without_a_caller_all_pass(limit: Limit) -> None:
    stranger = called(None)
    stranger.caller = None
    assert Full(limit).admit(stranger, NOW) is None
    assert Full(limit).admit(called(None), NOW) is None


def test_only_calls_count(limit: Limit) -> None:
    of = account(Terms(rpm=1), 1)
    assert Full(limit).admit(called(of, EMBEDDINGS), NOW) is not None
    for other in ("/v1/models", "other", BATCH_CHAT):
        assert Full(limit).admit(called(of, other), NOW) is None


@pytest.mark.parametrize(
    ("terms", "calls", "ask", "told"),
    [
        (Terms(rpm=3), 2, Ask(), None),
        (Terms(rpm=3), 3, Ask(), Denial("rpm", 20.0)),
        (Terms(concurrency=2), 1, Ask(), None),
        (Terms(concurrency=2), 2, Ask(), Denial("concurrency", 0.5)),
        (Terms(rpm=1, concurrency=1), 1, Ask(), Denial("rpm", 60.0)),
        # The bucket of tokens is empty before there is a request again ...
        (Terms(rpm=3, tpm=300), 3, Ask(33), Denial("rpm", 20.0)),
        # ... or it is not, and how long a call has to wait depends on its tokens.
        (Terms(rpm=3, tpm=300), 3, Ask(34), None),
        (Terms(rpm=1, usd_per_day=100), 1, Ask(cost=99), Denial("rpm", 60.0)),
        (Terms(rpm=1, usd_per_day=100), 1, Ask(cost=100), None),
        (Terms(tpm=100), 1, Ask(100), None),
    ],
)
def test_when_an_account_is_full_for_any_call(
    terms: Terms, calls: int, ask: Ask, told: Denial | None
) -> None:
    found = account(terms, calls, ask).full(NOW)
    assert (found is None) == (told is None)
    if found is not None and told is not None:
        assert found == Denial(told.limit, pytest.approx(told.wait))


def test_after_the_wait_it_is_not_full() -> None:
    of = account(Terms(rpm=7), 7)
    denial = of.full(NOW)
    assert denial is not None
    assert of.full(NOW + denial.wait) is None
    assert not isinstance(of.reserve(Ask(), DAY, NOW + denial.wait), Denial)


def test_the_gate_is_there_only_where_it_is_of_use(limit: Limit) -> None:
    def callers(*terms: Terms | None) -> list[Caller]:
        return [Caller("k", None, None if one is None else Account(one)) for one in terms]

    assert full(limit, callers(None, Terms(tpm=1), Terms(usd_per_day=1))) == ()
    assert len(full(limit, callers(None, Terms(rpm=1)))) == 1
    assert len(full(limit, callers(Terms(concurrency=1)))) == 1


def test_a_call_that_no_wait_helps_is_told_so_as_soon_as_it_can_be_asked(limit: Limit) -> None:
    of = account(Terms(rpm=1, tpm=10), 1)
    assert of.full(NOW) == Denial("rpm", pytest.approx(60.0))
    assert of.reserve(Ask(11), DAY, NOW) == Denial("too_large", math.inf)
