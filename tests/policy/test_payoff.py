"""Whether merging pays is found out by trying, at little cost, and not from noise."""

import heapq
from random import Random

import pytest

from gateway.policy.payoff import LOAD, LONGEST_REST_S, LONGEST_S, REST_S, Payoff

RATE = 400.0
"""Calls a second of the unmerged way."""
CALLERS = 32


class Callers:
    """They come back as soon as they are served, in a time that scatters by `noise`; merging changes it."""

    def __init__(self, gain: float, noise: float, seed: int) -> None:
        self.gain, self.noise, self.random = gain, noise, Random(seed)
        self.payoff = Payoff()
        self.now, self.load, self.callers = 0.0, 0, CALLERS
        self.calls = {False: 0, True: 0}
        self.ends: list[tuple[float, float, bool]] = []

    def arrive(self) -> None:
        self.load += 1
        merged = self.payoff.merging(self.load, self.now)
        self.calls[merged] += 1
        takes = CALLERS / RATE / (1.0 + self.gain * merged)
        took = takes * self.random.uniform(1.0 - self.noise, 1.0 + self.noise)
        heapq.heappush(self.ends, (self.now + took, self.random.random(), merged))

    def run(self, seconds: float) -> float:
        """Calls a second."""
        until, served = self.now + seconds, 0
        while len(self.ends) < self.callers:
            self.arrive()
        while self.ends[0][0] < until:
            self.now, _, _ = heapq.heappop(self.ends)
            self.load -= 1
            self.payoff.done(1, self.now)
            served += 1
            self.arrive()
        return served / seconds


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("gain", "pays"), [(0.5, True), (0.2, True), (-0.05, False), (-0.2, False)])
def test_it_finds_the_better_way_and_loses_little_by_looking(gain: float, pays: bool, noise: float) -> None:
    for seed in range(3):
        callers = Callers(gain, noise, seed)
        rate = callers.run(4 * REST_S)
        assert callers.payoff.view()["merging"] is pays
        assert rate >= 0.98 * RATE * (1.0 + max(0.0, gain))
        assert callers.payoff.view()["gain"] == pytest.approx(
            gain, abs=0.05 + 0.2 * noise
        )  # answers come in bursts


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_gain(seed: int) -> None:
    callers = Callers(0.0, 0.5, seed)
    callers.run(3 * REST_S)
    assert callers.payoff.view()["merging"] is False


def test_it_follows_when_things_change() -> None:
    callers = Callers(0.3, 0.2, 1)
    callers.run(REST_S)
    assert callers.payoff.view()["merging"] is True
    callers.gain = -0.3
    callers.run(3 * REST_S)
    assert callers.payoff.view()["merging"] is False
    callers.gain = 0.3
    callers.run(3 * REST_S)
    assert callers.payoff.view()["merging"] is True


def test_what_is_found_again_and_again_is_looked_at_ever_more_seldom_until_the_load_is_another() -> None:
    callers = Callers(-0.2, 0.1, 1)
    callers.run(2 * LONGEST_REST_S)
    callers.calls = {False: 0, True: 0}
    callers.run(4 * LONGEST_REST_S)
    assert 0 < callers.calls[True] < 0.005 * callers.calls[False]
    callers.gain, callers.callers = 0.3, 3 * CALLERS
    callers.run(2 * REST_S)
    assert callers.payoff.view()["merging"] is True


def test_what_has_paid_is_not_left_for_a_little_less_than_it_took_to_begin() -> None:
    callers = Callers(0.2, 0.0, 1)
    callers.run(REST_S)
    callers.gain = 0.02
    callers.run(4 * REST_S)
    assert callers.payoff.view() == {"merging": True, "gain": pytest.approx(0.02, abs=0.005)}
    fresh = Callers(0.02, 0.0, 1)
    fresh.run(2 * REST_S)
    assert fresh.payoff.view()["merging"] is False


def test_a_few_calls_are_not_merged_to_see_what_happens() -> None:
    payoff = Payoff()
    for at in range(10_000):
        assert payoff.merging(1 + at % (LOAD - 1), at / 100) is False
        payoff.done(1, at / 100)


def test_a_load_that_goes_away_ends_the_trial() -> None:
    """A burst begins it; then single calls come, which no spell must take for a result."""
    payoff, now = Payoff(), 0.0
    for load in range(1, 2 * LOAD):
        payoff.merging(load, now)
    payoff.done(2 * LOAD - 1, now)
    merged = []
    for _ in range(2000):
        now += 0.1
        merged.append(payoff.merging(1, now))
        payoff.done(1, now + 0.01)
    assert not any(merged)
    assert payoff.view() == {"merging": False, "gain": 0.0}


def test_calls_too_slow_to_try_things_with_are_left_alone() -> None:
    payoff, now = Payoff(), 0.0
    for load in range(1, LOAD + 1):
        payoff.merging(load, now)
    for _ in range(100):
        now += LONGEST_S / 4
        payoff.done(1, now)
        assert payoff.merging(LOAD, now) is False


def test_callers_who_come_at_their_own_pace_gain_when_calls_are_faster() -> None:
    """The rate is the same either way; the time that a call takes is not."""

    def verdict(takes: dict[bool, float]) -> object:
        payoff, load, random = Payoff(), 0, Random(3)
        events: list[tuple[float, int, int]] = [(0.01 * at, at, 0) for at in range(6000)]
        heapq.heapify(events)
        while events:
            now, at, end = heapq.heappop(events)
            if end:
                load -= 1
                payoff.done(1, now)
            else:
                load += 1
                took = takes[payoff.merging(load, now)] * random.uniform(0.7, 1.3)
                heapq.heappush(events, (now + took, at, 1))
        return payoff.view()["merging"]

    assert verdict({False: 0.10, True: 0.08}) is True
    assert verdict({False: 0.08, True: 0.10}) is False
