"""All of a call's reservation, or none of it; what was not used comes back."""

import math

import pytest

from gateway.core.caller import Terms
from gateway.limits.account import Account, Ask, Denial, Reservation

DAY = "2026-11-29"
NOTHING = Ask()


def reserve(account: Account, ask: Ask = NOTHING, now: float = 0.0, day: str = DAY) -> Reservation:
    outcome = account.reserve(ask, day, now)
    assert isinstance(outcome, Reservation), outcome
    return outcome


def denied(account: Account, ask: Ask = NOTHING, now: float = 0.0, day: str = DAY) -> Denial:
    outcome = account.reserve(ask, day, now)
    assert isinstance(outcome, Denial)
    return outcome


def test_nothing_is_taken_by_a_call_that_one_limit_refuses() -> None:
    account = Account(Terms(rpm=10, tpm=100, concurrency=5, usd_per_day=1000))
    reserve(account, Ask(firm=90, cost=10))
    before = account.standing(0.0)
    assert denied(account, Ask(firm=20, cost=10)).limit == "tpm"
    assert account.standing(0.0) == before
    assert (account.places, account.gone) == (1, 10)


def test_the_longest_wait_is_told() -> None:
    account = Account(Terms(rpm=1, tpm=600))
    reserve(account, Ask(firm=600))
    assert denied(account, Ask(firm=1)) == Denial("rpm", pytest.approx(60.0))
    account = Account(Terms(rpm=60, tpm=60))
    reserve(account, Ask(firm=60))
    assert denied(account, Ask(firm=30)) == Denial("tpm", pytest.approx(30.0))


def test_the_greater_part_of_a_request_is_none() -> None:
    account = Account(Terms(rpm=1))
    reserve(account)
    assert denied(account, now=59.9).wait == pytest.approx(0.1)
    assert reserve(account, now=60.0)


def test_larger_than_the_whole_limit() -> None:
    assert denied(Account(Terms(tpm=100)), Ask(firm=101)) == Denial("too_large", math.inf)


def test_a_guess_never_refuses_and_takes_only_what_is_left() -> None:
    account = Account(Terms(tpm=100))
    assert reserve(account, Ask(firm=60, guess=256)).tokens == 100
    account = Account(Terms(tpm=1000))
    assert reserve(account, Ask(firm=60, guess=256)).tokens == 316


def test_what_a_guess_costs_never_refuses_and_takes_only_what_is_left() -> None:
    account = Account(Terms(usd_per_day=100))
    assert reserve(account, Ask(cost=10, guess_cost=50)).cost == 60
    assert reserve(account, Ask(cost=10, guess_cost=50)).cost == 40
    assert denied(account, Ask(cost=1, guess_cost=50)).limit == "usd_per_day"


def test_a_call_that_does_not_fit_without_its_guess_is_refused() -> None:
    account = Account(Terms(usd_per_day=100))
    reserve(account, Ask(cost=60))
    assert denied(account, Ask(cost=41, guess_cost=1)).limit == "usd_per_day"
    assert account.gone == 60


def test_five_calls_with_a_cap_on_a_small_limit() -> None:
    account = Account(Terms(tpm=100))
    outcomes = [account.reserve(Ask(firm=40), DAY, 0.0) for _ in range(5)]
    assert sum(isinstance(one, Reservation) for one in outcomes) == 2


def test_a_place_comes_back_and_the_request_stays_charged() -> None:
    account = Account(Terms(rpm=10, tpm=100, concurrency=1))
    held = reserve(account, Ask(firm=50))
    assert denied(account, Ask(firm=1)).limit == "concurrency"
    account.settle(held, 0, 0, 0.0)
    standing = account.standing(0.0)
    assert (standing.requests_left, standing.tokens_left, account.places) == (9, 100, 0)
    assert account.settle(reserve(account), 0, 0, 0.0) is None


def test_what_was_used_beyond_the_reservation_is_charged() -> None:
    account = Account(Terms(tpm=100))
    account.settle(reserve(account, Ask(firm=90)), 130, 0, 0.0)
    assert account.standing(0.0).tokens_left == 0
    assert denied(account, Ask(firm=10)).wait == pytest.approx(24.0)


def test_the_wait_for_a_place_follows_how_long_calls_last() -> None:
    account = Account(Terms(concurrency=1))
    for _ in range(100):
        account.settle(reserve(account), 0, 0, 4.0)
    reserve(account)
    assert denied(account).wait == pytest.approx(4.0, rel=0.01)


def test_a_thousand_calls_at_the_edge_of_a_budget() -> None:
    account = Account(Terms(usd_per_day=1_000_000))
    ask = Ask(cost=3_000)
    taken = [one for _ in range(1000) if isinstance(one := account.reserve(ask, DAY, 0.0), Reservation)]
    for one in taken:
        account.settle(one, 0, 3_000, 0.0)
    assert account.gone == 999_000
    assert denied(account, ask) == Denial("usd_per_day", math.inf)


def test_a_budget_that_is_spent_lets_free_calls_pass() -> None:
    account = Account(Terms(usd_per_day=10))
    account.settle(reserve(account, Ask(cost=10)), 0, 12, 0.0)
    assert denied(account, Ask(cost=0, guess_cost=1)).limit == "usd_per_day"
    assert reserve(account, Ask()).cost == 0


def test_the_next_day_has_its_own_budget_and_yesterdays_calls_do_not_touch_it() -> None:
    account = Account(Terms(usd_per_day=100))
    late = reserve(account, Ask(cost=100), day="2026-11-29")
    reserve(account, Ask(cost=60), day="2026-11-30")
    account.settle(late, 0, 0, 0.0)
    assert account.gone == 60
    assert reserve(account, Ask(cost=40), day="2026-11-29").day == "2026-11-30"
