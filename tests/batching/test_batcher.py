"""Which calls bypass or wait, when a batch starts and what it takes; and the effect under load."""

import math

import pytest
from batch_model import Engine, World

from gateway.batching.batcher import Batcher, BatchLimits, PendingBatch
from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF
from gateway.batching.pending import PendingCall
from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchTuner
from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.queueing.upstream_queue import AGING_S

EAGER = BatchLimits("eager", 4, 1000, 0.05, 2, 10)
WINDOW = EAGER._replace(policy="window")


def made(limits: BatchLimits = EAGER) -> Batcher:
    return Batcher(limits, BatchTuner(limits.max_size, limits.max_inflight))


def member(
    key: str = "a",
    *,
    items: int = 1,
    tokens: int = 10,
    at: float = 0.0,
    deadline: float = math.inf,
    priority: Priority = INTERACTIVE,
) -> PendingCall:
    return PendingCall(key, items, tokens, at, deadline, priority)


def busy(limits: BatchLimits = EAGER) -> Batcher:
    """A batcher whose slots are all used by single calls."""
    batcher = made(limits)
    for _ in range(limits.max_inflight):
        assert batcher.arrive(member(), 0.0) == "idle"
    return batcher


def waits(batcher: Batcher, *members: PendingCall) -> None:
    for call in members:
        assert batcher.arrive(call, call.arrived) == []


def freed(batcher: Batcher, now: float = 0.0) -> list[PendingBatch]:
    """Report the end of a single call."""
    return batcher.ended(None, 1, 10, 0.01, OK, now)


def reasons(batches: list[PendingBatch]) -> list[str]:
    return [batch.flush_reason for batch in batches]


def test_while_a_slot_is_free_a_call_leaves_at_once_as_a_single_call() -> None:
    batcher = made()
    for _ in range(5):
        assert batcher.arrive(member(), 1.0) == "idle"
        assert batcher.under_way == 1
        assert freed(batcher) == []
    assert batcher.idle


def test_calls_that_arrive_while_no_slot_is_free_leave_together() -> None:
    batcher, calls = busy(), [member("a"), member("b"), member("c")]
    waits(batcher, *calls)
    (batch,) = freed(batcher)
    assert (batch.flush_reason, batch.first, batch.calls, batch.tokens) == ("slot", calls[0], 3, 30)
    assert batcher.take(batch, 0.0) == calls
    assert (batcher.waiting, batcher.under_way) == (0, 2)
    assert batcher.ended(batch, 3, 30, 0.1, OK, 0.0) == []


def test_calls_join_a_batch_until_it_is_sealed() -> None:
    batcher, early, late = busy(), member("a"), member("b")
    waits(batcher, early)
    (batch,) = freed(batcher)
    waits(batcher, late)
    assert batcher.next_due() is None
    assert batcher.take(batch, 0.0) == [early, late]
    waits(batcher, member("c"))
    assert batcher.take(batch, 0.0) == [early, late]
    assert batcher.waiting == 1


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([member() for _ in range(4)], "size"),
        ([member(items=5), member(items=5)], "size"),
        ([member(tokens=500), member(tokens=500)], "tokens"),
    ],
)
def test_a_full_batch_leaves_at_once(calls: list[PendingCall], reason: str) -> None:
    batcher = busy()
    waits(batcher, *calls[:-1])
    outcome = batcher.arrive(calls[-1], 0.0)
    assert isinstance(outcome, list)
    assert reasons(outcome) == [reason]
    assert batcher.take(outcome[0], 0.0) == calls
    assert batcher.under_way == 3


def test_the_oldest_waits_no_longer_than_max_wait() -> None:
    batcher = busy()
    waits(batcher, member(at=1.0), member(at=1.04))
    assert batcher.next_due() == pytest.approx(1.05)
    assert batcher.due(1.049) == []
    (batch,) = batcher.due(1.05)
    assert batch.flush_reason == "window"
    assert batcher.next_due() is None
    assert len(batcher.take(batch, 1.05)) == 2


def test_without_max_wait_only_a_slot_ends_the_wait() -> None:
    batcher = busy(EAGER._replace(max_wait=0.0))
    waits(batcher, member(at=1.0))
    assert batcher.next_due() is None
    assert batcher.due(1e6) == []
    assert reasons(freed(batcher)) == ["slot"]


def test_a_window_holds_calls_even_while_nothing_is_in_flight() -> None:
    batcher = made(WINDOW)
    waits(batcher, member(at=1.0))
    assert batcher.next_due() == pytest.approx(1.05)
    (batch,) = batcher.due(1.05)
    assert batch.flush_reason == "window"
    assert len(batcher.take(batch, 1.05)) == 1
    waits(batcher, member(at=1.06))
    assert batcher.ended(batch, 1, 10, 0.1, OK, 1.07) == []


