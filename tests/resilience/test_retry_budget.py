"""How many extra calls there are, and when; case by case."""

import statistics
from random import Random

import pytest

from gateway.resilience.retry_budget import RetryBudget, backoff, client_retries, own_attempts, pause
from gateway.resilience.rolling_counter import RollingCounter


def spendable(budget: RetryBudget, now: float) -> int:
    return next(number for number in range(1000) if not budget.try_withdraw(now))


def test_it_starts_with_three():
    assert spendable(RetryBudget(0.1), 100.0) == 3


def test_ten_requests_deposit_one_retry():
    budget = RetryBudget(0.1)
    assert spendable(budget, 100.0) == 3
    for _ in range(9):
        budget.deposit(100.0)
    assert spendable(budget, 100.0) == 0
    for _ in range(12):
        budget.deposit(100.0)
    assert spendable(budget, 100.0) == 2


def test_it_holds_the_share_of_ten_seconds_and_no_more():
    budget = RetryBudget(0.1)
    for tenth in range(1000):  # 100 requests a second
        for _ in range(10):
            budget.deposit(100.0 + tenth / 10)
    assert 90 <= spendable(budget, 199.9) <= 100


def test_what_was_saved_in_a_rush_does_not_last():
    budget = RetryBudget(0.1)
    for _ in range(1000):
        budget.deposit(100.0)
    assert spendable(budget, 115.0) == 3


def test_time_deposits_nothing():
    budget = RetryBudget(0.1)
    assert spendable(budget, 100.0) == 3
    assert spendable(budget, 10_000.0) == 0


def test_a_share_of_nothing_leaves_the_reserve_only():
    budget = RetryBudget(0.0, reserve=1.0)
    for _ in range(100):
        budget.deposit(100.0)
    assert spendable(budget, 100.0) == 1


def test_only_the_last_ten_seconds_are_counted():
    recent = RollingCounter()
    for second in range(100, 120):
        recent.add(float(second))
    assert recent.count(119.9) == 10
    assert recent.count(120.5) == 9
    assert recent.count(128.5) == 1
    assert recent.count(129.0) == 0


@pytest.mark.parametrize(("n", "longest"), [(1, 0.05), (2, 0.1), (5, 0.8), (7, 2.0), (5000, 2.0)])
def test_the_backoff_is_any_time_up_to_twice_the_one_before(n: int, longest: float):
    rng = Random(n)
    drawn = [backoff(n, 0.05, 2.0, rng) for _ in range(1000)]
    assert 0.0 <= min(drawn) < 0.02 * longest
    assert 0.98 * longest < max(drawn) <= longest
    assert statistics.mean(drawn) == pytest.approx(longest / 2, rel=0.1)


def test_it_is_never_tried_earlier_than_it_asks():
    rng = Random(1)
    drawn = [pause(1.0, 1, 0.05, 2.0, 60.0, rng) for _ in range(100)]
    assert all(seconds is not None and 1.0 <= seconds <= 1.05 for seconds in drawn)
    assert len(set(drawn)) == 100, "they do not come back all at once"


def test_a_wait_as_long_as_allowed_is_obeyed_exactly():
    assert pause(2.0, 1, 0.05, 2.0, 60.0, Random(1)) == 2.0


@pytest.mark.parametrize("asked_s", [2.001, 86_400.0, 1e9, float("inf")])
def test_an_upstream_that_asks_for_too_long_is_not_retried(asked_s: float):
    assert pause(asked_s, 1, 0.05, 2.0, 3600.0, Random(1)) is None


@pytest.mark.parametrize("asked_s", [None, 0.0, -3.0])
def test_without_a_wish_it_is_the_backoff(asked_s: float | None):
    assert pause(asked_s, 3, 0.05, 2.0, 60.0, Random(1)) == backoff(3, 0.05, 2.0, Random(1))


@pytest.mark.parametrize(("asked_s", "left_s"), [(1.0, 1.0), (1.0, 0.5), (None, 0.0), (None, -1.0)])
def test_nothing_is_tried_after_the_deadline(asked_s: float | None, left_s: float):
    assert pause(asked_s, 1, 0.05, 2.0, left_s, Random(1)) is None


@pytest.mark.parametrize(("sent_before", "own"), [(0, 2), (1, 1), (2, 1), (9, 1)])
def test_a_clients_own_retries_are_counted_in(sent_before: int, own: int):
    assert own_attempts(2, sent_before) == own


@pytest.mark.parametrize(
    ("header", "number"),
    [("0", 0), ("2", 2), (None, 0), ("", 0), ("-1", 0), ("two", 0), ("1.5", 0), ("٢", 0), ("9" * 5000, 0)],
)
def test_a_clients_own_retries_are_read_with_care(header: str | None, number: int):
    assert client_retries(header) == number
