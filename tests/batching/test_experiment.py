"""Which way serves calls fastest is found out by trying, at little cost, and not from noise."""

import heapq
from random import Random

import pytest

from gateway.batching.experiment import (
    COOLDOWN_S,
    GREEDY,
    LOAD,
    LOCKSTEP,
    LONGEST_COOLDOWN_S,
    LONGEST_S,
    OFF,
    MergeExperiment,
    MergeMode,
)

RATE = 400.0
"""Calls a second of the unmerged way."""
CALLERS = 32
BOTH: tuple[MergeMode, ...] = (OFF, LOCKSTEP)
ALL: tuple[MergeMode, ...] = (OFF, LOCKSTEP, GREEDY)


class Callers:
    """They come back as soon as they are served, in a time that scatters by `noise`; the way changes it.

    `gain` is what TOGETHER gains over SINGLE, `gains` that of every way.
    """

    def __init__(self, gain: float, noise: float, seed: int, ways: tuple[MergeMode, ...] = BOTH) -> None:
        self.noise, self.random = noise, Random(seed)
        self.gains: dict[MergeMode, float] = {OFF: 0.0, LOCKSTEP: gain, GREEDY: 0.0}
        self.ways = MergeExperiment(ways)
        self.now, self.load, self.callers = 0.0, 0, CALLERS
        self.calls: dict[MergeMode, int] = dict.fromkeys(ALL, 0)
        self.ends: list[tuple[float, float]] = []

    def arrive(self) -> None:
        self.load += 1
        way = self.ways.arrived(self.load, self.now)
        self.calls[way] += 1
        takes = CALLERS / RATE / (1.0 + self.gains[way])
        took = takes * self.random.uniform(1.0 - self.noise, 1.0 + self.noise)
        heapq.heappush(self.ends, (self.now + took, self.random.random()))

    def run(self, seconds: float) -> float:
        """Calls a second."""
        until, served = self.now + seconds, 0
        while len(self.ends) < self.callers:
            self.arrive()
        while self.ends[0][0] < until:
            self.now, _ = heapq.heappop(self.ends)
            self.load -= 1
            self.ways.done(1, self.now)
            served += 1
            self.arrive()
        return served / seconds


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("gain", "pays"), [(0.5, True), (0.2, True), (-0.05, False), (-0.2, False)])
def test_it_finds_the_better_way_and_loses_little_by_looking(gain: float, pays: bool, noise: float) -> None:
    for seed in range(3):
        callers = Callers(gain, noise, seed)
        rate = callers.run(4 * COOLDOWN_S)
        assert (callers.ways.incumbent == LOCKSTEP) is pays
        assert rate >= 0.98 * RATE * (1.0 + max(0.0, gain))
        assert callers.ways.view()["gain"] == pytest.approx(
            gain, abs=0.05 + 0.2 * noise
        )  # answers come in bursts


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_gain(seed: int) -> None:
    callers = Callers(0.0, 0.5, seed)
    callers.run(3 * COOLDOWN_S)
    assert callers.ways.incumbent == OFF


def test_it_follows_when_things_change() -> None:
    callers = Callers(0.3, 0.2, 1)
    callers.run(COOLDOWN_S)
    assert callers.ways.incumbent == LOCKSTEP
    callers.gains[LOCKSTEP] = -0.3
    callers.run(3 * COOLDOWN_S)
    assert callers.ways.incumbent == OFF
    callers.gains[LOCKSTEP] = 0.3
    callers.run(3 * COOLDOWN_S)
    assert callers.ways.incumbent == LOCKSTEP


def test_what_is_found_again_and_again_is_looked_at_ever_more_seldom_until_the_load_is_another() -> None:
    callers = Callers(-0.2, 0.1, 1)
    callers.run(2 * LONGEST_COOLDOWN_S)
    callers.calls = dict.fromkeys(ALL, 0)
    callers.run(4 * LONGEST_COOLDOWN_S)
    assert 0 < callers.calls[LOCKSTEP] < 0.005 * callers.calls[OFF]
    callers.gains[LOCKSTEP], callers.callers = 0.3, 3 * CALLERS
    callers.run(2 * COOLDOWN_S)
    assert callers.ways.incumbent == LOCKSTEP


def test_what_has_paid_is_not_left_for_a_little_less_than_it_took_to_begin() -> None:
    callers = Callers(0.2, 0.0, 1)
    callers.run(COOLDOWN_S)
    callers.gains[LOCKSTEP] = 0.02
    callers.run(4 * COOLDOWN_S)
    assert callers.ways.view() == {"merge_mode": LOCKSTEP, "gain": pytest.approx(0.02, abs=0.005)}
    fresh = Callers(0.02, 0.0, 1)
    fresh.run(2 * COOLDOWN_S)
    assert fresh.ways.incumbent == OFF


