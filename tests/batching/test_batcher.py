"""Who leaves alone, who waits, when a batch starts and whom it takes; and what that does to a load."""

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


def made(bounds: BatchLimits = EAGER) -> Batcher:
    return Batcher(bounds, BatchTuner(bounds.max_size, bounds.max_inflight))


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


def busy(bounds: BatchLimits = EAGER) -> Batcher:
    """All slots taken by calls that went alone."""
    batcher = made(bounds)
    for _ in range(bounds.max_inflight):
        assert batcher.arrive(member(), 0.0) == "idle"
    return batcher


def waits(batcher: Batcher, *members: PendingCall) -> None:
    for one in members:
        assert batcher.arrive(one, one.arrived) == []


def freed(batcher: Batcher, now: float = 0.0) -> list[PendingBatch]:
    """One of those that went alone is over."""
    return batcher.ended(None, 1, 10, 0.01, OK, now)


def reasons(batches: list[PendingBatch]) -> list[str]:
    return [batch.flush_reason for batch in batches]


def test_while_a_slot_is_free_a_call_leaves_at_once_and_alone() -> None:
    batcher = made()
    for _ in range(5):
        assert batcher.arrive(member(), 1.0) == "idle"
        assert batcher.under_way == 1
        assert freed(batcher) == []
    assert batcher.idle


def test_what_comes_while_no_slot_is_free_leaves_together_when_one_is() -> None:
    batcher, calls = busy(), [member("a"), member("b"), member("c")]
    waits(batcher, *calls)
    (batch,) = freed(batcher)
    assert (batch.flush_reason, batch.first, batch.calls, batch.tokens) == ("slot", calls[0], 3, 30)
    assert batcher.take(batch, 0.0) == calls
    assert (batcher.waiting, batcher.under_way) == (0, 2)
    assert batcher.ended(batch, 3, 30, 0.1, OK, 0.0) == []


def test_until_it_is_sealed_a_batch_takes_who_comes() -> None:
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
    told = batcher.arrive(calls[-1], 0.0)
    assert isinstance(told, list)
    assert reasons(told) == [reason]
    assert batcher.take(told[0], 0.0) == calls
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


def test_a_window_holds_even_while_nothing_is_under_way() -> None:
    batcher = made(WINDOW)
    waits(batcher, member(at=1.0))
    assert batcher.next_due() == pytest.approx(1.05)
    (batch,) = batcher.due(1.05)
    assert batch.flush_reason == "window"
    assert len(batcher.take(batch, 1.05)) == 1
    waits(batcher, member(at=1.06))
    assert batcher.ended(batch, 1, 10, 0.1, OK, 1.07) == []


def test_a_window_gathers_until_the_upstream_takes_the_call() -> None:
    """Calls that come later find place in a batch that waits for its permit: no call of its own."""
    batcher = made(WINDOW)
    waits(batcher, member(at=1.0))
    (first,) = batcher.due(1.05)
    for at in (2.0, 3.0, 4.0):
        waits(batcher, member(at=at))
        assert batcher.next_due() is None
    (second,) = batcher.arrive(member(at=5.0), 5.0)  # one more than the first has place for
    assert len(batcher.take(first, 6.0)) == 4
    assert len(batcher.take(second, 7.0)) == 1


@pytest.mark.parametrize(
    ("large", "reason"),
    [(member(tokens=501), "tokens"), (member(tokens=5000), "tokens"), (member(items=10), "size")],
)
def test_who_makes_most_of_a_batch_goes_alone(large: PendingCall, reason: str) -> None:
    batcher, small = busy(), member()
    waits(batcher, small)
    assert batcher.arrive(large, 0.0) == reason
    assert (batcher.waiting, batcher.under_way) == (1, 3)


def test_large_calls_keep_no_slot_from_the_others() -> None:
    """However many there are of them, one after the other."""
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
        assert batcher.ended(None, 1, 600, 0.1, OK, 0.1, apart=True) == []
    assert freed(batcher) == []
    assert batcher.idle


