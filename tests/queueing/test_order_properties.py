"""Under any interleaving no call is lost, served twice or out of turn, and no permit is created or lost."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.pieces import examples

from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, Rejection
from gateway.queueing.pacing import Pace
from gateway.queueing.token_counter import CREDIT_RETAINED, HALF_LIFE_S
from gateway.queueing.upstream_queue import AGING_S, UpstreamQueue, Waiter
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, WaitingRoom

KEYS = st.sampled_from("abcd")
MODELS = st.sampled_from("mmn")
PRIORITIES = st.sampled_from([INTERACTIVE, INTERACTIVE, BATCH])
TOKENS = st.sampled_from([1, 10, 10, 100])
PICK = st.integers(0, 10**6)


class Ledger:
    """A simple model of the counters: each decays separately."""

    def __init__(self) -> None:
        self.counters: dict[str, tuple[float, float]] = {}
        self.credits: dict[str, tuple[float, float]] = {}
        self.last: set[str] = set()

    def value(self, key: str, now: float, of: dict[str, tuple[float, float]] | None = None) -> float:
        amount, at = (self.counters if of is None else of).get(key, (0.0, now))
        return amount * 0.5 ** ((now - at) / HALF_LIFE_S)

    def charge(self, key: str, tokens: float, now: float) -> None:
        self.counters[key] = (self.value(key, now) + tokens, now)

    def enter(self, key: str, calls: list[Waiter], under_way: list[Waiter], now: float) -> None:
        """`calls` wait or hold a permit, before this key's first call."""
        others = {other.key for other in calls} or self.last
        if key in others:
            return

        def settled(other: str) -> float:
            expected = (
                call.tokens * 0.5 ** ((now - call.since) / HALF_LIFE_S) for call in under_way if call.key == other
            )
            return self.value(other, now) - sum(expected)

        own = self.value(key, now)
        full = (settled(other) + self.value(other, now, self.credits) for other in others)
        level = max(own, min(full, default=0.0))
        start = max(own, CREDIT_RETAINED * level)
        self.counters[key], self.credits[key] = (start, now), (level - start, now)


