"""Who goes, who waits, who is turned away; case by case, on plain numbers."""

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
from gateway.queueing.waiting_room import Queued, WaitingRoom


class Scene:
    """A room with one line, and names for its waiters."""

    def __init__(self, permits: int = 1, max_queue: int = 100, pace: Pace | None = None) -> None:
        self.room = WaitingRoom(max_queue)
        self.line = UpstreamQueue("local", permits, pace)

    def come(
        self,
        key: str,
        now: float = 0.0,
        priority: Priority = INTERACTIVE,
        tokens: int = 10,
        deadline: float = math.inf,
        line: UpstreamQueue | None = None,
    ) -> tuple[Waiter, Rejection | Queued | None]:
        waiter = Waiter(key, priority, tokens, deadline, now)
        return waiter, self.room.arrive(line or self.line, waiter, now)

    def goes(self, key: str, now: float = 0.0, tokens: int = 10) -> Waiter:
        waiter, told = self.come(key, now, tokens=tokens)
        assert told is None
        return waiter

    def waits(self, key: str, now: float = 0.0, priority: Priority = INTERACTIVE, tokens: int = 10) -> Waiter:
        waiter, told = self.come(key, now, priority, tokens)
        assert told == Queued(None)
        return waiter

    def refused(self, told: object) -> Rejection:
        assert isinstance(told, Rejection)
        return told

    def drain(self, going: Waiter, now: float = 0.0) -> str:
        """The order in which all who wait go, one after the other."""
        names = ""
        while following := self.room.release(self.line, going, going.tokens, now):
            (going,) = following
            names += going.key
        return names


def test_a_free_permit_is_given_at_once_and_no_more_than_there_are():
    scene = Scene(permits=2)
    scene.goes("a")
    scene.goes("b")
    scene.waits("c")
    assert (scene.line.in_flight, scene.line.waiting, scene.room.waiting) == (2, 1, 1)


def test_a_release_hands_out_a_list_and_a_second_one_nothing():
    scene = Scene()
    first, second = scene.goes("a"), scene.waits("b")
    scene.waits("c")
    assert scene.room.release(scene.line, first, None, 1.0) == [second]
    assert scene.room.release(scene.line, first, None, 1.0) == []
    assert scene.line.in_flight == 1


def test_calls_of_one_key_go_in_order_of_arrival():
    scene = Scene()
    going = scene.goes("x")
    waiters = [scene.waits("a", tokens=size) for size in (30, 1, 20)]
    for waiter in waiters:
        assert scene.room.release(scene.line, going, None, 1.0) == [waiter]
        going = waiter


def test_the_key_with_the_fewest_tokens_goes_first():
    scene = Scene()
    going = scene.goes("x", tokens=100)
    for key in "xxaabb":
        scene.waits(key)
    assert scene.drain(going) == "ababxx"


def test_tokens_count_not_calls():
    scene = Scene()
    going = scene.goes("x")
    for key, tokens in [("a", 40), ("a", 40), ("b", 10), ("b", 10), ("b", 10), ("b", 10), ("b", 10)]:
        scene.waits(key, tokens=tokens)
    assert scene.drain(going) == "abbbbab"


def test_the_real_tokens_replace_the_estimate():
    scene = Scene(permits=2)
    dear, going = scene.goes("a", tokens=100), scene.goes("b", tokens=50)
    assert scene.room.release(scene.line, dear, 10, 5.0) == []
    going_too = scene.goes("x", 5.0)
    a, b = scene.waits("a", 6.0), scene.waits("b", 5.5)
    assert scene.room.release(scene.line, going, 50, 6.0) == [a]
    assert scene.room.release(scene.line, going_too, 10, 6.0) == [b]


def had(counter: VirtualTokenCounter, key: str, tokens: float, at: float) -> None:
    """A call that took just so many."""
    counter.charge(key, tokens, at)
    counter.settle(key, tokens, tokens, at)


def test_an_estimate_taken_back_earns_nothing():
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
    scene.room.release(scene.line, scene.goes("a", tokens=1000), None, 0.0)
    level = scene.line.token_counter.of("a")
    going = scene.goes("a", tokens=500)  # what it takes is not known yet
    scene.waits("a", tokens=1000)
    scene.waits("b")
    assert scene.line.token_counter.of("b") == pytest.approx(CREDIT_RETAINED * level)
    assert level > 0
    scene.room.release(scene.line, going, None, 0.0)


