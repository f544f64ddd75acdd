"""Which calls are granted, queued or rejected; case by case, on plain numbers."""

import heapq
import math
import statistics
from random import Random

import pytest

from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, REQUEST_TOO_LARGE, Rejection
from gateway.queueing.pacing import Pace
from gateway.queueing.token_counter import CREDIT_RETAINED, HALF_LIFE_S, VirtualTokenCounter
from gateway.queueing.upstream_queue import AGING_S, UpstreamQueue, Waiter
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, Queued, QueueOutcome, WaitingRoom


class Scene:
    """A room with one queue, and names for its waiters."""

    def __init__(self, permits: int = 1, max_queue: int = 100, pace: Pace | None = None) -> None:
        self.room = WaitingRoom(max_queue)
        self.queue = UpstreamQueue("local", permits, pace)

    def arrive(
        self,
        key: str,
        now: float = 0.0,
        priority: Priority = INTERACTIVE,
        tokens: int = 10,
        deadline: float = math.inf,
        queue: UpstreamQueue | None = None,
    ) -> tuple[Waiter, QueueOutcome]:
        waiter = Waiter(key, priority, tokens, deadline, now)
        return waiter, self.room.arrive(queue or self.queue, waiter, now)

    def granted(self, key: str, now: float = 0.0, tokens: int = 10) -> Waiter:
        waiter, outcome = self.arrive(key, now, tokens=tokens)
        assert outcome is GRANTED_AT_ONCE
        return waiter

    def queued(self, key: str, now: float = 0.0, priority: Priority = INTERACTIVE, tokens: int = 10) -> Waiter:
        waiter, outcome = self.arrive(key, now, priority, tokens)
        assert outcome == Queued(None)
        return waiter

    def rejected(self, outcome: object) -> Rejection:
        assert isinstance(outcome, Rejection)
        return outcome

    def drain(self, going: Waiter, now: float = 0.0) -> str:
        """The keys of all waiters in the order in which they are served."""
        names = ""
        while following := self.room.release(self.queue, going, going.tokens, now):
            (going,) = following
            names += going.key
        return names


def test_free_permits_are_granted_at_once_and_further_calls_wait():
    scene = Scene(permits=2)
    scene.granted("a")
    scene.granted("b")
    scene.queued("c")
    assert (scene.queue.in_flight, scene.queue.waiting, scene.room.waiting) == (2, 1, 1)


def test_a_release_returns_the_granted_waiters_and_a_second_release_does_nothing():
    scene = Scene()
    first, second = scene.granted("a"), scene.queued("b")
    scene.queued("c")
    assert scene.room.release(scene.queue, first, None, 1.0) == [second]
    assert scene.room.release(scene.queue, first, None, 1.0) == []
    assert scene.queue.in_flight == 1


def test_calls_of_one_key_go_in_order_of_arrival():
    scene = Scene()
    going = scene.granted("x")
    waiters = [scene.queued("a", tokens=size) for size in (30, 1, 20)]
    for waiter in waiters:
        assert scene.room.release(scene.queue, going, None, 1.0) == [waiter]
        going = waiter


def test_the_key_with_the_fewest_tokens_goes_first():
    scene = Scene()
    going = scene.granted("x", tokens=100)
    for key in "xxaabb":
        scene.queued(key)
    assert scene.drain(going) == "ababxx"


def test_tokens_count_not_calls():
    scene = Scene()
    going = scene.granted("x")
    for key, tokens in [("a", 40), ("a", 40), ("b", 10), ("b", 10), ("b", 10), ("b", 10), ("b", 10)]:
        scene.queued(key, tokens=tokens)
    assert scene.drain(going) == "abbbbab"


def test_the_real_tokens_replace_the_estimate():
    scene = Scene(permits=2)
    dear, going = scene.granted("a", tokens=100), scene.granted("b", tokens=50)
    assert scene.room.release(scene.queue, dear, 10, 5.0) == []
    going_too = scene.granted("x", 5.0)
    a, b = scene.queued("a", 6.0), scene.queued("b", 5.5)
    assert scene.room.release(scene.queue, going, 50, 6.0) == [a]
    assert scene.room.release(scene.queue, going_too, 10, 6.0) == [b]


