"""A call reserves all or nothing, and the unused rest is returned."""

import math

import pytest

from gateway.core.caller import KeyLimits
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest

DAY = "2026-11-29"
NOTHING = ReservationRequest()


def reserve(account: Account, wanted: ReservationRequest = NOTHING, now: float = 0.0, day: str = DAY) -> Reservation:
    outcome = account.reserve(wanted, day, now)
    assert isinstance(outcome, Reservation), outcome
    return outcome


def denied(account: Account, wanted: ReservationRequest = NOTHING, now: float = 0.0, day: str = DAY) -> Denial:
    outcome = account.reserve(wanted, day, now)
    assert isinstance(outcome, Denial)
    return outcome


def test_a_call_that_any_limit_denies_reserves_nothing() -> None:
    account = Account(KeyLimits(rpm=10, tpm=100, concurrency=5, usd_per_day=1000))
    reserve(account, ReservationRequest(committed=90, committed_cost=10))
    before = account.status(0.0)
    assert denied(account, ReservationRequest(committed=20, committed_cost=10)).limit == "tpm"
    assert account.status(0.0) == before
    assert (account.in_flight, account.spent_today) == (1, 10)


def test_the_longest_wait_is_reported() -> None:
    account = Account(KeyLimits(rpm=1, tpm=600))
    reserve(account, ReservationRequest(committed=600))
    assert denied(account, ReservationRequest(committed=1)) == Denial("rpm", pytest.approx(60.0))
    account = Account(KeyLimits(rpm=60, tpm=60))
    reserve(account, ReservationRequest(committed=60))
    assert denied(account, ReservationRequest(committed=30)) == Denial("tpm", pytest.approx(30.0))


def test_a_fraction_of_a_request_admits_no_call() -> None:
    account = Account(KeyLimits(rpm=1))
    reserve(account)
    assert denied(account, now=59.9).wait == pytest.approx(0.1)
    assert reserve(account, now=60.0)


def test_larger_than_the_whole_limit() -> None:
    assert denied(Account(KeyLimits(tpm=100)), ReservationRequest(committed=101)) == Denial("too_large", math.inf)


def test_expected_tokens_never_deny_and_reserve_only_what_is_left() -> None:
    account = Account(KeyLimits(tpm=100))
    assert reserve(account, ReservationRequest(committed=60, expected=256)).tokens == 100
    account = Account(KeyLimits(tpm=1000))
    assert reserve(account, ReservationRequest(committed=60, expected=256)).tokens == 316


def test_the_expected_cost_never_denies_and_reserves_only_what_is_left() -> None:
    account = Account(KeyLimits(usd_per_day=100))
    assert reserve(account, ReservationRequest(committed_cost=10, expected_cost=50)).cost == 60
    assert reserve(account, ReservationRequest(committed_cost=10, expected_cost=50)).cost == 40
    assert denied(account, ReservationRequest(committed_cost=1, expected_cost=50)).limit == "usd_per_day"


def test_a_call_whose_committed_tokens_do_not_fit_is_denied() -> None:
    account = Account(KeyLimits(usd_per_day=100))
    reserve(account, ReservationRequest(committed_cost=60))
    assert denied(account, ReservationRequest(committed_cost=41, expected_cost=1)).limit == "usd_per_day"
    assert account.spent_today == 60


def test_five_calls_with_a_cap_on_a_small_limit() -> None:
    account = Account(KeyLimits(tpm=100))
    outcomes = [account.reserve(ReservationRequest(committed=40), DAY, 0.0) for _ in range(5)]
    assert sum(isinstance(outcome, Reservation) for outcome in outcomes) == 2


def test_a_slot_is_returned_and_the_request_stays_charged() -> None:
    account = Account(KeyLimits(rpm=10, tpm=100, concurrency=1))
    held = reserve(account, ReservationRequest(committed=50))
    assert denied(account, ReservationRequest(committed=1)).limit == "concurrency"
    account.settle(held, 0, 0, 0.0)
    standing = account.status(0.0)
    assert (standing.requests_left, standing.tokens_left, account.in_flight) == (9, 100, 0)
    assert account.settle(reserve(account), 0, 0, 0.0) is None


def test_use_beyond_the_reservation_is_charged() -> None:
    account = Account(KeyLimits(tpm=100))
    account.settle(reserve(account, ReservationRequest(committed=90)), 130, 0, 0.0)
    assert account.status(0.0).tokens_left == 0
    assert denied(account, ReservationRequest(committed=10)).wait == pytest.approx(24.0)


def test_the_wait_for_a_slot_follows_how_long_calls_last() -> None:
    account = Account(KeyLimits(concurrency=1))
    for _ in range(100):
        account.settle(reserve(account), 0, 0, 4.0)
    reserve(account)
    assert denied(account).wait == pytest.approx(4.0, rel=0.01)


def test_a_thousand_calls_at_the_edge_of_a_budget() -> None:
    account = Account(KeyLimits(usd_per_day=1_000_000))
    wanted = ReservationRequest(committed_cost=3_000)
    reservations = [held for _ in range(1000) if isinstance(held := account.reserve(wanted, DAY, 0.0), Reservation)]
    for reservation in reservations:
        account.settle(reservation, 0, 3_000, 0.0)
    assert account.spent_today == 999_000
    assert denied(account, wanted) == Denial("usd_per_day", math.inf)


def test_a_spent_budget_lets_free_calls_pass() -> None:
    account = Account(KeyLimits(usd_per_day=10))
    account.settle(reserve(account, ReservationRequest(committed_cost=10)), 0, 12, 0.0)
    assert denied(account, ReservationRequest(committed_cost=0, expected_cost=1)).limit == "usd_per_day"
    assert reserve(account, ReservationRequest()).cost == 0


def test_the_next_day_has_its_own_budget_and_yesterdays_calls_do_not_touch_it() -> None:
    account = Account(KeyLimits(usd_per_day=100))
    late = reserve(account, ReservationRequest(committed_cost=100), day="2026-11-29")
    reserve(account, ReservationRequest(committed_cost=60), day="2026-11-30")
    account.settle(late, 0, 0, 0.0)
    assert account.spent_today == 60
    assert reserve(account, ReservationRequest(committed_cost=40), day="2026-11-29").day == "2026-11-30"