def test_a_large_call_that_ends_is_not_awaited_by_who_waits() -> None:
    batcher = awaiting()
    due = batcher.next_due()
    assert due is not None
    waits(batcher, member(at=1.002))
    assert batcher.arrive(member(tokens=600, at=1.003), 1.003) == "tokens"
    due = batcher.next_due()
    assert due is not None
    assert batcher.ended(None, 1, 600, 0.1, OK, due - 1e-4, apart=True) == []
    assert reasons(batcher.due(due)) == ["slot"]


def test_batches_of_one_are_never_gathered() -> None:
    assert busy(EAGER._replace(max_size=1)).arrive(member(), 0.0) == "size"


def test_a_flood_does_not_keep_another_out_of_the_next_batch() -> None:
    batcher = busy(EAGER._replace(max_wait=0.0))
    flood = [member("flood") for _ in range(40)]
    batches = [batch for one in flood for batch in batcher.arrive(one, 0.0)]
    assert len(batches) == 10
    assert all(isinstance(batch, PendingBatch) for batch in batches)
    first, second, third = member("x"), member("y"), member("x")
    for one in (first, second, third):
        batcher.arrive(one, 0.0)
    assert batcher.take(batches[3], 0.0) == [flood[0], first, second, flood[1]]
    assert batcher.take(batches[0], 0.0) == [third, flood[2], flood[3], flood[4]]


def test_tokens_count_not_calls() -> None:
    batcher = busy()
    large = [member("large", tokens=300) for _ in range(3)]
    small = [member("small", tokens=100) for _ in range(6)]
    batches = []
    for one in (*large, *small):
        told = batcher.arrive(one, 0.0)
        assert isinstance(told, list)
        batches += told
    taken = [batcher.take(batch, 0.0) for batch in batches]
    assert taken[0] == [large[0], *small[:3]]
    assert taken[1] == [large[1], *small[3:6]]


def test_batch_class_goes_last_until_it_has_aged() -> None:
    batcher = busy()
    patient = member("a", priority=BATCH)
    waits(batcher, patient)
    for _ in range(3):
        told = batcher.arrive(member("b"), 0.0)
    assert reasons(told) == ["size"]
    waits(batcher, member("b"), member("b"))
    assert patient not in batcher.take(told[0], 1.0)
    (batch,) = batcher.due(AGING_S)
    assert batcher.take(batch, AGING_S)[0] is patient


def test_who_leaves_is_in_no_batch() -> None:
    batcher, gone, kept = busy(), member("a"), member("b")
    waits(batcher, gone, kept)
    (batch,) = freed(batcher)
    assert batcher.leave(gone) == []
    assert batcher.leave(gone) == []
    assert batcher.take(batch, 0.0) == [kept]
    assert batcher.leave(kept) == []


def test_a_batch_that_nobody_is_left_for_is_given_up() -> None:
    batcher, gone = busy(), member("a")
    waits(batcher, gone)
    (batch,) = freed(batcher)
    assert batcher.leave(gone) == [batch]
    assert batcher.take(batch, 0.0) == []
    late = member("b")
    waits(batcher, late)
    assert batcher.next_due() == pytest.approx(0.05), "it is not taken for one whom that batch has place for"
    (other,) = batcher.ended(batch, 0, 0, 0.0, FAILED, 0.0)
    assert batcher.take(other, 0.0) == [late]


def learned(bounds: BatchLimits = EAGER) -> Batcher:
    """Knows that a call takes 0.1 s and a millisecond a token; its slots are taken."""
    batcher = busy(bounds)
    for tokens in (10, 100) * 10:
        batcher.under_way += 1
        batcher.ended(None, 1, tokens, 0.1 + 0.001 * tokens, OK, 0.0)
    return batcher


def test_who_would_miss_its_deadline_in_a_batch_goes_alone() -> None:
    batcher = learned()
    waits(batcher, member(tokens=400))
    assert batcher.arrive(member(tokens=100, deadline=0.59), 0.0) == "window"
    waits(batcher, member(tokens=100, deadline=0.61))


