"""What learning the merge mode costs: in no ten seconds after the first three much more than not merging at all."""

import functools
import itertools

import pytest
from batch_model import Engine, World

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import (
    COOLDOWN_S,
    GREEDY,
    LOCKSTEP,
    MIN_LOAD,
    OFF,
    RETRY_S,
    Learned,
    MergeExperiment,
    MergeMode,
)
from gateway.batching.profile import BatchProfile
from gateway.batching.tuner import OK, OVERLOADED, BatchTuner

DEFAULT = BatchLimits("eager", 32, 16384, 0.05, 2)
GENERATION: tuple[MergeMode, ...] = (OFF, LOCKSTEP, GREEDY)
LISTS: tuple[MergeMode, ...] = (LOCKSTEP, OFF, GREEDY)
SECONDS, SETTLED, WINDOW = 40, 3, 10


def engine(scale: float, merged: float) -> Engine:
    """Serves call after call and queues the others; a list saves 0.7 ms a call and costs `merged` times."""
    return Engine(1, 0.0007 * scale, 0.0015 * scale, merged, 1.0, queues=True)


SLOW_LISTS = Engine(64, 0.1, 0.0005, 1.0, 0.3, queues=True)
"""Serves 64 calls at once, each in the same time."""


def p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * len(times))]


@functools.cache
def direct(on: Engine, callers: int) -> tuple[float, float]:
    world = World(None, on)
    rate = world.closed(callers, SECONDS, SETTLED)
    return rate, p99([time for time, at in zip(world.times, world.ends, strict=True) if at >= SETTLED])


def worst(on: Engine, callers: int, modes: tuple[MergeMode, ...]) -> tuple[float, float, World]:
    """The least throughput and the greatest p99 of any ten seconds, relative to direct."""
    world = World(DEFAULT, on, modes)
    world.closed(callers, SECONDS)
    rate, tail = direct(on, callers)
    rates, tails = [], []
    for half in range(2 * SETTLED, 2 * (SECONDS - WINDOW) + 1):
        times = [time for time, at in zip(world.times, world.ends, strict=True) if half / 2 <= at < half / 2 + WINDOW]
        rates.append(len(times) / WINDOW / rate)
        tails.append(p99(times) / tail)
    return min(rates), max(tails), world


@pytest.mark.parametrize(
    ("on", "callers"),
    [
        (engine(0.5, 1.0), 64),
        (engine(1.0, 1.0), 64),
        (engine(2.0, 1.0), 64),
        (engine(1.0, 1.0), 16),
        (engine(1.0, 1.0), 128),
        (engine(1.0, 1.3), 8),
        (engine(0.5, 1.3), 64),
        (engine(1.0, 1.3), 64),
        (engine(2.0, 1.3), 64),
        (engine(0.5, 1.8), 64),
        (SLOW_LISTS, 64),
        (SLOW_LISTS, 32),
    ],
)
def test_learning_costs_little_in_any_ten_seconds(on: Engine, callers: int) -> None:
    rate, tail, _ = worst(on, callers, GENERATION)
    assert rate >= 0.95
    assert tail <= 1.2


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize(("merged", "tail_at_most"), [(1.8, 1.3), (3.0, 1.8)])
def test_a_mode_that_is_far_worse_leaves_after_a_moment(scale: float, merged: float, tail_at_most: float) -> None:
    rate, tail, world = worst(engine(scale, merged), 64, GENERATION)
    assert rate >= 0.95
    assert tail <= tail_at_most
    assert world.profile.view()["merge_mode"] == OFF


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_what_pays_is_found_in_the_first_half_minute(scale: float) -> None:
    _, _, world = worst(engine(scale, 1.0), 64, GENERATION)
    assert world.profile.view()["merge_mode"] != OFF
    late = [at for at in world.ends if at >= 30]
    assert len(late) / (SECONDS - 30) >= 1.3 * direct(engine(scale, 1.0), 64)[0]


@pytest.mark.parametrize("each", [0.0003, 0.0015])
def test_where_lists_are_merged_from_the_start_nothing_falls_below_direct(each: float) -> None:
    on = Engine(1, 0.002, each, 1.0, 1.0, queues=True)
    rate, tail, _ = worst(on, 64, LISTS)
    assert rate >= 1.0
    assert tail <= 1.0


def test_where_lists_lose_they_are_given_up_within_ten_seconds() -> None:
    _, _, world = worst(engine(1.0, 2.0), 64, LISTS)
    assert world.profile.view()["merge_mode"] == OFF
    settled = [at for at in world.ends if 10 <= at < 30]
    assert len(settled) / 20 >= 0.95 * direct(engine(1.0, 2.0), 64)[0]