def test_a_window_gathers_until_the_upstream_takes_the_call() -> None:
    """Later calls join a batch that waits for its permit, instead of starting another."""
    batcher = made(WINDOW)
    waits(batcher, member(at=1.0))
    (first,) = batcher.due(1.05)
    for at in (2.0, 3.0, 4.0):
        waits(batcher, member(at=at))
        assert batcher.next_due() is None
    (second,) = batcher.arrive(member(at=5.0), 5.0)  # one call more than the first batch can hold
    assert len(batcher.take(first, 6.0)) == 4
    assert len(batcher.take(second, 7.0)) == 1


@pytest.mark.parametrize(
    ("large", "reason"),
    [(member(tokens=501), "tokens"), (member(tokens=5000), "tokens"), (member(items=10), "size")],
)
def test_a_call_of_more_than_half_a_batch_bypasses(large: PendingCall, reason: str) -> None:
    batcher, small = busy(), member()
    waits(batcher, small)
    assert batcher.arrive(large, 0.0) == reason
    assert (batcher.waiting, batcher.under_way) == (1, 3)


def test_large_calls_use_no_slot() -> None:
    """However many large calls arrive, one after another."""
    batcher = busy(EAGER._replace(max_wait=0.0))
    for _ in range(5):
        assert batcher.arrive(member(tokens=600), 0.0) == "tokens"
    waits(batcher, member("b"), member("c"))
    (batch,) = freed(batcher)
    assert len(batcher.take(batch, 0.0)) == 2
    assert freed(batcher) == []
    assert batcher.arrive(member(), 0.0) == "idle"
    assert not batcher.ended(batch, 2, 20, 0.1, OK, 0.1)
    for _ in range(5):
        assert batcher.ended(None, 1, 600, 0.1, OK, 0.1, bypassed=True) == []
    assert freed(batcher) == []
    assert batcher.idle


def test_the_return_of_a_large_call_is_not_expected() -> None:
    batcher = expecting_returns()
    due = batcher.next_due()
    assert due is not None
    waits(batcher, member(at=1.002))
    assert batcher.arrive(member(tokens=600, at=1.003), 1.003) == "tokens"
    due = batcher.next_due()
    assert due is not None
    assert batcher.ended(None, 1, 600, 0.1, OK, due - 1e-4, bypassed=True) == []
    assert reasons(batcher.due(due)) == ["slot"]


def test_batches_of_one_are_never_gathered() -> None:
    assert busy(EAGER._replace(max_size=1)).arrive(member(), 0.0) == "size"


def test_a_flood_does_not_exclude_another_key_from_the_next_batch() -> None:
    batcher = busy(EAGER._replace(max_wait=0.0))
    flood = [member("flood") for _ in range(40)]
    batches = [batch for call in flood for batch in batcher.arrive(call, 0.0)]
    assert len(batches) == 10
    assert all(isinstance(batch, PendingBatch) for batch in batches)
    first, second, third = member("x"), member("y"), member("x")
    for call in (first, second, third):
        batcher.arrive(call, 0.0)
    assert batcher.take(batches[3], 0.0) == [flood[0], first, second, flood[1]]
    assert batcher.take(batches[0], 0.0) == [third, flood[2], flood[3], flood[4]]


def test_tokens_count_not_calls() -> None:
    batcher = busy()
    large = [member("large", tokens=300) for _ in range(3)]
    small = [member("small", tokens=100) for _ in range(6)]
    batches = []
    for call in (*large, *small):
        outcome = batcher.arrive(call, 0.0)
        assert isinstance(outcome, list)
        batches += outcome
    taken = [batcher.take(batch, 0.0) for batch in batches]
    assert taken[0] == [large[0], *small[:3]]
    assert taken[1] == [large[1], *small[3:6]]


def test_batch_class_goes_last_until_it_has_aged() -> None:
    batcher = busy()
    patient = member("a", priority=BATCH)
    waits(batcher, patient)
    for _ in range(3):
        outcome = batcher.arrive(member("b"), 0.0)
    assert reasons(outcome) == ["size"]
    waits(batcher, member("b"), member("b"))
    assert patient not in batcher.take(outcome[0], 1.0)
    (batch,) = batcher.due(AGING_S)
    assert batcher.take(batch, AGING_S)[0] is patient


def test_a_call_that_leaves_is_in_no_batch() -> None:
    batcher, gone, staying = busy(), member("a"), member("b")
    waits(batcher, gone, staying)
    (batch,) = freed(batcher)
    assert batcher.leave(gone) == []
    assert batcher.leave(gone) == []
    assert batcher.take(batch, 0.0) == [staying]
    assert batcher.leave(staying) == []