class Room(RuleBasedStateMachine):
    """A room with an unpaced and a paced queue, and a model of where each waiter should be."""

    @initialize(max_queue=st.sampled_from([0, 1, 3, 8, 100]), permits=st.integers(1, 3))
    def open(self, max_queue: int, permits: int) -> None:
        self.now, self.max_queue = 5000.0, max_queue
        self.room = WaitingRoom(max_queue)
        self.queues = [UpstreamQueue("free", permits), UpstreamQueue("paced", permits, Pace(30, 1500))]
        self.ledgers = [Ledger(), Ledger()]
        self.waiting: list[list[Waiter]] = [[], []]  # in order of arrival
        self.going: list[list[Waiter]] = [[], []]
        self.served: set[Waiter] = set()
        self.quotas: list[dict[str, tuple[int, float]]] = [{}, {}]  # by model: calls left, and until when

    def handed(self, at: int, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            assert waiter not in self.served
            self.in_turn(at, waiter)
            self.waiting[at].remove(waiter)
            self.goes(at, waiter)

    def goes(self, at: int, waiter: Waiter) -> None:
        self.served.add(waiter)
        self.going[at].append(waiter)
        self.ledgers[at].charge(waiter.key, waiter.tokens, self.now)
        if waiter.model in self.quotas[at]:
            left, resets_at = self.quotas[at][waiter.model]
            self.quotas[at][waiter.model] = left - 1, resets_at

    def held(self, at: int, waiter: Waiter) -> bool:
        """Whether the quota of its model is used up."""
        left, resets_at = self.quotas[at].get(waiter.model, (1, 0.0))
        return left < 1 and resets_at > self.now

    def in_turn(self, at: int, chosen: Waiter) -> None:
        def late(waiter: Waiter) -> bool:
            return waiter.priority == BATCH and self.now - waiter.arrived < AGING_S

        assert not self.held(at, chosen)
        others = [other for other in self.waiting[at] if not self.held(at, other)]
        counters = self.ledgers[at]
        assert late(chosen) <= min(late(other) for other in others)
        rivals = [other for other in others if late(other) == late(chosen)]
        lowest = min(counters.value(rival.key, self.now) for rival in rivals)
        own = counters.value(chosen.key, self.now)
        assert own <= lowest * (1 + 1e-9) + 1e-9
        assert chosen is next(rival for rival in rivals if rival.key == chosen.key)

    def paced(self, at: int) -> None:
        """What a layer does after an arrival on a queue with a free permit."""
        if self.queues[at].free > 0:
            self.handed(at, self.room.grant_next(self.queues[at], self.now))

    @rule(
        at=st.integers(0, 1),
        key=KEYS,
        priority=PRIORITIES,
        tokens=TOKENS,
        patience=st.sampled_from([math.inf, math.inf, 5.0, 0.0]),
        model=MODELS,
    )
    def arrive(self, at: int, key: str, priority: Priority, tokens: int, patience: float, model: str) -> None:
        waiter = Waiter(key, priority, tokens, self.now + patience, self.now, model)
        outcome = self.room.arrive(self.queues[at], waiter, self.now)
        if outcome is GRANTED_AT_ONCE:
            assert all(self.held(at, other) for other in self.waiting[at])
            self.ledgers[at].enter(key, self.going[at], self.going[at], self.now)
            self.goes(at, waiter)
        elif isinstance(outcome, Rejection):
            assert outcome.kind in (QUEUE_FULL, DEADLINE_IN_QUEUE)
            assert outcome.retry_after is not None
            assert 0.001 <= outcome.retry_after < math.inf
        else:
            if outcome.victim is not None:
                self.displaced(waiter, *outcome.victim)
            calls = self.waiting[at] + self.going[at]
            self.ledgers[at].enter(key, calls, self.going[at], self.now)
            self.waiting[at].append(waiter)
            if outcome.victim is not None:
                self.paced(self.queues.index(outcome.victim[1]))
            self.paced(at)

    @rule(model=MODELS, left=st.integers(0, 2), resets_in=st.sampled_from([0.5, 30.0]))
    def learn(self, model: str, left: int, resets_in: float) -> None:
        """An answer of the paced queue advertises a quota."""
        headers = {"x-ratelimit-remaining-requests": f"{left}", "x-ratelimit-reset-requests": f"{resets_in}"}
        assert self.queues[1].learn(model, headers, self.now)
        assert not self.queues[0].learn(model, headers, self.now)
        self.quotas[1][model] = left, self.now + resets_in
        self.paced(1)

    def displaced(self, newcomer: Waiter, victim: Waiter, queue: UpstreamQueue) -> None:
        everyone = [waiter for waiting in self.waiting for waiter in waiting]
        assert len(everyone) == self.max_queue
        batch = any(waiter.priority == BATCH for waiter in everyone)
        assert victim.priority == (BATCH if batch else INTERACTIVE)
        assert newcomer.priority == INTERACTIVE or batch
        assert newcomer.priority != victim.priority or newcomer.key != victim.key
        peers = [waiter for waiter in everyone if waiter.priority == victim.priority]
        sizes = {peer.key: sum(other.key == peer.key for other in peers) for peer in peers}
        assert sizes[victim.key] == max(sizes.values())
        assert victim.number == max(peer.number for peer in peers if peer.key == victim.key)
        self.waiting[self.queues.index(queue)].remove(victim)
        self.left(self.queues.index(queue), victim)

    def left(self, at: int, waiter: Waiter) -> None:
        if all(other.key != waiter.key for other in self.waiting[at] + self.going[at]):
            self.ledgers[at].last = {waiter.key}

    @precondition(lambda self: any(self.going))
    @rule(pick=PICK, used=st.sampled_from([None, 1, 10, 100]), sent=st.sampled_from([True, True, False]))
    def release(self, pick: int, used: int | None, sent: bool) -> None:
        at = 0 if self.going[0] and (pick % 2 or not self.going[1]) else 1
        waiter = self.going[at].pop(pick % len(self.going[at]))
        used = used if sent else 0
        if used is not None:
            refund = (used - waiter.tokens) * 0.5 ** ((self.now - waiter.since) / HALF_LIFE_S)
            self.ledgers[at].charge(waiter.key, refund, self.now)
        self.left(at, waiter)
        queue = self.queues[at]
        if sent:
            self.handed(at, self.room.release(queue, waiter, used, self.now))
        else:
            self.handed(at, self.room.give_back(queue, waiter, self.now))
        assert self.room.release(queue, waiter, used, self.now) == []
        assert self.room.give_back(queue, waiter, self.now) == []

    @precondition(lambda self: any(self.waiting))
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        at = 0 if self.waiting[0] and (pick % 2 or not self.waiting[1]) else 1
        waiter = self.waiting[at].pop(pick % len(self.waiting[at]))
        self.left(at, waiter)
        self.handed(at, self.room.leave(self.queues[at], waiter, self.now))
        assert self.room.leave(self.queues[at], waiter, self.now) == []

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 40.0, 5000.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.next_event()) <= end:
            self.now = max(self.now, due)
            self.ring()
        self.now = end

    def next_event(self) -> float:
        held = [queue.held_until for queue in self.queues if queue.held_until]
        ends = [waiter.deadline for waiters in self.waiting for waiter in waiters]
        return min(held + ends, default=math.inf)

    def ring(self) -> None:
        """Fire the timers of the paces and of the callers' deadlines."""
        self.now += 0.001
        for at, queue in enumerate(self.queues):
            for waiter in [each for each in self.waiting[at] if each.deadline <= self.now]:
                if waiter in self.waiting[at]:
                    self.waiting[at].remove(waiter)
                    self.left(at, waiter)
                    self.handed(at, self.room.leave(queue, waiter, self.now))
                    assert self.room.too_late(queue, waiter, self.now).kind is DEADLINE_IN_QUEUE
            if queue.held_until and queue.held_until <= self.now:
                self.handed(at, self.room.grant_next(queue, self.now))

    @invariant()
    def every_waiter_is_where_it_should_be(self) -> None:
        for queue, waiting, going in zip(self.queues, self.waiting, self.going, strict=True):
            assert 0 <= queue.free == queue.permits - len(going)
            assert queue.waiting == len(waiting)
            lanes = {(model, key) for model, each in queue.models.items() for key in each.keys}
            assert lanes == {(waiter.model, waiter.key) for waiter in waiting}
            assert queue.active == Counter(waiter.key for waiter in waiting + going)
            if waiting and queue.free:
                assert queue.held_until > self.now, "a free permit is held back by the pace or a quota only"
                free_to_go = queue.first(self.now)
                if free_to_go is not None:
                    assert queue.pace is not None
                    assert queue.pace.wait(free_to_go.tokens, self.now) > 0.0, "a quota holds its own model only"
            assert queue.held_until == 0.0 or waiting
        assert self.room.waiting == sum(map(len, self.waiting)) <= self.max_queue

    def teardown(self) -> None:
        if not hasattr(self, "room"):
            return
        while any(self.going) or any(self.waiting):
            for at, queue in enumerate(self.queues):
                while self.going[at]:
                    waiter = self.going[at].pop()
                    self.handed(at, self.room.release(queue, waiter, None, self.now))
                self.now = max(self.now, queue.held_until) + 0.001
                self.handed(at, self.room.grant_next(queue, self.now))
        for queue in self.queues:
            assert (queue.free, queue.waiting, queue.models, queue.active) == (queue.permits, 0, {}, {})
        assert self.room.waiting == 0


