"""Keys that share a queue: a flood, or huge calls, of one key leave another key's wait bounded."""

import heapq
import math
from itertools import count
from random import Random
from typing import Any

import pytest

from gateway.core.caller import INTERACTIVE
from gateway.core.errors import Rejection
from gateway.queueing.upstream_queue import UpstreamQueue, Waiter
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, WaitingRoom

PERMITS = 8
S_PER_TOKEN = 0.001
END, WARM = 140.0, 40.0
"""Seconds of a run, and of its warm-up, whose calls do not count."""


class Tenant:
    """Sends `rate` calls a second of `tokens` each; a token occupies a slot for about `S_PER_TOKEN`."""

    def __init__(self, name: str, rate: float, tokens: int) -> None:
        self.name, self.rate, self.tokens = name, rate, tokens
        self.waits: list[float] = []
        self.shed = 0

    def waited(self, part: float) -> float:
        """The quantile `part` of the waits in seconds; a shed call counts as an endless wait."""
        waits = sorted(self.waits) + [math.inf] * self.shed
        return waits[int(part * (len(waits) - 1))]


def side_by_side(seed: int, *tenants: Tenant, key: str | None = None, count_tokens: bool = True) -> None:
    """Run the tenants. The defences are off with a shared `key`, or with calls counted instead of tokens."""
    random, number = Random(seed), count()
    room, queue = WaitingRoom(256), UpstreamQueue("local", PERMITS)
    events: list[tuple[float, int, Tenant, Waiter | None]] = []
    owner: dict[Waiter, Tenant] = {}

    def at(when: float, tenant: Tenant, over: Waiter | None) -> None:
        heapq.heappush(events, (when, next(number), tenant, over))

    def go(waiter: Waiter, now: float) -> None:
        tenant = owner[waiter]
        if waiter.arrived > WARM:
            tenant.waits.append(now - waiter.arrived)
        at(now + random.expovariate(1.0 / (tenant.tokens * S_PER_TOKEN)), tenant, waiter)

    for tenant in tenants:
        at(random.expovariate(tenant.rate), tenant, None)
    while events[0][0] < END:
        now, _, tenant, over = heapq.heappop(events)
        if over is not None:
            for waiter in room.release(queue, over, None, now):
                go(waiter, now)
            continue
        at(now + random.expovariate(tenant.rate), tenant, None)
        tokens = tenant.tokens if count_tokens else 1
        waiter = Waiter(key or tenant.name, INTERACTIVE, tokens, math.inf, now)
        owner[waiter] = tenant
        outcome = room.arrive(queue, waiter, now)
        if outcome is GRANTED_AT_ONCE:
            go(waiter, now)
        elif isinstance(outcome, Rejection):
            tenant.shed += now > WARM
        elif outcome.victim is not None:
            owner[outcome.victim[0]].shed += now > WARM


seeds = pytest.mark.parametrize("seed", [1, 2])

# The engine does 8,000 tokens a second; `light` needs 2,000, `flood` far more than there are.
HOLD_S = 200 * S_PER_TOKEN


def light() -> Tenant:
    return Tenant("light", 10.0, 200)


def flood() -> Tenant:
    return Tenant("flood", 400.0, 200)


@seeds
def test_row_51_a_flood_delays_another_key_only_until_a_slot_frees(seed: int):
    victim, other = light(), flood()
    side_by_side(seed, victim, other)
    assert victim.shed == 0
    assert victim.waited(0.5) <= 1.5 * HOLD_S / PERMITS
    assert victim.waited(0.99) <= 1.5 * HOLD_S
    assert other.shed > 0


@seeds
def test_without_fair_queueing_a_key_waits_behind_the_flood(seed: int):
    victim, other = light(), flood()
    side_by_side(seed, victim, other, key="everybody")
    assert victim.shed > 0
    assert victim.waited(0.25) > 10 * HOLD_S


# `huge` sends calls of 8,000 tokens, enough to saturate the engine; `tiny` of 20.


def huge() -> Tenant:
    return Tenant("huge", 2.0, 8000)


def tiny() -> Tenant:
    return Tenant("tiny", 20.0, 20)


HUGE_S = 8000 * S_PER_TOKEN


@seeds
def test_row_53_tiny_calls_wait_for_a_single_huge_call_at_most(seed: int):
    victim, other = tiny(), huge()
    side_by_side(seed, victim, other)
    assert victim.shed == 0
    assert victim.waited(0.5) <= HUGE_S / PERMITS
    assert victim.waited(0.99) <= HUGE_S
    assert other.waits


@seeds
@pytest.mark.parametrize("off", [{"count_tokens": False}, {"key": "everybody"}], ids=["calls", "one key"])
def test_without_counting_tokens_by_key_tiny_calls_wait_behind_huge_ones(seed: int, off: dict[str, Any]):
    victim, other = tiny(), huge()
    side_by_side(seed, victim, other, **off)
    assert victim.shed > 0
    assert victim.waited(0.25) > HUGE_S