def use(counter: VirtualTokenCounter, key: str, tokens: float, at: float) -> None:
    """Charge and settle a call of exactly `tokens`."""
    counter.charge(key, tokens, at)
    counter.settle(key, tokens, tokens, at)


def test_a_corrected_estimate_earns_nothing():
    counter = VirtualTokenCounter()
    counter.charge("a", 1000, 0.0)
    counter.settle("a", 1000, 10, 0.0)  # as at the release, minutes later, with the moment of the charge
    assert counter.of("a") == pytest.approx(10 * counter.weight(0.0))


def test_counters_decay_by_half_in_a_half_life_whatever_the_time():
    counter = VirtualTokenCounter()
    start = 3e6
    counter.charge("a", 100, start)
    counter.charge("b", 50, start + HALF_LIFE_S)
    assert counter.of("a") == pytest.approx(counter.of("b"))
    later = start + 100 * HALF_LIFE_S
    counter.charge("c", 1, later)
    assert counter.of("a") < 1e-3 < counter.of("c") == counter.weight(later)


def test_idle_time_earns_a_bounded_credit():
    scene = Scene()
    scene.room.release(scene.queue, scene.granted("a", tokens=1000), None, 0.0)
    level = scene.queue.token_counter.of("a")
    going = scene.granted("a", tokens=500)  # what it takes is not known yet
    scene.queued("a", tokens=1000)
    scene.queued("b")
    assert scene.queue.token_counter.of("b") == pytest.approx(CREDIT_RETAINED * level)
    assert level > 0
    scene.room.release(scene.queue, going, None, 0.0)


def test_a_key_that_follows_a_key_that_never_waited_has_a_bounded_credit():
    scene = Scene()
    scene.room.release(scene.queue, scene.granted("a", tokens=1000), None, 0.0)
    level = scene.queue.token_counter.of("a")
    going = scene.granted("b")
    scene.queued("b")
    assert scene.queue.token_counter.of("b") == pytest.approx(CREDIT_RETAINED * level + 10)
    scene.room.release(scene.queue, going, None, 0.0)


def test_keys_that_return_one_after_another_get_the_same_credit():
    counter = VirtualTokenCounter()
    use(counter, "a", 1000, 0.0)
    counter.enter("a", [])
    counter.enter("b", ["a"])
    counter.enter("c", ["a", "b"])
    assert counter.of("c") == counter.of("b")


def test_a_credit_decays_as_the_counters_do():
    counter = VirtualTokenCounter()
    use(counter, "a", 1000, 0.0)
    counter.enter("a", [])
    counter.enter("b", ["a"])
    later = 100 * HALF_LIFE_S
    use(counter, "b", 8, later)
    assert counter.entering("c", ["b"]) == pytest.approx(CREDIT_RETAINED * 8)


def test_interactive_calls_go_before_batch_calls():
    scene = Scene()
    going = scene.granted("x")
    scene.queued("a", priority=BATCH)
    scene.queued("b", tokens=1000)
    scene.queued("b")
    assert scene.drain(going) == "bba"


def test_a_batch_call_that_has_aged_counts_as_interactive():
    scene = Scene()
    going = scene.granted("x", 0.0)
    scene.queued("a", 0.0, BATCH)
    scene.queued("b", 1.0)
    scene.queued("b", 1.0)
    assert scene.drain(going, AGING_S) == "abb"


def test_an_aged_batch_call_does_not_overtake_older_calls_of_its_key():
    scene = Scene()
    going = scene.granted("x", 0.0)
    older = scene.queued("a", 0.0)
    scene.queued("a", 1.0, BATCH)
    assert scene.room.release(scene.queue, going, None, 1.0 + AGING_S) == [older]


