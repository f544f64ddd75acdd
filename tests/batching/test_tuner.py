"""What the tuner learns: the cost of calls, the size of batches and how many may be in flight."""

from random import Random

import pytest

from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchTuner


def test_the_cost_is_zero_before_the_first_call() -> None:
    tuner = BatchTuner(32, 2)
    assert tuner.cost(1000) == 0.0
    assert tuner.view() == {"size": 32, "inflight": 2, "call_ms": 0.0, "token_us": 0.0}


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_cost_of_a_call_and_of_a_token(noise: float) -> None:
    tuner, random = BatchTuner(32, 2), Random(1)
    for _ in range(500):
        tokens = random.randint(1, 2000)
        seconds = (0.020 + 50e-6 * tokens) * random.uniform(1 - noise, 1 + noise)
        tuner.ended(4, tokens, seconds, OK, 0.0)
    assert tuner.cost(0) == pytest.approx(0.020, rel=0.001 + 2 * noise)
    assert tuner.cost(10_000) == pytest.approx(0.520, rel=0.001 + noise)
    assert tuner.view()["token_us"] == pytest.approx(50, rel=0.001 + noise)


def test_old_calls_are_forgotten() -> None:
    tuner = BatchTuner(32, 2)
    for seconds in [1.0] * 1000 + [0.1] * 1000:
        for tokens in (10, 100):
            tuner.ended(1, tokens, seconds + 0.001 * tokens, OK, 0.0)
    assert tuner.cost(100) == pytest.approx(0.2, rel=0.01)


def test_calls_of_equal_size_give_the_cost_of_that_size() -> None:
    tuner = BatchTuner(32, 2)
    for at in range(100):
        tuner.ended(1, 50, 0.03 + 0.001 * (at % 2), OK, 0.0)
    assert tuner.cost(50) == pytest.approx(0.0305, rel=0.01)
    assert tuner.cost(5000) == tuner.cost(50)


@pytest.mark.parametrize(
    "calls",
    [
        [(10, 0.5), (1000, 0.1)],  # larger calls are faster
        [(10, 0.001), (1000, 0.5), (500, 0.1)],  # a fit that crosses zero
        [(1, 0.0), (2, 0.0)],
    ],
)
def test_no_part_of_the_cost_is_below_zero(calls: list[tuple[int, float]]) -> None:
    tuner = BatchTuner(32, 2)
    for tokens, seconds in calls:
        tuner.ended(1, tokens, seconds, OK, 0.0)
        assert 0.0 <= tuner.cost(1) <= tuner.cost(2) <= tuner.cost(10_000)


def test_failures_do_not_change_the_cost() -> None:
    tuner = BatchTuner(32, 2)
    for outcome in (FAILED, OVERLOADED):
        tuner.ended(8, 100, 5.0, outcome, 10.0)
    assert tuner.cost(100) == 0.0


def test_an_overload_halves_the_limits_and_successes_restore_them() -> None:
    tuner = BatchTuner(8, 2)
    tuner.ended(8, 100, 0.1, OVERLOADED, 10.0)
    assert (tuner.size, tuner.inflight) == (4, 1)
    sizes = []
    for at in range(6):
        tuner.set_lockstep(False)
        tuner.ended(1, 10, 0.1, OK, 11.0 + at)
        sizes.append(tuner.size)
    tuner.set_lockstep(False)
    assert sizes == [5, 6, 7, 8, 8, 8]
    assert tuner.inflight == 2


def test_overloads_of_calls_sent_before_the_cut_count_once() -> None:
    tuner = BatchTuner(32, 4)
    for now in (10.0, 10.1, 10.2):
        tuner.ended(32, 100, 1.0, OVERLOADED, now)
    assert (tuner.size, tuner.inflight) == (16, 2)
    tuner.ended(16, 100, 0.1, OVERLOADED, 11.0)
    assert (tuner.size, tuner.inflight) == (8, 1)


def test_the_size_is_halved_from_what_was_sent() -> None:
    tuner = BatchTuner(64, 1)
    tuner.ended(6, 100, 0.1, OVERLOADED, 10.0)
    assert (tuner.size, tuner.inflight) == (3, 1)
    for now in (20.0, 30.0, 40.0):
        tuner.ended(2, 100, 0.1, OVERLOADED, now)
    assert tuner.size == 1


def test_a_rejected_single_call_does_not_shrink_batches() -> None:
    tuner = BatchTuner(64, 2)
    tuner.ended(1, 100, 0.1, OVERLOADED, 10.0)
    assert (tuner.size, tuner.inflight) == (64, 2)