def test_a_few_calls_are_not_merged_to_see_what_happens() -> None:
    ways = MergeExperiment(BOTH)
    for at in range(10_000):
        assert ways.arrived(1 + at % (LOAD - 1), at / 100) == OFF
        ways.done(1, at / 100)


def test_a_load_that_goes_away_ends_the_trial() -> None:
    """A burst begins it; then single calls come, which no spell must take for a result."""
    ways, now = MergeExperiment(BOTH), 0.0
    for load in range(1, 2 * LOAD):
        ways.arrived(load, now)
    ways.done(2 * LOAD - 1, now)
    taken = set()
    for _ in range(2000):
        now += 0.1
        taken.add(ways.arrived(1, now))
        ways.done(1, now + 0.01)
    assert taken == {OFF}
    assert ways.view() == {"merge_mode": OFF, "gain": 0.0}


def test_calls_too_slow_to_try_things_with_are_left_alone() -> None:
    ways, now = MergeExperiment(BOTH), 0.0
    for load in range(1, LOAD + 1):
        ways.arrived(load, now)
    for _ in range(100):
        now += LONGEST_S / 4
        ways.done(1, now)
        assert ways.arrived(LOAD, now) == OFF


def test_callers_who_come_at_their_own_pace_gain_when_calls_are_faster() -> None:
    """The rate is the same either way; the time that a call takes is not."""

    def verdict(takes: dict[MergeMode, float]) -> MergeMode:
        ways, load, random = MergeExperiment(BOTH), 0, Random(3)
        events: list[tuple[float, int, int]] = [(0.01 * at, at, 0) for at in range(6000)]
        heapq.heapify(events)
        while events:
            now, at, end = heapq.heappop(events)
            if end:
                load -= 1
                ways.done(1, now)
            else:
                load += 1
                took = takes[ways.arrived(load, now)] * random.uniform(0.7, 1.3)
                heapq.heappush(events, (now + took, at, 1))
        return ways.incumbent

    assert verdict({OFF: 0.10, LOCKSTEP: 0.08}) == LOCKSTEP
    assert verdict({OFF: 0.08, LOCKSTEP: 0.10}) == OFF


@pytest.mark.parametrize(
    ("together", "at_once", "best"),
    [(0.3, 0.1, LOCKSTEP), (0.1, 0.3, GREEDY), (-0.2, 0.2, GREEDY), (-0.1, -0.1, OFF)],
)
def test_of_three_ways_the_best_is_found(together: float, at_once: float, best: MergeMode) -> None:
    callers = Callers(together, 0.3, 1, ALL)
    callers.gains[GREEDY] = at_once
    callers.run(8 * COOLDOWN_S)
    assert callers.ways.incumbent == best


def in_step(
    ways: MergeExperiment, takes: dict[MergeMode, float], seconds: float, began: float = 0.0
) -> dict[MergeMode, int]:
    """16 callers who come back as one. How often each way was taken."""
    now, taken = began, dict.fromkeys(ALL, 0)
    while now < began + seconds:
        for load in range(1, 17):
            way = ways.arrived(load, now)
        taken[way] += 1
        now += takes[way]
        for _ in range(16):
            ways.done(1, now)
    return taken


def test_callers_in_step_are_one_load_whichever_of_them_is_looked_at() -> None:
    ways = MergeExperiment(BOTH)
    takes: dict[MergeMode, float] = {OFF: 0.125, LOCKSTEP: 0.15}
    in_step(ways, takes, 2 * LONGEST_COOLDOWN_S)
    taken = in_step(ways, takes, 2 * LONGEST_COOLDOWN_S, 2 * LONGEST_COOLDOWN_S)
    assert 0 < taken[LOCKSTEP] < 0.01 * taken[OFF]


def test_a_way_that_takes_too_long_to_try_has_had_its_turn() -> None:
    callers = Callers(0.0, 0.3, 1, ALL)
    callers.gains = {OFF: -0.9375, LOCKSTEP: -0.956, GREEDY: -0.9}  # a spell takes 8, 11 and 5 s
    callers.run(6 * COOLDOWN_S)
    assert callers.ways.incumbent == GREEDY