def test_an_aged_batch_call_waits_one_turn_of_each_key_at_most():
    """However many interactive calls keep arriving; newer calls of its own key do not overtake it."""
    scene = Scene(max_queue=10_000)
    going, now, turns = scene.granted("x"), 0.0, 0
    old = scene.queued("a", 0.0, BATCH)
    while going is not old:
        for key in "abcd":
            scene.queued(key, now)
        now += 0.25
        (going,) = scene.room.release(scene.queue, going, None, now)
        turns += now > AGING_S
    assert turns <= 4
    assert now <= AGING_S + 4 * 0.25


def test_a_waiter_that_leaves_frees_its_position_at_once():
    scene = Scene(max_queue=1)
    scene.granted("a")
    gone = scene.queued("a")
    assert scene.room.leave(scene.queue, gone, 1.0) == []
    assert scene.room.leave(scene.queue, gone, 1.0) == []
    assert scene.room.waiting == scene.queue.waiting == 0
    scene.queued("a")


def test_a_permit_that_was_not_used_costs_nothing():
    scene = Scene()
    waiter = scene.granted("a")
    scene.room.give_back(scene.queue, waiter, 1.0)
    assert scene.room.release(scene.queue, waiter, 10, 1.0) == []
    assert scene.queue.in_flight == 0
    assert scene.queue.token_counter.of("a") == 0.0
    assert scene.queue.drain_time(1, 0.0) is None  # and adds nothing to the mean service time


# The room is full.


def test_with_a_queue_of_zero_no_call_waits():
    scene = Scene(max_queue=0)
    scene.granted("a")
    rejection = scene.rejected(scene.arrive("a")[1])
    assert (rejection.kind, rejection.retry_after) == (QUEUE_FULL, 1.0)


def test_the_newest_waiter_of_the_key_with_the_most_is_evicted():
    scene = Scene(max_queue=3)
    going = scene.granted("x")
    scene.queued("b")
    scene.queued("a")
    newest = scene.queued("a")
    _, outcome = scene.arrive("c")
    assert outcome == Queued((newest, scene.queue))
    assert scene.room.waiting == 3
    assert sorted(scene.drain(going)) == ["a", "b", "c"]


def test_a_call_of_the_key_with_the_most_waiters_is_rejected():
    scene = Scene(max_queue=2)
    scene.granted("x")
    scene.queued("a")
    scene.queued("b")
    assert scene.rejected(scene.arrive("a")[1]).kind is QUEUE_FULL


def test_batch_calls_are_evicted_first_even_for_their_own_key():
    scene = Scene(max_queue=3)
    scene.granted("x")
    scene.queued("b")
    scene.queued("b")
    newest = scene.queued("a", priority=BATCH)
    _, outcome = scene.arrive("a")
    assert outcome == Queued((newest, scene.queue))


def test_a_batch_call_evicts_no_interactive_call():
    scene = Scene(max_queue=2)
    scene.granted("x")
    scene.queued("a")
    scene.queued("a")
    assert scene.rejected(scene.arrive("b", priority=BATCH)[1]).kind is QUEUE_FULL


def test_all_queues_share_one_room():
    scene = Scene(max_queue=2)
    other = UpstreamQueue("other", 1)
    scene.granted("x")
    assert scene.arrive("x", queue=other)[1] is GRANTED_AT_ONCE
    scene.queued("a")
    newest, outcome = scene.arrive("a", queue=other)
    assert outcome == Queued(None)
    _, outcome = scene.arrive("b")
    assert outcome == Queued((newest, other))
    assert (scene.queue.waiting, other.waiting) == (2, 0)


def test_retry_after_of_a_full_room_is_the_time_until_a_slot_frees():
    scene = Scene(permits=2, max_queue=1)
    first = scene.granted("a", 0.0)
    scene.granted("a", 0.0)
    scene.room.release(scene.queue, first, None, 4.0)
    scene.granted("a", 4.0)
    scene.queued("a", 4.0)
    assert scene.rejected(scene.arrive("a", 4.0)[1]).retry_after == 2.0