def test_who_comes_after_a_key_that_never_waited_has_no_more_credit_than_that():
    scene = Scene()
    scene.room.release(scene.line, scene.goes("a", tokens=1000), None, 0.0)
    level = scene.line.token_counter.of("a")
    going = scene.goes("b")
    scene.waits("b")
    assert scene.line.token_counter.of("b") == pytest.approx(CREDIT_RETAINED * level + 10)
    scene.room.release(scene.line, going, None, 0.0)


def test_keys_that_come_back_one_after_the_other_have_the_same_credit():
    counter = VirtualTokenCounter()
    had(counter, "a", 1000, 0.0)
    counter.enter("a", [])
    counter.enter("b", ["a"])
    counter.enter("c", ["a", "b"])
    assert counter.of("c") == counter.of("b")


def test_a_credit_decays_as_the_counters_do():
    counter = VirtualTokenCounter()
    had(counter, "a", 1000, 0.0)
    counter.enter("a", [])
    counter.enter("b", ["a"])
    later = 100 * HALF_LIFE_S
    had(counter, "b", 8, later)
    assert counter.entering("c", ["b"]) == pytest.approx(CREDIT_RETAINED * 8)


def test_interactive_goes_before_batch():
    scene = Scene()
    going = scene.goes("x")
    scene.waits("a", priority=BATCH)
    scene.waits("b", tokens=1000)
    scene.waits("b")
    assert scene.drain(going) == "bba"


def test_a_batch_call_that_has_aged_counts_as_interactive():
    scene = Scene()
    going = scene.goes("x", 0.0)
    scene.waits("a", 0.0, BATCH)
    scene.waits("b", 1.0)
    scene.waits("b", 1.0)
    assert scene.drain(going, AGING_S) == "abb"


def test_an_aged_batch_call_does_not_go_before_older_ones_of_its_key():
    scene = Scene()
    going = scene.goes("x", 0.0)
    older = scene.waits("a", 0.0)
    scene.waits("a", 1.0, BATCH)
    assert scene.room.release(scene.line, going, None, 1.0 + AGING_S) == [older]


def test_an_aged_batch_call_waits_one_turn_of_each_key_at_most():
    """However many interactive calls keep coming, and its own key's newer ones do not go before it."""
    scene = Scene(max_queue=10_000)
    going, now, turns = scene.goes("x"), 0.0, 0
    old = scene.waits("a", 0.0, BATCH)
    while going is not old:
        for key in "abcd":
            scene.waits(key, now)
        now += 0.25
        (going,) = scene.room.release(scene.line, going, None, now)
        turns += now > AGING_S
    assert turns <= 4
    assert now <= AGING_S + 4 * 0.25


def test_who_leaves_frees_the_place_at_once():
    scene = Scene(max_queue=1)
    scene.goes("a")
    gone = scene.waits("a")
    assert scene.room.leave(scene.line, gone, 1.0) == []
    assert scene.room.leave(scene.line, gone, 1.0) == []
    assert scene.room.waiting == scene.line.waiting == 0
    scene.waits("a")


def test_a_permit_that_was_not_used_costs_nothing():
    scene = Scene()
    waiter = scene.goes("a")
    scene.room.give_back(scene.line, waiter, 1.0)
    assert scene.room.release(scene.line, waiter, 10, 1.0) == []
    assert scene.line.in_flight == 0
    assert scene.line.token_counter.of("a") == 0.0
    assert scene.line.drain_time(1, 0.0) is None  # and tells nothing about how long a permit is held


# The room is full.


def test_nobody_waits_where_nobody_may():
    scene = Scene(max_queue=0)
    scene.goes("a")
    refusal = scene.refused(scene.come("a")[1])
    assert (refusal.kind, refusal.retry_after) == (QUEUE_FULL, 1.0)


def test_the_key_with_the_most_waiters_gives_up_its_newest_one():
    scene = Scene(max_queue=3)
    going = scene.goes("x")
    scene.waits("b")
    scene.waits("a")
    newest = scene.waits("a")
    _, told = scene.come("c")
    assert told == Queued((newest, scene.line))
    assert scene.room.waiting == 3
    assert sorted(scene.drain(going)) == ["a", "b", "c"]


