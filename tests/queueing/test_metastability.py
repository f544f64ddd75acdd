"""Metastable failures: once the trigger is over the system must recover, and each defence must matter.

The scene of N. Bronson et al., "Metastable Failures in Distributed Systems" (HotOS 2021), in small: 80 %
load, then for 20 s four times as many callers, an engine that stands still or is five times as slow, or one
of two engines dead.
"""

from collections.abc import Callable

import pytest
from overload_model import Defences, World

SLOTS, LOAD = 16, 0.8
BEGIN, END, OVER = 30.0, 50.0, 160.0
SOON = END + 10.0
LATE = END + 60.0
LAST = OVER - 30.0
"""Later callers may not have their answer yet when a run ends."""

UNBOUNDED = float("inf")
DEFAULT_BOUND_S = 1024 / SLOTS

Trigger = Callable[[World], None]


def spike(world: World) -> None:
    """Four times as many callers."""
    usual = world.rate

    def arrive(rate: float) -> None:
        world.rate = rate

    world.at(BEGIN, lambda: arrive(4.0 * usual))
    world.at(END, lambda: arrive(usual))


def freeze(world: World) -> None:
    """An engine that accepts calls and makes no progress."""

    def stand_still() -> None:
        world.engines[0].frozen_until = world.now + END - BEGIN

    world.at(BEGIN, stand_still)


def slow(world: World) -> None:
    """An engine that takes five times as long for new calls."""

    def pace(slowness: float) -> None:
        world.engines[0].slowness = slowness

    world.at(BEGIN, lambda: pace(5.0))
    world.at(END, lambda: pace(1.0))


def after(trigger: Trigger, seed: int, defences: Defences) -> World:
    """The world when it is over."""
    world = World(seed, LOAD, 1, SLOTS, defences)
    trigger(world)
    world.run(OVER)
    return world


seeds = pytest.mark.parametrize("seed", [1, 2])
triggers = pytest.mark.parametrize("trigger", [spike, freeze, slow])


@pytest.mark.parametrize("timeout_known", [True, False])
@seeds
@triggers
def test_it_recovers_within_ten_seconds(trigger: Trigger, seed: int, timeout_known: bool):
    world = after(trigger, seed, Defences(timeout_known=timeout_known))
    assert min(world.goodput(BEGIN, END)) < 0.6
    assert min(world.goodput(SOON, LAST)) >= 0.99
    assert world.attempts <= 1.1 * world.asked.total()


@seeds
@pytest.mark.parametrize(("slots", "service_s"), [(8, 0.1), (16, 1.0), (64, 3.0)])
def test_with_known_timeouts_no_queue_bound_is_needed(slots: int, service_s: float, seed: int):
    world = World(seed, LOAD, 1, slots, Defences(queue_s=UNBOUNDED), service_s)
    spike(world)
    world.run(OVER)
    assert min(world.goodput(BEGIN, END)) < 0.6
    assert min(world.goodput(SOON, LAST)) >= 0.99


@seeds
def test_but_the_mean_service_time_must_be_steady(seed: int):
    world = after(spike, seed, Defences(queue_s=UNBOUNDED, steady=False))
    assert min(world.goodput(SOON, LATE)) < 0.95


@seeds
def test_with_unknown_timeouts_a_bounded_queue_recovers(seed: int):
    world = after(spike, seed, Defences(queue_s=UNBOUNDED, timeout_known=False))
    assert min(world.goodput(SOON, LATE)) < 0.97
    assert min(world.goodput(LATE, LAST)) >= 0.99


@seeds
@triggers
def test_without_the_abort_on_disconnect_a_long_queue_never_recovers(trigger: Trigger, seed: int):
    lasting = after(trigger, seed, Defences(queue_s=DEFAULT_BOUND_S, timeout_known=False, abort=False))
    assert max(lasting.goodput(SOON, LAST)) < 0.1
    passing = after(trigger, seed, Defences(queue_s=DEFAULT_BOUND_S, timeout_known=False))
    assert min(passing.goodput(LATE, LAST)) >= 0.99


@triggers
def test_without_both_it_never_recovers(trigger: Trigger):
    world = after(trigger, 1, Defences(queue_s=UNBOUNDED, timeout_known=False, abort=False))
    assert max(world.goodput(SOON, LAST)) < 0.1


# One of two engines dies, and the other can just carry the load; later the dead engine comes back.

DEAD, FOUND_OUT, BACK = 30.0, 40.0, 90.0


def after_a_death(seed: int, defences: Defences) -> World:
    """The world when it is over."""
    world = World(seed, LOAD / 2, 2, SLOTS // 2, defences)
    victim = world.engines[0]

    def revive() -> None:
        victim.up = True

    world.at(DEAD, lambda: world.kill(victim))
    world.at(BACK, revive)
    world.run(OVER)
    return world


@seeds
def test_one_of_two_engines_may_die_and_come_back(seed: int):
    world = after_a_death(seed, Defences())
    assert min(world.goodput(DEAD, LAST)) >= 0.95
    assert min(world.goodput(FOUND_OUT, LAST)) >= 0.99
    assert world.attempts <= 1.1 * world.asked.total()


@seeds
def test_without_the_breaker_a_dead_engine_draws_the_calls(seed: int):
    world = after_a_death(seed, Defences(breaker=False))
    assert max(world.goodput(FOUND_OUT, BACK)) < 0.5
    assert world.attempts <= 1.1 * world.asked.total()


@seeds
def test_without_the_budget_too_it_multiplies_them(seed: int):
    world = after_a_death(seed, Defences(breaker=False, budget=False))
    assert world.attempts > 1.2 * world.asked.total()