def test_retry_after_of_a_stalled_upstream_is_the_length_of_the_stall():
    """The mean covers quick calls only, and would say that a slot frees at any moment."""
    scene = Scene(permits=2, max_queue=1)
    for at in (0.0, 0.1):
        scene.room.release(scene.queue, scene.granted("a", at), None, at + 0.01)
    stuck, _ = scene.granted("a", 1.0), scene.granted("a", 1.0)
    scene.queued("a", 1.0)
    outcome = [scene.rejected(scene.arrive("a", at)[1]).retry_after for at in (1.001, 3.0, 9.0)]
    assert outcome == [pytest.approx(0.005), 2.0, 5.0]
    late = scene.rejected(scene.arrive("a", 3.0, deadline=3.0)[1])
    assert (late.kind, late.retry_after) == (DEADLINE_IN_QUEUE, pytest.approx(2.0))
    (following,) = scene.room.release(scene.queue, stuck, None, 9.0)
    assert following.since == 9.0
    assert scene.queue.stalled_for(9.5) == 0.5


def test_retry_after_is_never_zero():
    scene = Scene(max_queue=0)
    first = scene.granted("a", 0.0)
    scene.room.release(scene.queue, first, None, 0.0)
    scene.granted("a", 0.0)
    assert scene.rejected(scene.arrive("a", 0.0)[1]).retry_after == 0.001


# The caller's deadline.


def warmed_up(permits: int = 1, hold: float = 2.0) -> Scene:
    """All permits granted, with a mean service time of `hold`."""
    scene = Scene(permits)
    scene.room.release(scene.queue, scene.granted("x", 0.0, 1), None, hold)
    for _ in range(permits):
        scene.granted("x", hold, 1)
    return scene


def test_without_a_mean_service_time_every_call_may_wait():
    scene = Scene()
    scene.granted("a")
    assert scene.arrive("a", deadline=0.001)[1] == Queued(None)


def test_a_call_that_would_outwait_its_caller_is_rejected_at_once():
    scene = warmed_up()
    scene.queued("a", 2.0)  # goes at 4.0, and a second one at 6.0, which is answered at 8.0
    assert scene.arrive("a", 2.0, deadline=8.0)[1] == Queued(None)
    rejection = scene.rejected(scene.arrive("a", 2.0, deadline=9.0)[1])
    assert rejection.kind is DEADLINE_IN_QUEUE
    assert rejection.retry_after == 2.0  # its caller waits 7 s, it would take 8; but no sooner than one hold
    assert scene.room.waiting == 2


def test_a_stream_need_only_begin_in_time():
    scene = warmed_up()
    scene.queued("a", 2.0)
    whole, stream = (Waiter("a", INTERACTIVE, 10, 7.0, 2.0) for _ in range(2))
    stream.stream = True
    assert scene.rejected(scene.room.arrive(scene.queue, whole, 2.0)).kind is DEADLINE_IN_QUEUE
    assert scene.room.arrive(scene.queue, stream, 2.0) == Queued(None)


def test_a_short_call_among_long_ones_may_wait_for_half_of_its_patience():
    scene = warmed_up(permits=10, hold=20.0)
    assert scene.arrive("a", 20.0, deadline=24.0)[1] == Queued(None)  # for 2 s, and is worked on for 2
    assert scene.rejected(scene.arrive("a", 20.0, deadline=26.0)[1]).retry_after == 2.0  # 4 s, and 3


