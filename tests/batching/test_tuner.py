"""What is learned of an upstream's calls: their cost, how large they may be, how many at a time."""

from random import Random

import pytest

from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchTuner


def test_nothing_is_expected_before_anything_is_known() -> None:
    tuning = BatchTuner(32, 2)
    assert tuning.cost(1000) == 0.0
    assert tuning.view() == {"size": 32, "inflight": 2, "call_ms": 0.0, "token_us": 0.0}


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_cost_of_a_call_and_of_a_token(noise: float) -> None:
    tuning, random = BatchTuner(32, 2), Random(1)
    for _ in range(500):
        tokens = random.randint(1, 2000)
        seconds = (0.020 + 50e-6 * tokens) * random.uniform(1 - noise, 1 + noise)
        tuning.ended(4, tokens, seconds, OK, 0.0)
    assert tuning.cost(0) == pytest.approx(0.020, rel=0.001 + 2 * noise)
    assert tuning.cost(10_000) == pytest.approx(0.520, rel=0.001 + noise)
    assert tuning.view()["token_us"] == pytest.approx(50, rel=0.001 + noise)


def test_old_calls_are_forgotten() -> None:
    tuning = BatchTuner(32, 2)
    for seconds in [1.0] * 1000 + [0.1] * 1000:
        for tokens in (10, 100):
            tuning.ended(1, tokens, seconds + 0.001 * tokens, OK, 0.0)
    assert tuning.cost(100) == pytest.approx(0.2, rel=0.01)


def test_calls_of_one_size_tell_the_cost_of_that_size() -> None:
    tuning = BatchTuner(32, 2)
    for at in range(100):
        tuning.ended(1, 50, 0.03 + 0.001 * (at % 2), OK, 0.0)
    assert tuning.cost(50) == pytest.approx(0.0305, rel=0.01)
    assert tuning.cost(5000) == tuning.cost(50)


@pytest.mark.parametrize(
    "calls",
    [
        [(10, 0.5), (1000, 0.1)],  # larger ones quicker
        [(10, 0.001), (1000, 0.5), (500, 0.1)],  # a line that crosses zero
        [(1, 0.0), (2, 0.0)],
    ],
)
def test_no_part_of_the_cost_is_below_zero(calls: list[tuple[int, float]]) -> None:
    tuning = BatchTuner(32, 2)
    for tokens, seconds in calls:
        tuning.ended(1, tokens, seconds, OK, 0.0)
        assert 0.0 <= tuning.cost(1) <= tuning.cost(2) <= tuning.cost(10_000)


def test_failures_tell_nothing_of_the_cost() -> None:
    tuning = BatchTuner(32, 2)
    for outcome in (FAILED, OVERLOADED):
        tuning.ended(8, 100, 5.0, outcome, 10.0)
    assert tuning.cost(100) == 0.0


def test_an_overload_halves_and_success_gives_back() -> None:
    tuning = BatchTuner(8, 2)
    tuning.ended(8, 100, 0.1, OVERLOADED, 10.0)
    assert (tuning.size, tuning.inflight) == (4, 1)
    sizes = []
    for at in range(6):
        tuning.together(False)
        tuning.ended(1, 10, 0.1, OK, 11.0 + at)
        sizes.append(tuning.size)
    tuning.together(False)
    assert sizes == [5, 6, 7, 8, 8, 8]
    assert tuning.inflight == 2


def test_overloads_of_calls_that_were_sent_before_the_cut_count_once() -> None:
    tuning = BatchTuner(32, 4)
    for now in (10.0, 10.1, 10.2):
        tuning.ended(32, 100, 1.0, OVERLOADED, now)
    assert (tuning.size, tuning.inflight) == (16, 2)
    tuning.ended(16, 100, 0.1, OVERLOADED, 11.0)
    assert (tuning.size, tuning.inflight) == (8, 1)


def test_the_size_is_halved_from_what_was_sent() -> None:
    tuning = BatchTuner(64, 1)
    tuning.ended(6, 100, 0.1, OVERLOADED, 10.0)
    assert (tuning.size, tuning.inflight) == (3, 1)
    for now in (20.0, 30.0, 40.0):
        tuning.ended(2, 100, 0.1, OVERLOADED, now)
    assert tuning.size == 1


def test_a_refused_call_of_one_does_not_speak_against_batches() -> None:
    tuning = BatchTuner(64, 2)
    tuning.ended(1, 100, 0.1, OVERLOADED, 10.0)
    assert (tuning.size, tuning.inflight) == (64, 2)