def test_the_key_with_the_most_waiters_is_refused_itself():
    scene = Scene(max_queue=2)
    scene.goes("x")
    scene.waits("a")
    scene.waits("b")
    assert scene.refused(scene.come("a")[1]).kind is QUEUE_FULL


def test_batch_gives_way_first_also_to_its_own_key():
    scene = Scene(max_queue=3)
    scene.goes("x")
    scene.waits("b")
    scene.waits("b")
    newest = scene.waits("a", priority=BATCH)
    _, told = scene.come("a")
    assert told == Queued((newest, scene.line))


def test_batch_displaces_no_interactive_call():
    scene = Scene(max_queue=2)
    scene.goes("x")
    scene.waits("a")
    scene.waits("a")
    assert scene.refused(scene.come("b", priority=BATCH)[1]).kind is QUEUE_FULL


def test_the_room_is_one_for_all_lines():
    scene = Scene(max_queue=2)
    other = UpstreamQueue("other", 1)
    scene.goes("x")
    assert scene.come("x", line=other)[1] is None
    scene.waits("a")
    newest, told = scene.come("a", line=other)
    assert told == Queued(None)
    _, told = scene.come("b")
    assert told == Queued((newest, other))
    assert (scene.line.waiting, other.waiting) == (2, 0)


def test_a_full_room_tells_when_a_place_frees():
    scene = Scene(permits=2, max_queue=1)
    first = scene.goes("a", 0.0)
    scene.goes("a", 0.0)
    scene.room.release(scene.line, first, None, 4.0)
    scene.goes("a", 4.0)
    scene.waits("a", 4.0)
    assert scene.refused(scene.come("a", 4.0)[1]).retry_after == 2.0


def test_of_an_upstream_that_hangs_it_tells_as_long_again_as_that_has_lasted():
    """The mean is of quick calls, and says that a place frees any moment."""
    scene = Scene(permits=2, max_queue=1)
    for at in (0.0, 0.1):
        scene.room.release(scene.line, scene.goes("a", at), None, at + 0.01)
    stuck, _ = scene.goes("a", 1.0), scene.goes("a", 1.0)
    scene.waits("a", 1.0)
    told = [scene.refused(scene.come("a", at)[1]).retry_after for at in (1.001, 3.0, 9.0)]
    assert told == [pytest.approx(0.005), 2.0, 5.0]
    late = scene.refused(scene.come("a", 3.0, deadline=3.0)[1])
    assert (late.kind, late.retry_after) == (DEADLINE_IN_QUEUE, pytest.approx(2.0))
    (following,) = scene.room.release(scene.line, stuck, None, 9.0)
    assert following.since == 9.0
    assert scene.line.stalled_for(9.5) == 0.5


def test_what_it_tells_is_never_nought():
    scene = Scene(max_queue=0)
    first = scene.goes("a", 0.0)
    scene.room.release(scene.line, first, None, 0.0)
    scene.goes("a", 0.0)
    assert scene.refused(scene.come("a", 0.0)[1]).retry_after == 0.001


# The caller's deadline.


def known(permits: int = 1, hold: float = 2.0) -> Scene:
    """All permits taken, each held for about so long."""
    scene = Scene(permits)
    scene.room.release(scene.line, scene.goes("x", 0.0, 1), None, hold)
    for _ in range(permits):
        scene.goes("x", hold, 1)
    return scene


def test_while_nothing_is_known_everybody_may_try():
    scene = Scene()
    scene.goes("a")
    assert scene.come("a", deadline=0.001)[1] == Queued(None)


def test_who_would_wait_longer_than_its_caller_is_refused_at_the_door():
    scene = known()
    scene.waits("a", 2.0)  # goes at 4.0, and a second one at 6.0, which is answered at 8.0
    assert scene.come("a", 2.0, deadline=8.0)[1] == Queued(None)
    refusal = scene.refused(scene.come("a", 2.0, deadline=9.0)[1])
    assert refusal.kind is DEADLINE_IN_QUEUE
    assert refusal.retry_after == 2.0  # its caller waits 7 s, it would take 8; but no sooner than one hold
    assert scene.room.waiting == 2


def test_a_stream_need_only_begin_in_time():
    scene = known()
    scene.waits("a", 2.0)
    whole, stream = (Waiter("a", INTERACTIVE, 10, 7.0, 2.0) for _ in range(2))
    stream.stream = True
    assert scene.refused(scene.room.arrive(scene.line, whole, 2.0)).kind is DEADLINE_IN_QUEUE
    assert scene.room.arrive(scene.line, stream, 2.0) == Queued(None)


