"""PGR, APGR and CPT on orders that can be worked out by hand."""

import pytest

from gateway.cli.router.metrics import bootstrap, curve, measure


def test_the_area_of_a_perfect_a_flat_and_a_reversed_order():
    gains = [1, 1, 0, 0]
    assert curve([4, 3, 2, 1], gains).apgr == pytest.approx(0.75)
    assert curve([1, 1, 1, 1], gains).apgr == pytest.approx(0.5)
    assert curve([1, 2, 3, 4], gains).apgr == pytest.approx(0.25)


def test_equal_scores_are_drawn_at_random():
    assert curve([2, 2, 1, 1], [1, 0, 1, 0]).apgr == pytest.approx(0.5)


def test_the_share_that_recovers_a_part_of_the_gap():
    made = curve([4, 3, 2, 1], [1, 0, 1, 0])
    assert made.cpt(0.5) == pytest.approx(0.25)
    assert made.cpt(0.75) == pytest.approx(0.625)
    assert made.cpt(0.0) == 0.0


def test_answers_that_the_strong_model_loses_count_against_it():
    assert curve([3, 2, 1], [1, 1, -1]).recovered.tolist() == [0, 1, 2, 1]


def test_no_gap_is_no_curve():
    assert curve([1, 2], [0, 0]).apgr == 0.0


def test_the_interval_holds_the_area_and_is_the_same_every_time():
    scores, gains = list(range(200)), [at % 3 == 0 for at in range(200)]
    one = measure(scores, gains)
    assert one.low < one.apgr < one.high
    assert one == measure(scores, gains)
    assert bootstrap([scores, scores], gains)[0].tolist() == bootstrap([scores, scores], gains)[1].tolist()