def open_loop(
    takes: dict[MergeMode, float],
    seconds: float,
    *,
    single: dict[MergeMode, bool] | None = None,
    rate: float = 100.0,
) -> tuple[MergeExperiment, dict[MergeMode, int], float]:
    """Calls at their own pace at an engine that does one after the other, or as `single` says all at once.

    How often each way was taken, and the longest that a call took.
    """
    ways, random, free, load = MergeExperiment(BOTH), Random(5), 0.0, 0
    taken, longest, at, number = dict.fromkeys(BOTH, 0), 0.0, 0.0, 0
    events: list[tuple[float, int, float]] = []
    while at < seconds:
        at += random.expovariate(rate)
        number += 1
        while events and events[0][0] <= at:
            now, _, came = heapq.heappop(events)
            load, longest = load - 1, max(longest, now - came)
            ways.done(1, now)
        load += 1
        way = ways.arrived(load, at)
        taken[way] += 1
        if single is None or single[way]:
            free = max(free, at) + takes[way]
            heapq.heappush(events, (free, number, at))
        else:
            heapq.heappush(events, (at + takes[way], number, at))
    return ways, taken, longest


def test_a_way_that_cannot_keep_up_is_left_before_many_wait() -> None:
    """Half a second of it would leave 150 calls, or a second and a half, behind."""
    takes: dict[MergeMode, float] = {OFF: 0.02, LOCKSTEP: 0.01}
    ways, taken, longest = open_loop(takes, 20.0, single={OFF: False, LOCKSTEP: True}, rate=400.0)
    assert ways.incumbent == OFF
    assert 0 < taken[LOCKSTEP] < 100
    assert longest < 0.8


def test_a_way_that_takes_much_longer_is_left_before_its_spell_is_over() -> None:
    callers = Callers(-0.8, 0.3, 1)
    callers.run(20.0)
    assert callers.ways.incumbent == OFF
    assert 0 < callers.calls[LOCKSTEP] < 5 * CALLERS
    assert callers.ways.view()["gain"] == pytest.approx(-0.8, abs=0.1)


def test_a_way_so_fast_that_hardly_anybody_is_there_is_found_all_the_same() -> None:
    """One call after the other nearly fills the engine; merged ones leave it idle."""
    ways, _, _ = open_loop({OFF: 0.0092, LOCKSTEP: 0.010}, 120.0, single={OFF: True, LOCKSTEP: False})
    assert ways.incumbent == LOCKSTEP


@pytest.mark.parametrize("fails", [OFF, LOCKSTEP])
@pytest.mark.parametrize("first", [OFF, LOCKSTEP])
def test_a_way_is_not_taken_for_failing_fast(fails: MergeMode, first: MergeMode) -> None:
    other = LOCKSTEP if first == OFF else OFF
    ways, now = MergeExperiment((first, other)), 0.0
    for _ in range(300):
        for load in range(1, 17):
            way = ways.arrived(load, now)
        now += 0.01 if way == fails else 0.1
        for at in range(16):
            ways.done(1, now, served=way != fails or at % 2 == 0)
    assert ways.incumbent != fails


def test_of_calls_that_are_always_merged_no_gain_over_single_ones_is_told() -> None:
    callers = Callers(0.0, 0.3, 1, (LOCKSTEP, GREEDY))
    callers.gains[GREEDY] = 0.2
    assert callers.ways.now == LOCKSTEP
    callers.run(COOLDOWN_S)
    assert callers.ways.view() == {"merge_mode": GREEDY}


def test_a_hiccup_in_the_first_trial_spoils_no_verdict() -> None:
    """It falls into both of the rival's first spells, and makes a way that is a third faster look slower."""
    callers = Callers(0.3, 0.1, 1)
    callers.run(0.8)
    callers.gains[LOCKSTEP] = -0.3
    callers.run(0.9)
    callers.gains[LOCKSTEP] = 0.3
    callers.run(8.0)
    assert callers.ways.incumbent == LOCKSTEP


def test_short_bursts_of_load_are_not_spent_on_trials() -> None:
    """The rest between two of them is time under load: of four seconds a minute it takes seven minutes."""
    callers = Callers(-0.2, 0.1, 1)
    callers.run(6.0)
    assert callers.calls[LOCKSTEP] > 0
    callers.calls = dict.fromkeys(ALL, 0)
    for _ in range(6):
        while callers.ends:
            callers.now, _ = heapq.heappop(callers.ends)
            callers.load -= 1
            callers.ways.done(1, callers.now)
        callers.now += 60.0
        callers.run(4.0)
    assert callers.calls[LOCKSTEP] == 0
