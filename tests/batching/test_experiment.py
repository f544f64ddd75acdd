"""The experiment finds the mode that serves calls fastest, at little cost and not from noise."""

import heapq
from random import Random

import pytest

from gateway.batching.experiment import (
    COOLDOWN_S,
    GREEDY,
    LOCKSTEP,
    MAX_COOLDOWN_S,
    MAX_WINDOW_S,
    MIN_LOAD,
    OFF,
    RETRY_S,
    MergeExperiment,
    MergeMode,
)

RATE = 400.0
"""Calls a second with `off`."""
CALLERS = 32
BOTH: tuple[MergeMode, ...] = (OFF, LOCKSTEP)
ALL: tuple[MergeMode, ...] = (OFF, LOCKSTEP, GREEDY)


class Callers:
    """Closed loop: callers return as soon as they are served, after a time that varies by `noise` and mode.

    `gain` is that of LOCKSTEP over OFF, `gains` those of all modes.
    """

    def __init__(self, gain: float, noise: float, seed: int, modes: tuple[MergeMode, ...] = BOTH) -> None:
        self.noise, self.random = noise, Random(seed)
        self.gains: dict[MergeMode, float] = {OFF: 0.0, LOCKSTEP: gain, GREEDY: 0.0}
        self.experiment = MergeExperiment(modes)
        self.now, self.load, self.callers = 0.0, 0, CALLERS
        self.calls: dict[MergeMode, int] = dict.fromkeys(ALL, 0)
        self.ends: list[tuple[float, float]] = []

    def arrive(self) -> None:
        self.load += 1
        mode = self.experiment.arrived(self.load, self.now)
        self.calls[mode] += 1
        takes = CALLERS / RATE / (1.0 + self.gains[mode])
        took = takes * self.random.uniform(1.0 - self.noise, 1.0 + self.noise)
        heapq.heappush(self.ends, (self.now + took, self.random.random()))

    def run(self, seconds: float) -> float:
        """Run for `seconds` and return the calls a second."""
        until, served = self.now + seconds, 0
        while len(self.ends) < self.callers:
            self.arrive()
        while self.ends[0][0] < until:
            self.now, _ = heapq.heappop(self.ends)
            self.load -= 1
            self.experiment.done(1, self.now)
            served += 1
            self.arrive()
        return served / seconds


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("gain", "pays"), [(0.5, True), (0.2, True), (-0.05, False), (-0.2, False)])
def test_it_finds_the_better_mode_at_little_cost(gain: float, pays: bool, noise: float) -> None:
    for seed in range(3):
        callers = Callers(gain, noise, seed)
        rate = callers.run(4 * COOLDOWN_S)
        assert (callers.experiment.incumbent == LOCKSTEP) is pays
        assert rate >= 0.98 * RATE * (1.0 + max(0.0, gain))
        assert callers.experiment.view()["gain"] == pytest.approx(
            gain, abs=0.05 + 0.2 * noise
        )  # answers come in bursts


@pytest.mark.parametrize(("lockstep", "greedy"), [(-0.16, -0.2), (-0.16, -0.1), (-0.05, -0.05), (-0.16, 0.0)])
@pytest.mark.parametrize("seed", range(3))
def test_merging_that_loses_from_the_first_call_on_ends_within_seconds(
    lockstep: float, greedy: float, seed: int
) -> None:
    """Embeddings begin merged: until `off` has been tried, they may be slower than without."""
    callers = Callers(lockstep, 0.3, seed, (LOCKSTEP, GREEDY, OFF))
    callers.gains[GREEDY] = greedy
    callers.run(10.0)
    assert callers.experiment.incumbent == OFF
    assert callers.run(60.0) >= 0.97 * RATE


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_gain(seed: int) -> None:
    callers = Callers(0.0, 0.5, seed)
    callers.run(3 * COOLDOWN_S)
    assert callers.experiment.incumbent == OFF


def test_it_follows_a_change() -> None:
    callers = Callers(0.3, 0.2, 1)
    callers.run(COOLDOWN_S)
    assert callers.experiment.incumbent == LOCKSTEP
    callers.gains[LOCKSTEP] = -0.3
    callers.run(3 * COOLDOWN_S)
    assert callers.experiment.incumbent == OFF
    callers.gains[LOCKSTEP] = 0.3
    callers.run(3 * COOLDOWN_S)
    assert callers.experiment.incumbent == LOCKSTEP


def test_a_confirmed_incumbent_is_tested_ever_more_rarely_until_the_load_changes() -> None:
    callers = Callers(-0.2, 0.1, 1)
    callers.run(2 * MAX_COOLDOWN_S)
    callers.calls = dict.fromkeys(ALL, 0)
    callers.run(4 * MAX_COOLDOWN_S)
    assert 0 < callers.calls[LOCKSTEP] < 0.005 * callers.calls[OFF]
    callers.gains[LOCKSTEP], callers.callers = 0.3, 3 * CALLERS
    callers.run(2 * COOLDOWN_S)
    assert callers.experiment.incumbent == LOCKSTEP


