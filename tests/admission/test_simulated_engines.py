"""Admission in front of simulated engines, beside direct calls and a fixed limit."""

from random import Random

import pytest
from doubles.engine_simulator import A100_8B, H100X4_70B, EngineProfile, SimulatedCall
from simulated_admission import run

SMALL_CACHE = EngineProfile(4160, 0.004, 0.0002, 2e-5, 1e-7, 64, 2048)
"""A cache of 4,160 tokens, as a tiny model on one core has it; the times of a step are fitted by eye."""
DIRECT = 10**6


def traffic(
    count: int, rate: float, prompt: tuple[float, float], output: tuple[float, float], cap: int, longest: int
) -> list[SimulatedCall]:
    """Calls at random times; their lengths are lognormal."""
    rng, now, calls = Random(1), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        tokens = min(longest, max(1, int(rng.lognormvariate(*prompt))))
        answer = min(cap, max(1, int(rng.lognormvariate(*output))))
        calls.append(SimulatedCall(tokens, answer, now, cap=cap))
    return calls


def small(count: int = 900) -> list[SimulatedCall]:
    return traffic(count, 50.0, (5.0, 0.8), (4.0, 0.6), 256, 2000)


def large(count: int = 1000) -> list[SimulatedCall]:
    """2,000 calls a minute."""
    return traffic(count, 33.3, (7.0, 0.8), (5.5, 0.7), 1024, 16000)


def test_a_small_cache_is_filled_almost_without_preemptions():
    direct, auto = run(SMALL_CACHE, small(), DIRECT), run(SMALL_CACHE, small(), None)
    assert direct.preemptions > 100
    assert auto.preemptions <= 5
    assert auto.longest_gap < 0.5 * direct.longest_gap
    assert auto.tokens_s > 0.92 * direct.tokens_s


@pytest.mark.parametrize("profile", [A100_8B, H100X4_70B], ids=["8B on A100", "70B on 4 H100"])
def test_a_large_engine_works_as_under_the_best_fixed_limit(profile: EngineProfile):
    best = max(run(profile, large(), limit).tokens_s for limit in (128, 256))
    auto = run(profile, large(), None)
    assert auto.preemptions == 0
    assert auto.tokens_s > 0.95 * best


def test_a_server_that_tells_nothing_is_used_as_under_a_fixed_limit():
    best = max(run(A100_8B, large(), limit).tokens_s for limit in (128, 256))
    assert run(A100_8B, large(), None, tells=False).tokens_s > 0.8 * best


def test_outputs_ten_times_as_long_as_ever_seen_cause_few_preemptions():
    calls = traffic(900, 20.0, (4.0, 0.3), (2.5, 0.3), 1000, 200)
    for call in calls[450:]:
        call.output *= 10
    direct = run(SMALL_CACHE, calls, DIRECT).preemptions
    again = [SimulatedCall(call.prompt, call.output, call.arrived, cap=1000) for call in calls]
    assert run(SMALL_CACHE, again, None).preemptions < 0.2 * direct


def test_a_cache_of_which_somebody_takes_half_is_not_overfilled():
    def half_taken(now: float, engine: object) -> None:
        setattr(engine, "taken", 2080 if now > 10.0 else 0)  # noqa: B010

    direct = run(SMALL_CACHE, small(), DIRECT, during=half_taken)
    auto = run(SMALL_CACHE, small(), None, during=half_taken)
    assert auto.preemptions < 0.15 * direct.preemptions


def test_nothing_is_left_in_the_ledger_at_the_end():
    queue = run(SMALL_CACHE, small(300), None).queue
    assert queue.admission is not None
    assert (len(queue.admission.ledger), queue.admission.ledger._most, queue.in_flight) == (0, 0, 0)