def test_a_short_call_among_long_ones_may_wait_for_half_of_its_patience():
    scene = known(permits=10, hold=20.0)
    assert scene.come("a", 20.0, deadline=24.0)[1] == Queued(None)  # for 2 s, and is worked on for 2
    assert scene.refused(scene.come("a", 20.0, deadline=26.0)[1]).retry_after == 2.0  # 4 s, and 3


def test_the_first_in_line_needs_the_patience_for_one_whole_hold():
    """It waits for the rest of a call that is under way, which makes up for its own work."""
    scene = known()
    assert scene.refused(scene.come("a", 2.0, deadline=3.9)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.come("a", 2.0, deadline=4.0)[1] == Queued(None)
    # The second one waits for the first one's whole call.
    assert scene.refused(scene.come("a", 2.0, deadline=7.9)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.come("a", 2.0, deadline=8.0)[1] == Queued(None)


def test_the_first_in_line_that_waits_for_the_pace_has_its_work_still_before_it():
    scene = Scene(permits=2, pace=Pace(rpm=1, tpm=None))
    scene.room.release(scene.line, scene.goes("a"), None, 2.0)
    _, told = scene.come("a", 2.0, deadline=62.0)
    assert scene.refused(told).kind is DEADLINE_IN_QUEUE
    assert scene.come("a", 2.0, deadline=64.0)[1] == Queued(None)


def test_a_hold_is_a_mean_of_many_calls():
    """Of the last ones only it would be as much chance as knowledge."""
    line, rng = UpstreamQueue("local", 8), Random(1)
    means = []
    for number in range(1, 4000):
        line.learn_service_time(rng.expovariate(10.0), number / 80)
        means.append(line.mean_service_time or 0.0)
    assert statistics.stdev(means[1000:]) < 0.005  # an eighth of what it is over the last 20 calls
    assert statistics.mean(means) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("every", [0.1, 30.0])
def test_a_hold_follows_a_change(every: float):
    """Within the later of about 20 s and 40 calls, also where calls are rare."""
    line = UpstreamQueue("local", 1)
    for number in range(300):
        line.learn_service_time(1.0, number * every)
    calls = max(40, int(20.0 / every))
    for number in range(calls):
        line.learn_service_time(5.0, (300 + number) * every)
    assert line.mean_service_time is not None
    assert 4.0 < line.mean_service_time <= 5.0


def test_it_is_told_when_it_would_fit():
    scene = known()
    for _ in range(4):
        scene.waits("a", 2.0)
    assert scene.refused(scene.come("a", 2.0, deadline=6.0)[1]).retry_after == 8.0


def test_a_flood_of_another_key_is_not_waited_for():
    scene = known()
    for _ in range(50):
        scene.waits("flood", 2.0)
    assert scene.come("a", 2.0, deadline=9.0)[1] == Queued(None)
    assert scene.refused(scene.come("flood", 2.0, deadline=90.0)[1]).kind is DEADLINE_IN_QUEUE


def test_who_has_left_is_not_waited_for():
    scene = known()
    large, small = scene.waits("b", 2.0, tokens=1000), scene.waits("b", 2.0, tokens=1)
    newcomer = Waiter("a", INTERACTIVE, 1, math.inf, 2.0)
    scene.waits("a", 2.0, tokens=5)
    assert scene.line.expected_wait(newcomer, 2.0) == 2.0 * 3
    scene.room.leave(scene.line, large, 2.0)
    scene.waits("b", 2.0, tokens=1)
    assert scene.line.expected_wait(newcomer, 2.0) == 2.0 * 4
    scene.room.leave(scene.line, small, 2.0)
    assert scene.line.expected_wait(newcomer, 2.0) == 2.0 * 3


def test_batch_waits_for_all_that_is_interactive():
    scene = known()
    for key in "abc":
        scene.waits(key, 2.0)
    assert scene.refused(scene.come("d", 2.0, BATCH, deadline=11.0)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.come("d", 2.0, BATCH, deadline=12.0)[1] == Queued(None)


def test_permits_shorten_the_wait():
    assert known(4).line.expected_wait(Waiter("a", INTERACTIVE, 1, math.inf, 2.0), 2.0) == 0.5


def test_a_deadline_that_has_passed_is_refused_though_a_permit_is_free():
    scene = Scene()
    assert scene.refused(scene.come("a", 5.0, deadline=5.0)[1]).kind is DEADLINE_IN_QUEUE
    assert scene.line.in_flight == 0


def test_who_is_refused_leaves_nobody_displaced():
    scene = known()
    scene.room = WaitingRoom(1)
    newest = scene.waits("a", 2.0)
    assert scene.refused(scene.come("b", 2.0, deadline=2.5)[1]).kind is DEADLINE_IN_QUEUE
    assert list(scene.line.keys["a"].interactive.waiters) == [newest]


# Pacing.


def test_the_pace_holds_calls_though_permits_are_free():
    scene = Scene(permits=9, pace=Pace(60, None))
    scene.goes("a", 100.0)
    second, third = scene.waits("a", 100.0), scene.waits("b", 100.0)
    assert scene.room.next(scene.line, 100.0) == []
    assert scene.line.held_until == pytest.approx(101.0)
    assert scene.room.next(scene.line, 101.0) == [third]
    assert scene.line.held_until == pytest.approx(102.0)
    assert scene.room.next(scene.line, 102.0) == [second]
    assert scene.line.held_until == 0.0


def test_who_waits_behind_a_large_one_goes_when_that_leaves():
    scene = Scene(permits=9, pace=Pace(None, 600))
    scene.goes("a", 100.0, tokens=590)
    large, small = scene.waits("a", 100.0, tokens=100), scene.waits("a", 159.0, tokens=5)
    assert scene.room.next(scene.line, 160.0) == []
    assert scene.room.leave(scene.line, large, 160.0) == [small]


def test_rate_06_a_call_larger_than_the_rate_is_refused_at_once():
    scene = Scene(pace=Pace(None, 600))
    refusal = scene.refused(scene.come("a", tokens=800)[1])
    assert refusal.kind is REQUEST_TOO_LARGE
    assert refusal.retry_after is None
    assert "800" in refusal.message
    assert "`local`" in refusal.message
    assert "600" in refusal.message
    assert "rate.tpm" in refusal.message
    assert scene.room.waiting == 0


def test_a_wait_for_the_pace_counts_against_the_deadline():
    scene = Scene(permits=9, pace=Pace(6, None))
    scene.goes("a", 100.0)
    assert scene.come("a", 100.0, deadline=109.0)[0].tokens == 10
    assert scene.refused(scene.come("a", 100.0, deadline=109.0)[1]).retry_after == pytest.approx(10.0)


# Floods.


def medians(flooded: bool, share: float, seed: int, alone: float) -> tuple[float, float]:
    """A key that uses a share of a line, and maybe one that floods it with 20 times its own: the median
    time of the first key's calls from arrival to end, and the calls served a second."""
    random, scene = Random(seed), Scene(permits=8, max_queue=256)
    line, end = scene.line, alone + 120.0
    events: list[tuple[float, int, Waiter | None, str]] = []
    taken: list[float] = []
    served = number = 0

    def add(at: float, waiter: Waiter | None, key: str) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, waiter, key))

    for key, rate, at in [("light", 8 * share, 0.0), ("flood", 80.0, alone)][: 1 + flooded]:
        while at < end:
            at += random.expovariate(rate)
            add(at, None, key)
    while events:
        now, _, over, key = heapq.heappop(events)
        if now > end:
            break
        going: list[Waiter]
        if over is None:
            newcomer, told = scene.come(key, now)
            going = [newcomer] if told is None else []
        else:
            served += now > alone
            if key == "light" and over.arrived > alone:
                taken.append(now - over.arrived)
            going = scene.room.release(line, over, 10, now)
        for waiter in going:
            add(now + random.lognormvariate(-0.5, 1.0), waiter, waiter.key)
    return statistics.median(taken), served / 120.0


@pytest.mark.parametrize("share", [0.25, 0.4])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("before", [0.0, 300.0])
def test_a_flood_of_20_times_its_share_leaves_another_key_within_twice_what_it_is_alone(
    share: float, seed: int, before: float
):
    alone, _ = medians(False, share, seed, before)
    flooded, throughput = medians(True, share, seed, before)
    assert flooded <= 2 * alone
    assert throughput == pytest.approx(8.0, rel=0.1)  # and the line is as full as a flood alone would keep it