def test_a_deadline_that_comes_near_ends_the_wait() -> None:
    batcher = learned(EAGER._replace(max_wait=0.0))
    hurried, other = member(tokens=100, deadline=1.0), member(tokens=300)
    waits(batcher, hurried, other)
    assert batcher.next_due() == pytest.approx(0.5)
    (batch,) = batcher.due(0.51)
    assert (batch.flush_reason, batch.sealed, batch.members) == ("window", True, [hurried])
    assert (batcher.waiting, batcher.under_way) == (1, 3)
    assert batcher.next_due() is None


def test_a_batch_does_not_grow_beyond_the_time_that_its_members_have() -> None:
    batcher = learned()
    hurried = member("a", tokens=100, deadline=0.65)
    waits(batcher, hurried)
    (batch,) = freed(batcher)
    waits(batcher, member("b", tokens=300), member("c", tokens=50))
    assert [one.key for one in batcher.take(batch, 0.3)] == ["a", "c"]


def awaiting() -> Batcher:
    """Three calls were answered together at 1.0; the mean call took 0.155 s."""
    tuning = BatchTuner(EAGER.max_size, 1)
    batcher = Batcher(EAGER, tuning)
    batcher.arrive(member(), 0.0)
    for tokens in (10, 100) * 10:
        batcher.under_way += 1
        batcher.ended(None, 1, tokens, 0.1 + 0.001 * tokens, OK, 0.0)
    waits(batcher, *(member(at=0.0) for _ in range(3)))
    (batch,) = freed(batcher)
    batcher.take(batch, 0.0)
    tuning.together(True)
    assert batcher.ended(batch, 3, 30, 0.13, OK, 1.0) == []
    return batcher


def test_those_who_come_back_together_leave_together() -> None:
    batcher = awaiting()
    waits(batcher, member(at=1.002), member(at=1.010))
    told = batcher.arrive(member(at=1.018), 1.018)
    assert reasons(told) == ["slot"]  # type: ignore[arg-type]


def test_who_went_alone_meanwhile_is_awaited_too_by_those_who_are_there() -> None:
    """It would be out of step with them for as long as they come back."""
    batcher = awaiting()
    waits(batcher, member(at=1.002), member(at=1.004))
    batcher.under_way += 1
    assert batcher.ended(None, 1, 10, 0.1, OK, 1.005) == []
    waits(batcher, member(at=1.006))
    assert reasons(batcher.arrive(member(at=1.008), 1.008)) == ["slot"]  # type: ignore[arg-type]


def test_the_first_to_come_back_may_take_longer_than_those_behind_it() -> None:
    """All of them are answered before it can."""
    batcher = awaiting()
    waits(batcher, member(at=1.030), member(at=1.035))
    assert reasons(batcher.arrive(member(at=1.040), 1.040)) == ["slot"]  # type: ignore[arg-type]


def test_who_does_not_come_back_is_not_awaited_for_long() -> None:
    batcher = awaiting()
    assert not batcher.idle
    waits(batcher, member(at=1.002))
    due = batcher.next_due()
    assert due == pytest.approx(1.012)
    assert batcher.due(due - 1e-6) == []
    assert reasons(batcher.due(due)) == ["slot"]


def test_when_nobody_comes_back_the_batcher_may_be_forgotten() -> None:
    batcher = awaiting()
    due = batcher.next_due()
    assert due == pytest.approx(1.049, abs=0.001)  # a third of the mean call
    assert batcher.due(due) == []
    assert batcher.idle
    assert batcher.next_due() is None


def test_an_overload_makes_batches_smaller() -> None:
    batcher = busy()
    told: str | list[PendingBatch] = []
    for _ in range(4):
        told = batcher.arrive(member(), 0.0)
    assert isinstance(told, list)
    batcher.take(told[0], 0.0)
    batcher.ended(told[0], 4, 40, 0.1, OVERLOADED, 0.1)
    waits(batcher, member(at=0.1))
    assert reasons(batcher.arrive(member(at=0.1), 0.1)) == ["size"]  # type: ignore[arg-type]


# A load, simulated. The upstream is that of the benchmarks: 4 calls at a time, 20 ms and 0.5 ms an item.

