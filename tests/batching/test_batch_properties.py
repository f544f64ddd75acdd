"""Under any interleaving nobody is lost or sent twice, and batches keep their bounds and the fair order."""

import math
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.pieces import examples

from gateway.batching.batcher import Batcher, BatchLimits, PendingBatch
from gateway.batching.pending import PendingCall
from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchOutcome, BatchTuner
from gateway.core.caller import BATCH, INTERACTIVE, Priority

PICK = st.integers(0, 10**6)
BOUNDS = st.builds(
    BatchLimits,
    st.sampled_from(["eager", "eager", "window"]),
    max_size=st.sampled_from([1, 2, 3, 8]),
    max_tokens=st.sampled_from([20, 100, 1000]),
    max_wait=st.sampled_from([0.0, 0.05, 1.0]),
    max_inflight=st.integers(1, 3),
    max_items=st.sampled_from([1, 4, 100]),
)
OUTCOMES = st.sampled_from([OK, OK, OK, FAILED, OVERLOADED])


class Sent:
    """A call that went alone (`batch` is None), or a batch from its start to its end.

    `apart`: it takes nobody's slot.
    """

    def __init__(
        self, batch: PendingBatch | None, members: list[PendingCall], now: float, *, apart: bool
    ) -> None:
        self.batch, self.members, self.at, self.apart = batch, members, now, apart


