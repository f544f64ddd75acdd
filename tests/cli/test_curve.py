"""PGR, APGR and CPT of rankings that can be computed by hand."""

import numpy as np
import pytest

from gateway.cli.router.metrics import bootstrap, curve, interval, measure, measure_chance


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


def test_answers_that_only_the_cheap_model_gets_right_count_against_the_strong_one():
    assert curve([3, 2, 1], [1, 1, -1]).recovered.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("gains", [[0, 0], [1, -1], [-1, -1], [-1, 0.5]])
def test_without_a_lead_there_is_nothing_to_recover(gains):
    flat = curve([1, 2], gains)
    assert flat.recovered.tolist() == [0, 0, 0]
    assert (flat.apgr, flat.cpt(0.0), flat.cpt(0.5), flat.cpt(1.0)) == (0.0, 0.0, 1.0, 1.0)
    assert bootstrap([[1, 2]], gains, samples=1).shape == (1, 1)
    assert measure([1, 2], [-1, -1])[:3] == (0.0, 0.0, 0.0)


def test_all_of_the_gap_is_reached_in_spite_of_rounding():
    gains = [0.1] * 3 + [0.0] * 7
    assert curve(range(10, 0, -1), gains).cpt(1.0) == pytest.approx(0.3)
    assert curve([1, 2], [1, 1]).cpt(1.0) == 1.0


def test_samples_without_a_lead_tell_nothing():
    areas = bootstrap([[3, 2, 1]], [1, -1, 0])[0]
    assert 0 < np.isnan(areas).sum() < len(areas)
    assert interval([np.nan, 0.5, 0.5]) == (0.5, 0.5)
    assert interval([np.nan]) == (0.0, 0.0)


def test_many_random_orders_have_half_of_the_area():
    chance = measure_chance([1.0, 0.0] * 200)
    assert chance.apgr == pytest.approx(0.5, abs=0.01)
    assert chance.low < 0.5 < chance.high


def test_the_interval_contains_the_area_and_is_reproducible():
    scores, gains = list(range(200)), [at % 3 == 0 for at in range(200)]
    measured = measure(scores, gains)
    assert measured.low < measured.apgr < measured.high
    assert measured == measure(scores, gains)
    assert bootstrap([scores, scores], gains)[0].tolist() == bootstrap([scores, scores], gains)[1].tolist()