def test_what_was_learned_is_used_from_the_first_call() -> None:
    on = engine(1.0, 1.0)
    _, _, world = worst(on, 64, GENERATION)
    learned = world.profile.learned()
    assert learned is not None
    again = World(DEFAULT, on, GENERATION)
    again.profile = BatchProfile("engine", DEFAULT, GENERATION, learned)
    assert again.batcher is not None
    again.batcher = type(again.batcher)(DEFAULT, again.profile.tuner)
    again.closed(64, COOLDOWN_S / 2)
    settled = [at for at in again.ends if at >= 1.0]
    assert len(settled) / (COOLDOWN_S / 2 - 1.0) >= 1.3 * direct(on, 64)[0]
    assert again.profile.learned() == learned  # and it is not tried again at once


def test_nothing_is_learned_before_a_verdict() -> None:
    experiment = MergeExperiment(GENERATION)
    assert experiment.learned() is None
    assert MergeExperiment(GENERATION, Learned(LOCKSTEP, 0.4, 64.0, 120.0)).learned() == Learned(
        LOCKSTEP, 0.4, 64.0, 120.0
    )


@pytest.mark.parametrize("cooldown", [-1.0, 0.0, 5.0, 1e9])
def test_a_learned_cooldown_stays_within_its_bounds(cooldown: float) -> None:
    found = MergeExperiment(GENERATION, Learned(GREEDY, 0.1, 10.0, cooldown)).learned()
    assert found is not None
    assert COOLDOWN_S <= found.cooldown <= 480.0


def test_a_learned_mode_that_is_no_longer_one_is_ignored() -> None:
    experiment = MergeExperiment((LOCKSTEP, GREEDY), Learned(OFF, 0.0, 10.0, 30.0))
    assert experiment.incumbent == LOCKSTEP
    assert experiment.learned() is None


def test_a_learned_mode_is_tried_again_after_its_cooldown() -> None:
    experiment = MergeExperiment((OFF, LOCKSTEP), Learned(LOCKSTEP, 0.4, 2.0 * MIN_LOAD, COOLDOWN_S))
    now, used = 0.0, set()
    while now < COOLDOWN_S + RETRY_S:
        for load in range(1, 17):
            used.add(experiment.arrived(load, now))
        now += 0.05
        for _ in range(16):
            experiment.done(1, now, 0.05)
        if now < COOLDOWN_S:
            assert used == {LOCKSTEP}
    assert used == {LOCKSTEP, OFF}


def test_a_challenger_that_fails_calls_is_stopped_early() -> None:
    experiment, now, trials = MergeExperiment((OFF, LOCKSTEP)), 0.0, 0
    for _ in range(100):
        for load in range(1, 17):
            mode = experiment.arrived(load, now)
        trials += mode == LOCKSTEP
        now += 0.1
        for _ in range(16):
            experiment.done(1, now, 0.1, served=mode == OFF)
    assert 0 < trials <= 6
    assert experiment.incumbent == OFF


def test_narrowing_lets_ever_fewer_calls_pass_and_ends_in_lockstep() -> None:
    tuner, seen = BatchTuner(32, 2), []
    tuner.set_lockstep(True)
    tuner.narrow(64)
    assert (tuner.inflight, tuner.waits_for_returns) == (64, False)
    while tuner.ramping:
        tuner.ended(1, 10, 0.1, OK, 1.0)
        seen.append(tuner.inflight)
    assert seen == sorted(seen, reverse=True)
    assert all(after - before in (0, -1) for before, after in itertools.pairwise(seen))
    assert (tuner.inflight, tuner.waits_for_returns) == (1, True)


def test_widening_lets_ever_more_calls_pass() -> None:
    tuner = BatchTuner(32, 2)
    tuner.widen(8)
    steps = 0
    while tuner.widening:
        tuner.ended(1, 10, 0.1, OK, 1.0)
        steps += 1
    assert (tuner.inflight, steps) == (8, 6)


def test_an_overload_ends_a_ramp() -> None:
    tuner = BatchTuner(32, 4)
    tuner.narrow(64)
    tuner.ended(8, 80, 0.1, OVERLOADED, 1.0)
    assert (tuner.ramping, tuner.inflight, tuner.size) == (False, 2, 4)


def test_few_callers_need_no_ramp() -> None:
    tuner = BatchTuner(32, 4)
    tuner.narrow(4)
    assert (tuner.ramping, tuner.inflight) == (False, 4)
    tuner.widen(3)
    assert not tuner.ramping


def test_when_merging_ends_the_calls_that_wait_leave_singly() -> None:
    tuner = BatchTuner(32, 2)
    tuner.narrow(64)
    tuner.release(40)
    assert (tuner.inflight, tuner.size, tuner.ramping, tuner.lockstep) == (40, 1, False, False)
    tuner.narrow(50)
    assert (tuner.inflight, tuner.size) == (50, 32)