class Callers(RuleBasedStateMachine):
    """A batcher beside lists of who should be where."""

    @initialize(bounds=BOUNDS)
    def open(self, bounds: BatchLimits) -> None:
        self.now, self.bounds = 5000.0, bounds
        self.tuning = BatchTuner(bounds.max_size, bounds.max_inflight)
        self.batcher = Batcher(bounds, self.tuning)
        self.waiting: list[PendingCall] = []  # in order of arrival
        self.behind: set[str] = set()  # callers whom a choice has left behind
        self.tickets: list[PendingBatch] = []
        self.sent: list[Sent] = []
        self.seen: set[PendingCall] = set()  # all that were sent

    def started(self, batches: list[PendingBatch], oldest: float) -> None:
        """Each has a reason to start."""
        for batch in batches:
            if batch.sealed:
                (member,) = batch.members
                assert batch.flush_reason == "window"
                assert member.deadline < math.inf
                self.goes(batch, [member])
                continue
            assert batch.first in self.waiting
            if batch.flush_reason == "slot":
                assert self.bounds.policy == "eager"
                assert self.taken() < self.bounds.max_inflight
            elif batch.flush_reason == "window":
                assert oldest + self.bounds.max_wait <= self.now
                assert self.bounds.policy == "window" or self.bounds.max_wait > 0
            elif batch.flush_reason == "tokens":
                assert sum(one.tokens for one in self.waiting) >= self.bounds.max_tokens
            else:
                items = sum(one.items for one in self.waiting)
                assert batch.flush_reason == "size"
                assert len(self.waiting) >= self.tuning.size or items >= self.bounds.max_items
            self.tickets.append(batch)

    def taken(self) -> int:
        """Slots that are."""
        return len(self.tickets) + sum(not one.apart for one in self.sent)

    def goes(self, batch: PendingBatch | None, members: list[PendingCall], *, apart: bool = False) -> None:
        assert not self.seen.intersection(members)
        self.seen.update(members)
        self.waiting = [one for one in self.waiting if one not in members]
        self.sent.append(Sent(batch, members, self.now, apart=apart))

    def oldest(self) -> float:
        return min((one.arrived for one in self.waiting), default=math.inf)

    @rule(
        key=st.sampled_from("aaaabcd"),
        items=st.sampled_from([1, 1, 1, 2, 4]),
        tokens=st.sampled_from([1, 5, 10, 10, 40, 600]),
        priority=st.sampled_from([INTERACTIVE, INTERACTIVE, BATCH]),
        patience=st.sampled_from([math.inf] * 4 + [3.0, 0.1]),
        number=st.sampled_from([1, 1, 2, 5]),
    )
    def arrive(
        self, key: str, items: int, tokens: int, priority: Priority, patience: float, number: int
    ) -> None:
        for _ in range(number):
            member = PendingCall(key, items, tokens, self.now, self.now + patience, priority)
            taken = self.taken()
            told = self.batcher.arrive(member, self.now)
            if isinstance(told, list):
                self.waiting.append(member)
                self.started(told, self.oldest())
            else:
                if told == "idle":
                    assert self.bounds.policy == "eager"
                    assert taken < self.bounds.max_inflight
                    assert not self.waiting
                elif told == "tokens":
                    assert 2 * tokens > self.bounds.max_tokens
                elif told == "size":
                    assert items >= self.bounds.max_items or self.bounds.max_size == 1
                else:
                    assert patience < math.inf
                self.goes(None, [member], apart=told != "idle")

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK)
    def seal(self, pick: int) -> None:
        batch = self.tickets.pop(pick % len(self.tickets))
        before = list(self.waiting)
        members = self.batcher.take(batch, self.now)
        assert batch.members is members is self.batcher.take(batch, self.now)
        assert set(members) <= set(before)
        self.goes(batch, members)
        self.within_bounds(members)
        self.in_turn(members, before)
        if all(one.deadline == math.inf for one in before):
            self.fair(members)
        self.behind = {one.key for one in self.waiting}

    def within_bounds(self, members: list[PendingCall]) -> None:
        assert len(set(members)) == len(members) <= self.tuning.size
        assert sum(one.items for one in members) <= self.bounds.max_items
        assert sum(one.tokens for one in members) <= self.bounds.max_tokens
        assert members or not self.waiting

    def in_turn(self, members: list[PendingCall], before: list[PendingCall]) -> None:
        """Within a caller and class the order is that of arrival."""
        for lane in {(one.key, one.priority) for one in members}:
            lined = [one for one in before if (one.key, one.priority) == lane]
            taken = [one for one in members if (one.key, one.priority) == lane]
            assert taken == lined[: len(taken)]

    def fair(self, members: list[PendingCall]) -> None:
        """Nobody who fits is left, and a second one of a caller keeps no newcomer out."""
        calls, items = len(members), sum(one.items for one in members)
        tokens = sum(one.tokens for one in members)
        most = max(Counter(one.key for one in members).values(), default=0)
        for key in {one.key for one in self.waiting}:
            own = [one for one in self.waiting if one.key == key]
            first = next((one for one in own if one.priority == INTERACTIVE), own[0])
            if own[0] is not first:
                continue  # which of them is next depends on the age
            fits = items + first.items <= self.bounds.max_items
            fits = fits and tokens + first.tokens <= self.bounds.max_tokens
            assert not fits or calls == self.tuning.size
            kept_out = key not in {one.key for one in members} | self.behind
            if fits and kept_out and first.priority == INTERACTIVE:
                assert most == 1

    @precondition(lambda self: self.sent)
    @rule(pick=PICK, outcome=OUTCOMES)
    def end(self, pick: int, outcome: BatchOutcome) -> None:
        self.over(self.sent.pop(pick % len(self.sent)), outcome)

    def over(self, one: Sent, outcome: BatchOutcome) -> None:
        tokens = sum(member.tokens for member in one.members)
        took = self.now - one.at
        started = self.batcher.ended(
            one.batch, len(one.members), tokens, took, outcome, self.now, apart=one.apart
        )
        self.started(started, self.oldest())

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        """A batch ends before it was sealed: those who wait for it go with another."""
        batch = self.tickets.pop(pick % len(self.tickets))
        self.started(self.batcher.ended(batch, 0, 0, 0.0, FAILED, self.now), self.oldest())
        assert self.batcher.take(batch, self.now) == batch.members

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        member = self.waiting.pop(pick % len(self.waiting))
        surplus = self.batcher.leave(member)
        assert surplus == ([] if self.waiting else self.tickets)
        for batch in surplus:
            self.tickets.remove(batch)
            assert self.batcher.take(batch, self.now) == []
            self.sent.append(Sent(batch, [], self.now, apart=False))
        assert self.batcher.leave(member) == []

    @precondition(lambda self: self.seen)
    @rule(pick=PICK)
    def leave_too_late(self, pick: int) -> None:
        gone = sorted(self.seen, key=lambda one: (one.arrived, id(one)))[pick % len(self.seen)]
        assert self.batcher.leave(gone) == []

    @rule(together=st.booleans())
    def steer(self, together: bool) -> None:
        """Another way is taken, while calls are under way."""
        self.tuning.together(together)

    @rule(seconds=st.sampled_from([0.0, 0.0005, 0.01, 0.2, 40.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.batcher.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.started(self.batcher.due(self.now), self.oldest())
            then = self.batcher.next_due()
            assert then is None or then > self.now, "a timer that rings for nothing would ring for ever"
        self.now = end

    @invariant()
    def everybody_is_where_he_should_be(self) -> None:
        assert self.batcher.waiting == len(self.waiting)
        assert self.batcher.under_way == len(self.tickets) + len(self.sent)
        assert 1 <= self.tuning.size <= self.bounds.max_size
        assert 1 <= self.tuning.inflight <= self.bounds.max_inflight
        if len(self.waiting) > len(self.tickets) * self.tuning.size:
            due = self.batcher.next_due()
            assert due is not None or self.taken(), "nothing would ever start a batch"
            if self.bounds.max_wait or self.bounds.policy == "window":
                assert due is not None
                assert due <= self.oldest() + self.bounds.max_wait

    def teardown(self) -> None:
        if not hasattr(self, "batcher"):
            return
        rounds = 0
        while not self.batcher.idle:
            rounds += 1
            assert rounds < 1000
            while self.tickets:
                self.seal(0)
            while self.sent:
                self.over(self.sent.pop(), OK)
            self.time_passes(0.2)
        assert not self.waiting
        assert self.batcher.next_due() is None


TestCallers = Callers.TestCase
TestCallers.settings = examples(150)