def test_merging_that_has_paid_is_not_dropped_for_a_gain_just_below_the_threshold() -> None:
    callers = Callers(0.2, 0.0, 1)
    callers.run(COOLDOWN_S)
    callers.gains[LOCKSTEP] = 0.02
    callers.run(4 * COOLDOWN_S)
    assert callers.experiment.view() == {"merge_mode": LOCKSTEP, "gain": pytest.approx(0.02, abs=0.005)}
    fresh = Callers(0.02, 0.0, 1)
    fresh.run(2 * COOLDOWN_S)
    assert fresh.experiment.incumbent == OFF


def test_without_load_no_experiment_runs() -> None:
    experiment = MergeExperiment(BOTH)
    for at in range(10_000):
        assert experiment.arrived(1 + at % (MIN_LOAD - 1), at / 100) == OFF
        experiment.done(1, at / 100)


def test_a_load_that_goes_away_ends_the_experiment() -> None:
    """A burst starts it; then single calls arrive, which must not count as a window."""
    experiment, now = MergeExperiment(BOTH), 0.0
    for load in range(1, 2 * MIN_LOAD):
        experiment.arrived(load, now)
    experiment.done(2 * MIN_LOAD - 1, now)
    used = set()
    for _ in range(2000):
        now += 0.1
        used.add(experiment.arrived(1, now))
        experiment.done(1, now + 0.01)
    assert used == {OFF}
    assert experiment.view() == {"merge_mode": OFF, "gain": 0.0}


def test_calls_too_slow_for_an_experiment_use_the_incumbent() -> None:
    experiment, now = MergeExperiment(BOTH), 0.0
    for load in range(1, MIN_LOAD + 1):
        experiment.arrived(load, now)
    for _ in range(100):
        now += MAX_WINDOW_S / 4
        experiment.done(1, now)
        assert experiment.arrived(MIN_LOAD, now) == OFF


def test_in_an_open_loop_the_faster_mode_wins() -> None:
    """The throughput is the same in both modes; the latency is not."""

    def verdict(takes: dict[MergeMode, float]) -> MergeMode:
        experiment, load, random = MergeExperiment(BOTH), 0, Random(3)
        events: list[tuple[float, int, int]] = [(0.01 * at, at, 0) for at in range(6000)]
        heapq.heapify(events)
        while events:
            now, at, end = heapq.heappop(events)
            if end:
                load -= 1
                experiment.done(1, now)
            else:
                load += 1
                took = takes[experiment.arrived(load, now)] * random.uniform(0.7, 1.3)
                heapq.heappush(events, (now + took, at, 1))
        return experiment.incumbent

    assert verdict({OFF: 0.10, LOCKSTEP: 0.08}) == LOCKSTEP
    assert verdict({OFF: 0.08, LOCKSTEP: 0.10}) == OFF


@pytest.mark.parametrize(
    ("lockstep", "greedy", "best"),
    [(0.3, 0.1, LOCKSTEP), (0.1, 0.3, GREEDY), (-0.2, 0.2, GREEDY), (-0.1, -0.1, OFF)],
)
def test_the_best_of_three_modes_is_found(lockstep: float, greedy: float, best: MergeMode) -> None:
    callers = Callers(lockstep, 0.3, 1, ALL)
    callers.gains[GREEDY] = greedy
    callers.run(8 * COOLDOWN_S)
    assert callers.experiment.incumbent == best


def in_step(
    experiment: MergeExperiment, takes: dict[MergeMode, float], seconds: float, began: float = 0.0
) -> dict[MergeMode, int]:
    """16 callers that return lockstep. Returns how often each mode was used."""
    now, used = began, dict.fromkeys(ALL, 0)
    while now < began + seconds:
        for load in range(1, 17):
            mode = experiment.arrived(load, now)
        used[mode] += 1
        now += takes[mode]
        for _ in range(16):
            experiment.done(1, now)
    return used


def test_callers_in_step_are_a_steady_load() -> None:
    experiment = MergeExperiment(BOTH)
    takes: dict[MergeMode, float] = {OFF: 0.125, LOCKSTEP: 0.15}
    in_step(experiment, takes, 2 * MAX_COOLDOWN_S)
    used = in_step(experiment, takes, 2 * MAX_COOLDOWN_S, 2 * MAX_COOLDOWN_S)
    assert 0 < used[LOCKSTEP] < 0.01 * used[OFF]


def test_a_mode_whose_window_takes_too_long_counts_as_tested() -> None:
    callers = Callers(0.0, 0.3, 1, ALL)
    callers.gains = {OFF: -0.9375, LOCKSTEP: -0.956, GREEDY: -0.9}  # a window takes 8, 11 and 5 s
    callers.run(6 * COOLDOWN_S)
    assert callers.experiment.incumbent == GREEDY


