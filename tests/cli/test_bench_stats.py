"""Percentiles, rates and comparisons: plain numbers."""

import pytest

from gateway.cli.bench.client import TimedCall
from gateway.cli.bench.driver import Run
from gateway.cli.bench.stats import Spread, differences, figures, spread


def sample(total: float, first: float | None = None, output: int = 10, error: str = "") -> TimedCall:
    one = TimedCall(due=100.0, end=100.0 + total, input=5, output=output, counted=True, error=error)
    one.first = None if first is None else 100.0 + first
    return one


def run_of(*samples: TimedCall, seconds: float = 2.0) -> Run:
    return Run(list(samples), seconds)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([3.0], Spread(3, 3, 3)),
        ([2.0, 1.0], Spread(1, 2, 2)),
        ([float(i) for i in range(1, 101)], Spread(50, 90, 99)),
        ([float(i) for i in range(1, 201)], Spread(100, 180, 198)),
    ],
)
def test_percentiles_by_the_nearest_rank(values: list[float], expected: Spread | None) -> None:
    assert spread(values) == expected


def test_figures_are_of_good_calls_and_failures_are_counted() -> None:
    first, second = sample(0.5, 0.25), sample(1.0, 0.5, output=30)
    first.gaps.extend([0.125, 0.25])
    of = figures([run_of(first, sample(9.0, error="timeout")), run_of(second, sample(9.0, error="timeout"))])
    assert (of.good, of.failed, of.seconds, of.per_second) == (2, 2, 4.0, 0.5)
    assert (of.input_tokens, of.output_tokens, of.output_per_second) == (5, 20, 10)
    assert (of.first_token, of.between_tokens) == (Spread(0.25, 0.5, 0.5), Spread(0.125, 0.25, 0.25))
    assert of.total == Spread(0.5, 1.0, 1.0)
    assert of.errors == {"timeout": 2}


def test_no_call_at_all() -> None:
    of = figures([])
    assert (of.good, of.per_second, of.total, of.errors) == (0, 0.0, None, {})


def compared(first: list[float], second: list[float]) -> dict[str, tuple[float, str]]:
    """Ratio and remark of each figure, for rounds of one call that takes so long."""
    found = differences(*([run_of(sample(total)) for total in side] for side in (first, second)))
    return {one.what: (round(one.ratio, 3), one.remark) for one in found}


def test_a_difference_in_which_all_rounds_agree_is_one() -> None:
    found = compared([1.0] * 8, [2.0, 1.1, 3.0, 1.5, 2.0, 2.0, 2.0, 2.0])
    assert found["whole call p50"] == (2.0, "more in every round")
    assert compared([2.0] * 8, [1.0] * 8)["whole call p50"] == (0.5, "less in every round")


def test_one_round_that_disagrees_makes_it_noise() -> None:
    assert compared([1.0] * 8, [2.0, 2.0, 0.9, 2.0, 2.0, 2.0, 2.0, 2.0])["whole call p50"] == (
        2.0,
        "within noise",
    )
    assert compared([1.0] * 8, [1.0] * 8)["whole call p50"] == (1.0, "within noise")
    assert compared([1.0] * 8, [1.005] * 8)["whole call p50"] == (1.005, "within noise")


def test_few_rounds_tell_nothing() -> None:
    assert compared([1.0] * 7, [2.0] * 7)["whole call p50"] == (2.0, "too few rounds to tell")


def test_an_interrupted_round_and_rounds_without_a_good_call_are_left_out_of_the_rounds() -> None:
    bad = run_of(sample(1.0, error="timeout"))
    one, other = run_of(sample(1.0)), run_of(sample(2.0))
    (whole, *_) = differences([one, bad, one], [other, other])
    assert (whole.what, whole.ratios) == ("whole call p50", [2.0])


def test_what_only_one_of_them_has_is_not_compared() -> None:
    assert differences([run_of(sample(1.0, error="timeout"))], [run_of(sample(1.0))]) == []