TestRoom = Room.TestCase
TestRoom.settings = examples(120)


@examples(100)
@given(
    st.lists(st.tuples(KEYS, TOKENS), max_size=30),
    st.lists(TOKENS, min_size=8, max_size=8),
    st.sampled_from([1, 10, 100]),
    st.sampled_from([0.01, 0.3, 2.0]),
)
def test_an_aged_batch_call_waits_for_the_deficit_of_other_keys_and_one_call_of_each(
    past: list[tuple[str, int]], sizes: list[int], own: int, gap: float
):
    """All other keys always have an interactive call waiting, whatever their history and call sizes."""
    room, queue, now = WaitingRoom(100), UpstreamQueue("local", 1), 5000.0
    for key, tokens in past:
        waiter = Waiter(key, INTERACTIVE, tokens, math.inf, now)
        assert room.arrive(queue, waiter, now) is GRANTED_AT_ONCE
        room.release(queue, waiter, tokens, now)
    going = Waiter("a", INTERACTIVE, 1, math.inf, now)
    room.arrive(queue, going, now)
    old = Waiter("a", BATCH, own, math.inf, now)
    room.arrive(queue, old, now)
    aged, counters, releases, served = now + AGING_S, {}, 0, dict.fromkeys("bcd", 0.0)
    while going is not old:
        for key in "bcd":
            if "" not in queue.models or key not in queue.models[""].keys:
                tokens = sizes[(releases + ord(key)) % len(sizes)]
                room.arrive(queue, Waiter(key, INTERACTIVE, tokens, math.inf, now), now)
        now += gap
        if now >= aged and not counters:
            counters = {key: queue.token_counter.of(key) for key in "abcd"}
        (going,) = room.release(queue, going, None, now)
        releases += 1
        if counters and going is not old:
            behind = counters["a"] - (counters[going.key] + served[going.key])
            assert behind >= -1e-6 * abs(counters["a"])
            served[going.key] += going.tokens * queue.token_counter.weight(now)
    assert counters, "its class held it until it had aged"
