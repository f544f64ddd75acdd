"""The strong share: a quantile of recent scores, and a purse of dollars."""

from random import Random
from typing import NamedTuple

import pytest

from gateway.routing.complexity.quota import REMEMBERED, Purse, ScoreWindow

USD = 1_000_000_000


def drawn(recent: ScoreWindow, scores: list[float], share: float) -> float:
    """The part of these calls that are strong."""
    strong = 0
    for score in scores:
        strong += recent.is_hard(score, share)
        recent.add(score)
    return strong / len(scores)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (50.0, 51.0), (-9.0, -8.999)])
def test_the_share_holds_wherever_the_scores_of_a_workload_lie(share, low, high):
    rng = Random(3)
    recent = ScoreWindow([at / 100 for at in range(101)])
    drawn(recent, [rng.uniform(low, high) for _ in range(300)], share)
    assert drawn(recent, [rng.uniform(low, high) for _ in range(3000)], share) == pytest.approx(
        share, abs=0.03
    )


def test_the_share_comes_back_after_the_workload_has_changed():
    rng = Random(4)
    recent = ScoreWindow([0.0] * 101)
    drawn(recent, [rng.random() for _ in range(2000)], 0.2)
    drawn(recent, [5 + rng.random() for _ in range(REMEMBERED)], 0.2)
    assert drawn(recent, [5 + rng.random() for _ in range(2000)], 0.2) == pytest.approx(0.2, abs=0.03)


def test_the_hardest_are_chosen():
    recent = ScoreWindow([at / 100 for at in range(101)])
    assert recent.is_hard(0.95, 0.1)
    assert not recent.is_hard(0.85, 0.1)
    assert not recent.is_hard(9.0, 0.0)
    assert recent.is_hard(-9.0, 1.0)


def test_equal_scores_share_what_room_there_is():
    recent = ScoreWindow([0.5] * 101)
    assert drawn(recent, [0.5] * 4000, 0.25) == pytest.approx(0.25, abs=0.01)


def test_what_the_weights_came_with_is_gone_after_as_many_calls():
    recent = ScoreWindow([1000.0] * 101)
    drawn(recent, [0.1] * 101, 0.5)
    assert recent.is_hard(0.2, 0.01)


def test_as_many_scores_are_remembered_as_is_said_and_no_more():
    recent = ScoreWindow([0.0] * 101)
    drawn(recent, [float(at) for at in range(101 + REMEMBERED)], 0.5)
    assert recent.is_hard(110.5, 0.995)
    drawn(recent, [float(at) for at in range(5000, 5000 + REMEMBERED)], 0.5)
    assert not recent.is_hard(4999.0, 0.995)


class Spent(NamedTuple):
    """Dollars, and shares of the calls: strong ones, and those that came when the purse was empty."""

    dollars: int
    strong: float
    turned_away: float


def spend(per_day: int, calls_per_second: float, seconds: int, extra: int) -> Spent:
    """A steady traffic with scores at random, the hard ones costing more."""
    rng = Random(5)
    purse, recent = Purse(per_day, 0.0), ScoreWindow([at / 100 for at in range(101)])
    dollars = strong = empty = 0
    calls = int(calls_per_second * seconds)
    for call in range(calls):
        now = call / calls_per_second
        score = rng.random()
        cost = int(extra * (0.5 + score))
        share = purse.share(cost, now)
        empty += share == 0.0
        if recent.is_hard(score, share):
            purse.pay(cost)
            dollars, strong = dollars + cost, strong + 1
        recent.add(score)
    return Spent(dollars, strong / calls, empty / calls)


def test_a_purse_is_spent_at_its_rate_and_seldom_empty():
    per_day = 24 * USD
    spent = spend(per_day, 2.0, 6 * 3600, 2 * USD // 1000)
    hour = per_day / 24
    assert 0.85 * 6 * hour <= spent.dollars <= 7 * hour  # it begins with one hour's worth
    assert 0.02 < spent.strong < 0.2
    assert spent.turned_away < 0.05


def test_a_purse_that_pays_for_all_lets_all_through():
    assert spend(1000 * USD, 0.1, 3600, USD // 1000).strong > 0.99


def test_an_empty_purse_buys_nothing_until_it_has_saved_again():
    purse = Purse(24 * USD, 0.0)  # a dollar an hour
    assert purse.share(USD // 2, 0.0) > 0
    purse.pay(USD)
    assert purse.share(USD // 2, 1.0) == 0.0
    assert purse.share(USD // 2, 1801.0) > 0
    assert purse.share(0, 1801.0) > 0