DEFAULT = BatchLimits("eager", 32, 16384, 0.05, 2)
FIXED = DEFAULT._replace(policy="window")
SETTLED_S = 6.0
"""After this the better way is known."""
SERIAL = Engine(1, 0.008)
ENGINES = [pytest.param(Engine(), id="parallel"), pytest.param(SERIAL, id="serial")]


@pytest.mark.parametrize("callers", [64, 128])
def test_many_callers_get_several_times_as_much_done(callers: int) -> None:
    alone, merged = World(None), World(DEFAULT)
    assert merged.closed(callers, 10) >= 5 * alone.closed(callers, 10)
    assert max(merged.times) < max(alone.times)
    assert max(merged.sizes) <= 32


def test_with_little_load_nobody_waits() -> None:
    world, engine = World(DEFAULT), Engine()
    world.open(2.0, 200)
    alone = [time for time in world.times if time <= engine.fixed + engine.each + 1e-9]
    assert len(alone) >= 0.99 * len(world.times)
    lonely = World(DEFAULT)
    lonely.closed(1, 10)
    assert max(lonely.times) == pytest.approx(engine.fixed + engine.each)


@pytest.mark.parametrize("callers", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_it_serves_callers_at_least_as_fast_as_a_fixed_window(callers: int, engine: Engine) -> None:
    ours, fixed = World(DEFAULT, engine), World(FIXED, engine)
    assert ours.closed(callers, 15, SETTLED_S) >= 0.99 * fixed.closed(callers, 15, SETTLED_S)


@pytest.mark.parametrize("callers", [1, 2, 3, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_it_serves_callers_about_as_fast_as_no_merging_or_faster(callers: int, engine: Engine) -> None:
    """Four callers of an engine that does four calls at a time gain nothing by being merged."""
    ours, alone = World(DEFAULT, engine), World(None, engine)
    assert ours.closed(callers, 15, SETTLED_S) >= 0.92 * alone.closed(callers, 15, SETTLED_S)


@pytest.mark.parametrize("rate", [2.0, 20.0, 100.0, 400.0, 1000.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_calls_at_their_own_pace_wait_no_longer_than_in_a_fixed_window(rate: float, engine: Engine) -> None:
    seconds = 4000 / rate
    assert World(DEFAULT, engine).open(rate, seconds) <= World(FIXED, engine).open(rate, seconds)


@pytest.mark.parametrize("callers", [8, 16, 64])
def test_an_engine_that_does_one_call_at_a_time_gets_one_batch_at_a_time(callers: int) -> None:
    """The bound is two under way; one is better here, and is found."""
    world = World(DEFAULT, SERIAL)
    world.closed(callers, 15)
    assert (world.kind.tuning.inflight, world.kind.tuning.awaits) == (1, True)


@pytest.mark.parametrize("callers", [8, 16])
def test_an_upstream_that_does_all_calls_at_once_gets_them_one_by_one(callers: int) -> None:
    """As far as that is allowed, and found out while there is load."""
    engine = Engine(64, 0.020, 0.0005)
    world, alone = World(DEFAULT, engine, (LOCKSTEP, GREEDY, OFF)), World(None, engine)
    assert world.closed(callers, 150, 120) >= 0.97 * alone.closed(callers, 150, 120)
    assert world.kind.view()["merge_mode"] == OFF


@pytest.mark.parametrize("callers", [8, 16, 32])
def test_callers_in_step_share_one_batch(callers: int) -> None:
    """The first who comes back does not leave at once, alone, with all others behind it."""
    world = World(DEFAULT, SERIAL)
    rate = world.closed(callers, 15, SETTLED_S)
    assert rate >= 0.97 * callers / (SERIAL.fixed + SERIAL.each * callers)


def test_an_engine_that_does_several_at_a_time_keeps_its_batches_under_way() -> None:
    world = World(DEFAULT, Engine(4, 0.020, 0.0))
    world.open(300.0, 20)
    assert (world.kind.tuning.inflight, world.kind.tuning.awaits) == (2, False)