def test_a_batch_without_calls_is_given_up() -> None:
    batcher, gone = busy(), member("a")
    waits(batcher, gone)
    (batch,) = freed(batcher)
    assert batcher.leave(gone) == [batch]
    assert batcher.take(batch, 0.0) == []
    late = member("b")
    waits(batcher, late)
    assert batcher.next_due() == pytest.approx(0.05), "the surplus batch does not cover the newcomer"
    (other,) = batcher.ended(batch, 0, 0, 0.0, FAILED, 0.0)
    assert batcher.take(other, 0.0) == [late]


def learned(limits: BatchLimits = EAGER) -> Batcher:
    """A busy batcher that has learned a cost of 0.1 s a call and 1 ms a token."""
    batcher = busy(limits)
    for tokens in (10, 100) * 10:
        batcher.under_way += 1
        batcher.ended(None, 1, tokens, 0.1 + 0.001 * tokens, OK, 0.0)
    return batcher


def test_a_call_that_would_miss_its_deadline_in_a_batch_bypasses() -> None:
    batcher = learned()
    waits(batcher, member(tokens=400))
    assert batcher.arrive(member(tokens=100, deadline=0.59), 0.0) == "window"
    waits(batcher, member(tokens=100, deadline=0.61))


def test_a_near_deadline_ends_the_wait() -> None:
    batcher = learned(EAGER._replace(max_wait=0.0))
    urgent, other = member(tokens=100, deadline=1.0), member(tokens=300)
    waits(batcher, urgent, other)
    assert batcher.next_due() == pytest.approx(0.5)
    (batch,) = batcher.due(0.51)
    assert (batch.flush_reason, batch.sealed, batch.members) == ("window", True, [urgent])
    assert (batcher.waiting, batcher.under_way) == (1, 3)
    assert batcher.next_due() is None


def test_a_batch_does_not_grow_beyond_its_members_deadlines() -> None:
    batcher = learned()
    urgent = member("a", tokens=100, deadline=0.65)
    waits(batcher, urgent)
    (batch,) = freed(batcher)
    waits(batcher, member("b", tokens=300), member("c", tokens=50))
    assert [call.key for call in batcher.take(batch, 0.3)] == ["a", "c"]


def expecting_returns() -> Batcher:
    """Three calls were answered together at 1.0; the mean call took 0.155 s."""
    tuner = BatchTuner(EAGER.max_size, 1)
    batcher = Batcher(EAGER, tuner)
    batcher.arrive(member(), 0.0)
    for tokens in (10, 100) * 10:
        batcher.under_way += 1
        batcher.ended(None, 1, tokens, 0.1 + 0.001 * tokens, OK, 0.0)
    waits(batcher, *(member(at=0.0) for _ in range(3)))
    (batch,) = freed(batcher)
    batcher.take(batch, 0.0)
    tuner.set_lockstep(True)
    assert batcher.ended(batch, 3, 30, 0.13, OK, 1.0) == []
    return batcher


def test_callers_that_return_together_leave_together() -> None:
    batcher = expecting_returns()
    waits(batcher, member(at=1.002), member(at=1.010))
    outcome = batcher.arrive(member(at=1.018), 1.018)
    assert reasons(outcome) == ["slot"]  # type: ignore[arg-type]


def test_waiting_calls_also_wait_for_the_return_of_a_single_call() -> None:
    """Otherwise it would stay out of step with them."""
    batcher = expecting_returns()
    waits(batcher, member(at=1.002), member(at=1.004))
    batcher.under_way += 1
    assert batcher.ended(None, 1, 10, 0.1, OK, 1.005) == []
    waits(batcher, member(at=1.006))
    assert reasons(batcher.arrive(member(at=1.008), 1.008)) == ["slot"]  # type: ignore[arg-type]


def test_the_first_return_may_take_longer_than_the_next_ones() -> None:
    """All callers are answered before the first can return."""
    batcher = expecting_returns()
    waits(batcher, member(at=1.030), member(at=1.035))
    assert reasons(batcher.arrive(member(at=1.040), 1.040)) == ["slot"]  # type: ignore[arg-type]


def test_a_caller_that_does_not_return_is_not_waited_for_long() -> None:
    batcher = expecting_returns()
    assert not batcher.idle
    waits(batcher, member(at=1.002))
    due = batcher.next_due()
    assert due == pytest.approx(1.012)
    assert batcher.due(due - 1e-6) == []
    assert reasons(batcher.due(due)) == ["slot"]


def test_when_no_caller_returns_the_batcher_becomes_idle() -> None:
    batcher = expecting_returns()
    due = batcher.next_due()
    assert due == pytest.approx(1.049, abs=0.001)  # a third of the mean call
    assert batcher.due(due) == []
    assert batcher.idle
    assert batcher.next_due() is None


