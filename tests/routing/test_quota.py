"""The strong share: a quantile of recent scores, and a bucket of dollars."""

from random import Random
from typing import NamedTuple

import pytest

from gateway.routing.complexity.quota import WINDOW, DollarBucket, ScoreWindow

USD = 1_000_000_000


def drawn(recent: ScoreWindow, scores: list[float], share: float) -> float:
    """The share of strong calls."""
    strong = 0
    for score in scores:
        strong += recent.is_hard(score, share)
        recent.add(score)
    return strong / len(scores)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (50.0, 51.0), (-9.0, -8.999)])
def test_the_share_holds_for_any_distribution_of_scores(share, low, high):
    rng = Random(3)
    recent = ScoreWindow([at / 100 for at in range(101)])
    drawn(recent, [rng.uniform(low, high) for _ in range(300)], share)
    assert drawn(recent, [rng.uniform(low, high) for _ in range(3000)], share) == pytest.approx(share, abs=0.03)


def test_the_share_comes_back_after_the_workload_has_changed():
    rng = Random(4)
    recent = ScoreWindow([0.0] * 101)
    drawn(recent, [rng.random() for _ in range(2000)], 0.2)
    drawn(recent, [5 + rng.random() for _ in range(WINDOW)], 0.2)
    assert drawn(recent, [5 + rng.random() for _ in range(2000)], 0.2) == pytest.approx(0.2, abs=0.03)


def test_the_hardest_are_chosen():
    recent = ScoreWindow([at / 100 for at in range(101)])
    assert recent.is_hard(0.95, 0.1)
    assert not recent.is_hard(0.85, 0.1)
    assert not recent.is_hard(9.0, 0.0)
    assert recent.is_hard(-9.0, 1.0)


def test_equal_scores_share_the_remaining_room():
    recent = ScoreWindow([0.5] * 101)
    assert drawn(recent, [0.5] * 4000, 0.25) == pytest.approx(0.25, abs=0.01)


def test_initial_scores_are_replaced_after_as_many_calls():
    recent = ScoreWindow([1000.0] * 101)
    drawn(recent, [0.1] * 101, 0.5)
    assert recent.is_hard(0.2, 0.01)


def test_the_window_is_bounded():
    recent = ScoreWindow([0.0] * 101)
    drawn(recent, [float(at) for at in range(101 + WINDOW)], 0.5)
    assert recent.is_hard(110.5, 0.995)
    drawn(recent, [float(at) for at in range(5000, 5000 + WINDOW)], 0.5)
    assert not recent.is_hard(4999.0, 0.995)


class Spent(NamedTuple):
    """Dollars spent, the share of strong calls, and of calls that met an empty bucket."""

    dollars: int
    strong: float
    turned_away: float


def spend(per_day: int, calls_per_second: float, seconds: int, extra: int) -> Spent:
    """Steady traffic with random scores; hard calls cost more."""
    rng = Random(5)
    bucket, recent = DollarBucket(per_day, 0.0), ScoreWindow([at / 100 for at in range(101)])
    dollars = strong = empty = 0
    calls = int(calls_per_second * seconds)
    for call in range(calls):
        now = call / calls_per_second
        score = rng.random()
        cost = int(extra * (0.5 + score))
        share = bucket.share(cost, now)
        empty += share == 0.0
        if recent.is_hard(score, share):
            bucket.pay(cost)
            dollars, strong = dollars + cost, strong + 1
        recent.add(score)
    return Spent(dollars, strong / calls, empty / calls)


def test_a_bucket_is_spent_at_its_rate_and_rarely_empty():
    per_day = 24 * USD
    spent = spend(per_day, 2.0, 6 * 3600, 2 * USD // 1000)
    hour = per_day / 24
    assert 0.85 * 6 * hour <= spent.dollars <= 7 * hour  # the bucket starts with one hour's allowance
    assert 0.02 < spent.strong < 0.2
    assert spent.turned_away < 0.05


def test_a_bucket_that_pays_for_everything_admits_everything():
    assert spend(1000 * USD, 0.1, 3600, USD // 1000).strong > 0.99


def test_an_empty_bucket_admits_nothing_until_it_refills():
    bucket = DollarBucket(24 * USD, 0.0)  # a dollar an hour
    assert bucket.share(USD // 2, 0.0) > 0
    bucket.pay(USD)
    assert bucket.share(USD // 2, 1.0) == 0.0
    assert bucket.share(USD // 2, 1801.0) > 0
    assert bucket.share(0, 1801.0) > 0