def open_loop(
    takes: dict[MergeMode, float],
    seconds: float,
    *,
    single: dict[MergeMode, bool] | None = None,
    rate: float = 100.0,
) -> tuple[MergeExperiment, dict[MergeMode, int], float]:
    """Open loop: an engine with a single slot, or one that runs all calls at once where `single` is False.

    Returns the experiment, how often each mode was used, and the longest latency.
    """
    experiment, random, free, load = MergeExperiment(BOTH), Random(5), 0.0, 0
    used, longest, at, number = dict.fromkeys(BOTH, 0), 0.0, 0.0, 0
    events: list[tuple[float, int, float]] = []
    while at < seconds:
        at += random.expovariate(rate)
        number += 1
        while events and events[0][0] <= at:
            now, _, came = heapq.heappop(events)
            load, longest = load - 1, max(longest, now - came)
            experiment.done(1, now)
        load += 1
        mode = experiment.arrived(load, at)
        used[mode] += 1
        if single is None or single[mode]:
            free = max(free, at) + takes[mode]
            heapq.heappush(events, (free, number, at))
        else:
            heapq.heappush(events, (at + takes[mode], number, at))
    return experiment, used, longest


def test_a_mode_that_builds_a_backlog_is_stopped_early() -> None:
    """Half a second of it would build a backlog of 150 calls, or a second and a half."""
    takes: dict[MergeMode, float] = {OFF: 0.02, LOCKSTEP: 0.01}
    experiment, used, longest = open_loop(takes, 20.0, single={OFF: False, LOCKSTEP: True}, rate=400.0)
    assert experiment.incumbent == OFF
    assert 0 < used[LOCKSTEP] < 100
    assert longest < 0.8


def test_a_mode_that_is_much_slower_is_stopped_early() -> None:
    callers = Callers(-0.8, 0.3, 1)
    callers.run(20.0)
    assert callers.experiment.incumbent == OFF
    assert 0 < callers.calls[LOCKSTEP] < 5 * CALLERS
    assert callers.experiment.view()["gain"] == pytest.approx(-0.8, abs=0.1)


def test_a_mode_so_fast_that_the_load_drops_is_still_found() -> None:
    """Single calls nearly saturate the engine; merged calls leave it idle."""
    experiment, _, _ = open_loop({OFF: 0.0092, LOCKSTEP: 0.010}, 120.0, single={OFF: True, LOCKSTEP: False})
    assert experiment.incumbent == LOCKSTEP


@pytest.mark.parametrize("fails", [OFF, LOCKSTEP])
@pytest.mark.parametrize("first", [OFF, LOCKSTEP])
def test_a_mode_does_not_win_by_failing_fast(fails: MergeMode, first: MergeMode) -> None:
    other = LOCKSTEP if first == OFF else OFF
    experiment, now = MergeExperiment((first, other)), 0.0
    for _ in range(300):
        for load in range(1, 17):
            mode = experiment.arrived(load, now)
        now += 0.01 if mode == fails else 0.1
        for at in range(16):
            experiment.done(1, now, served=mode != fails or at % 2 == 0)
    assert experiment.incumbent != fails


def test_without_off_no_gain_is_reported() -> None:
    callers = Callers(0.0, 0.3, 1, (LOCKSTEP, GREEDY))
    callers.gains[GREEDY] = 0.2
    assert callers.experiment.current == LOCKSTEP
    callers.run(COOLDOWN_S)
    assert callers.experiment.view() == {"merge_mode": GREEDY}


def test_a_hiccup_in_the_first_experiment_does_not_spoil_the_verdict() -> None:
    """It hits both first windows of the challenger, and makes a mode that is a third faster seem slower."""
    callers = Callers(0.3, 0.1, 1)
    callers.run(0.8)
    callers.gains[LOCKSTEP] = -0.3
    callers.run(0.9)
    callers.gains[LOCKSTEP] = 0.3
    callers.run(RETRY_S + 8.0)
    assert callers.experiment.incumbent == LOCKSTEP


def test_short_bursts_of_load_are_not_spent_on_experiments() -> None:
    """The cooldown counts time under load only: at four seconds a minute it lasts seven minutes."""
    callers = Callers(-0.2, 0.1, 1)
    callers.run(RETRY_S + 7.0)
    assert callers.calls[LOCKSTEP] > 0
    callers.calls = dict.fromkeys(ALL, 0)
    for _ in range(6):
        while callers.ends:
            callers.now, _ = heapq.heappop(callers.ends)
            callers.load -= 1
            callers.experiment.done(1, callers.now)
        callers.now += 60.0
        callers.run(4.0)
    assert callers.calls[LOCKSTEP] == 0