def test_an_overload_makes_batches_smaller() -> None:
    batcher = busy()
    outcome: str | list[PendingBatch] = []
    for _ in range(4):
        outcome = batcher.arrive(member(), 0.0)
    assert isinstance(outcome, list)
    batcher.take(outcome[0], 0.0)
    batcher.ended(outcome[0], 4, 40, 0.1, OVERLOADED, 0.1)
    waits(batcher, member(at=0.1))
    assert reasons(batcher.arrive(member(at=0.1), 0.1)) == ["size"]  # type: ignore[arg-type]


# Simulated load. The upstream is that of the benchmarks: 4 calls at a time, 20 ms and 0.5 ms an item.

DEFAULT = BatchLimits("eager", 32, 16384, 0.05, 2)
FIXED = DEFAULT._replace(policy="window")
SETTLED_S = 6.0
"""Seconds after which the experiment has found the better mode."""
SERIAL = Engine(1, 0.008)
ENGINES = [pytest.param(Engine(), id="parallel"), pytest.param(SERIAL, id="serial")]


@pytest.mark.parametrize("callers", [64, 128])
def test_many_callers_get_several_times_the_throughput(callers: int) -> None:
    unmerged, merged = World(None), World(DEFAULT)
    assert merged.closed(callers, 10) >= 5 * unmerged.closed(callers, 10)
    assert max(merged.times) < max(unmerged.times)
    assert max(merged.sizes) <= 32


def test_with_little_load_nobody_waits() -> None:
    world, engine = World(DEFAULT), Engine()
    world.open(2.0, 200)
    unmerged = [time for time in world.times if time <= engine.fixed + engine.each + 1e-9]
    assert len(unmerged) >= 0.99 * len(world.times)
    lonely = World(DEFAULT)
    lonely.closed(1, 10)
    assert max(lonely.times) == pytest.approx(engine.fixed + engine.each)


@pytest.mark.parametrize("callers", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_throughput_is_at_least_that_of_a_fixed_window(callers: int, engine: Engine) -> None:
    batched, fixed = World(DEFAULT, engine), World(FIXED, engine)
    assert batched.closed(callers, 15, SETTLED_S) >= 0.99 * fixed.closed(callers, 15, SETTLED_S)


@pytest.mark.parametrize("callers", [1, 2, 3, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_throughput_is_at_least_about_that_without_merging(callers: int, engine: Engine) -> None:
    """Four callers of an engine with four slots gain nothing from merging."""
    batched, unmerged = World(DEFAULT, engine), World(None, engine)
    assert batched.closed(callers, 15, SETTLED_S) >= 0.92 * unmerged.closed(callers, 15, SETTLED_S)


@pytest.mark.parametrize("rate", [2.0, 20.0, 100.0, 400.0, 1000.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_latency_in_an_open_loop_is_at_most_that_of_a_fixed_window(rate: float, engine: Engine) -> None:
    seconds = 4000 / rate
    assert World(DEFAULT, engine).open(rate, seconds) <= World(FIXED, engine).open(rate, seconds)


@pytest.mark.parametrize("callers", [8, 16, 64])
def test_an_engine_with_a_single_slot_gets_one_batch_at_a_time(callers: int) -> None:
    """`max_inflight` is two; one batch in flight is better here, and is found."""
    world = World(DEFAULT, SERIAL)
    world.closed(callers, 15)
    assert (world.profile.tuner.inflight, world.profile.tuner.waits_for_returns) == (1, True)


@pytest.mark.parametrize("callers", [8, 16])
def test_a_parallel_upstream_gets_single_calls(callers: int) -> None:
    """If `off` is a mode, and once there has been load."""
    engine = Engine(64, 0.020, 0.0005)
    world, unmerged = World(DEFAULT, engine, (LOCKSTEP, GREEDY, OFF)), World(None, engine)
    assert world.closed(callers, 150, 120) >= 0.97 * unmerged.closed(callers, 150, 120)
    assert world.profile.view()["merge_mode"] == OFF


@pytest.mark.parametrize("callers", [8, 16, 32])
def test_callers_in_step_share_one_batch(callers: int) -> None:
    """The first caller to return does not leave at once as a single call, ahead of all others."""
    world = World(DEFAULT, SERIAL)
    rate = world.closed(callers, 15, SETTLED_S)
    assert rate >= 0.97 * callers / (SERIAL.fixed + SERIAL.each * callers)


def test_an_engine_with_several_slots_keeps_its_batches_in_flight() -> None:
    world = World(DEFAULT, Engine(4, 0.020, 0.0))
    world.open(300.0, 20)
    assert (world.profile.tuner.inflight, world.profile.tuner.waits_for_returns) == (2, False)