def test_the_first_waiter_needs_the_patience_for_one_service_time():
    """It waits for the rest of a running call, which makes up for its own work."""
    scene = warmed_up()
    assert scene.rejected(scene.arrive("a", 2.0, deadline=3.9)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.arrive("a", 2.0, deadline=4.0)[1] == Queued(None)
    # The second waiter waits for the first waiter's whole call.
    assert scene.rejected(scene.arrive("a", 2.0, deadline=7.9)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.arrive("a", 2.0, deadline=8.0)[1] == Queued(None)


def test_the_first_waiter_held_by_the_pace_still_has_its_work_ahead():
    scene = Scene(permits=2, pace=Pace(rpm=1, tpm=None))
    scene.room.release(scene.queue, scene.granted("a"), None, 2.0)
    _, outcome = scene.arrive("a", 2.0, deadline=62.0)
    assert scene.rejected(outcome).kind is DEADLINE_IN_QUEUE
    assert scene.arrive("a", 2.0, deadline=64.0)[1] == Queued(None)


def test_the_service_time_is_a_mean_of_many_calls():
    """A mean of the last few calls would be mostly noise."""
    queue, rng = UpstreamQueue("local", 8), Random(1)
    means = []
    for number in range(1, 4000):
        queue.learn_service_time(rng.expovariate(10.0), number / 80)
        means.append(queue.mean_service_time or 0.0)
    assert statistics.stdev(means[1000:]) < 0.005  # an eighth of what it is over the last 20 calls
    assert statistics.mean(means) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("every", [0.1, 30.0])
def test_the_service_time_follows_a_change(every: float):
    """Within the later of about 20 s and 40 calls, also where calls are rare."""
    queue = UpstreamQueue("local", 1)
    for number in range(300):
        queue.learn_service_time(1.0, number * every)
    calls = max(40, int(20.0 / every))
    for number in range(calls):
        queue.learn_service_time(5.0, (300 + number) * every)
    assert queue.mean_service_time is not None
    assert 4.0 < queue.mean_service_time <= 5.0


def test_retry_after_is_the_time_until_the_call_would_fit():
    scene = warmed_up()
    for _ in range(4):
        scene.queued("a", 2.0)
    assert scene.rejected(scene.arrive("a", 2.0, deadline=6.0)[1]).retry_after == 8.0


def test_a_flood_of_another_key_is_not_waited_for():
    scene = warmed_up()
    for _ in range(50):
        scene.queued("flood", 2.0)
    assert scene.arrive("a", 2.0, deadline=9.0)[1] == Queued(None)
    assert scene.rejected(scene.arrive("flood", 2.0, deadline=90.0)[1]).kind is DEADLINE_IN_QUEUE


def test_a_waiter_that_left_is_not_waited_for():
    scene = warmed_up()
    large, small = scene.queued("b", 2.0, tokens=1000), scene.queued("b", 2.0, tokens=1)
    newcomer = Waiter("a", INTERACTIVE, 1, math.inf, 2.0)
    scene.queued("a", 2.0, tokens=5)
    assert scene.queue.expected_wait(newcomer, 2.0) == 2.0 * 3
    scene.room.leave(scene.queue, large, 2.0)
    scene.queued("b", 2.0, tokens=1)
    assert scene.queue.expected_wait(newcomer, 2.0) == 2.0 * 4
    scene.room.leave(scene.queue, small, 2.0)
    assert scene.queue.expected_wait(newcomer, 2.0) == 2.0 * 3


def test_a_batch_call_waits_for_all_interactive_calls():
    scene = warmed_up()
    for key in "abc":
        scene.queued(key, 2.0)
    assert scene.rejected(scene.arrive("d", 2.0, BATCH, deadline=11.0)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.arrive("d", 2.0, BATCH, deadline=12.0)[1] == Queued(None)


def test_permits_shorten_the_wait():
    assert warmed_up(4).queue.expected_wait(Waiter("a", INTERACTIVE, 1, math.inf, 2.0), 2.0) == 0.5


def test_a_call_past_its_deadline_is_rejected_even_with_a_free_permit():
    scene = Scene()
    assert scene.rejected(scene.arrive("a", 5.0, deadline=5.0)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.queue.in_flight == 0


def test_a_rejected_call_evicts_nobody():
    scene = warmed_up()
    scene.room = WaitingRoom(1)
    newest = scene.queued("a", 2.0)
    assert scene.rejected(scene.arrive("b", 2.0, deadline=2.5)[1]).kind is DEADLINE_IN_QUEUE
    assert list(scene.queue.models[""].keys["a"].interactive.waiters) == [newest]


# Pacing.


def test_the_pace_holds_calls_while_permits_are_free():
    scene = Scene(permits=9, pace=Pace(60, None))
    scene.granted("a", 100.0)
    second, third = scene.queued("a", 100.0), scene.queued("b", 100.0)
    assert scene.room.grant_next(scene.queue, 100.0) == []
    assert scene.queue.held_until == pytest.approx(101.0)
    assert scene.room.grant_next(scene.queue, 101.0) == [third]
    assert scene.queue.held_until == pytest.approx(102.0)
    assert scene.room.grant_next(scene.queue, 102.0) == [second]
    assert scene.queue.held_until == 0.0


def test_a_waiter_behind_a_large_call_goes_when_that_call_leaves():
    scene = Scene(permits=9, pace=Pace(None, 600))
    scene.granted("a", 100.0, tokens=590)
    large, small = scene.queued("a", 100.0, tokens=100), scene.queued("a", 159.0, tokens=5)
    assert scene.room.grant_next(scene.queue, 160.0) == []
    assert scene.room.leave(scene.queue, large, 160.0) == [small]


def test_rate_06_a_call_larger_than_the_rate_is_rejected_at_once():
    scene = Scene(pace=Pace(None, 600))
    rejection = scene.rejected(scene.arrive("a", tokens=800)[1])
    assert rejection.kind is REQUEST_TOO_LARGE
    assert rejection.retry_after is None
    assert "800" in rejection.message
    assert "`local`" in rejection.message
    assert "600" in rejection.message
    assert "rate.tpm" in rejection.message
    assert scene.room.waiting == 0


def test_a_wait_for_the_pace_counts_against_the_deadline():
    scene = Scene(permits=9, pace=Pace(6, None))
    scene.granted("a", 100.0)
    assert scene.arrive("a", 100.0, deadline=109.0)[0].tokens == 10
    assert scene.rejected(scene.arrive("a", 100.0, deadline=109.0)[1]).retry_after == pytest.approx(10.0)


# Floods.


def medians(flooded: bool, share: float, seed: int, baseline: float) -> tuple[float, float]:
    """A key that uses a share of a queue, optionally beside a key that floods it with 20 times its own share.

    Returns the median seconds of the first key's calls from arrival to end, and the calls served a second.
    """
    random, scene = Random(seed), Scene(permits=8, max_queue=256)
    queue, end = scene.queue, baseline + 120.0
    events: list[tuple[float, int, Waiter | None, str]] = []
    taken: list[float] = []
    served = number = 0

    def add(at: float, waiter: Waiter | None, key: str) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, waiter, key))

    for key, rate, at in [("light", 8 * share, 0.0), ("flood", 80.0, baseline)][: 1 + flooded]:
        while at < end:
            at += random.expovariate(rate)
            add(at, None, key)
    while events:
        now, _, over, key = heapq.heappop(events)
        if now > end:
            break
        going: list[Waiter]
        if over is None:
            newcomer, outcome = scene.arrive(key, now)
            going = [newcomer] if outcome is GRANTED_AT_ONCE else []
        else:
            served += now > baseline
            if key == "light" and over.arrived > baseline:
                taken.append(now - over.arrived)
            going = scene.room.release(queue, over, 10, now)
        for waiter in going:
            add(now + random.lognormvariate(-0.5, 1.0), waiter, waiter.key)
    return statistics.median(taken), served / 120.0


@pytest.mark.parametrize("share", [0.25, 0.4])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("before", [0.0, 300.0])
def test_a_flood_at_most_doubles_the_latency_of_another_key(share: float, seed: int, before: float):
    baseline, _ = medians(False, share, seed, before)
    flooded, throughput = medians(True, share, seed, before)
    assert flooded <= 2 * baseline
    assert throughput == pytest.approx(8.0, rel=0.1)  # and the upstream is as busy as under the flood only
