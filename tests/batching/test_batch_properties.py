"""Under any interleaving no call is lost or sent twice; batches respect their limits and the fair order."""

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
LIMITS = st.builds(
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
    """A single call (`batch` is None), or a batch from its start to its end.

    `bypassed`: it uses no slot.
    """

    def __init__(self, batch: PendingBatch | None, members: list[PendingCall], now: float, *, bypassed: bool) -> None:
        self.batch, self.members, self.at, self.bypassed = batch, members, now, bypassed


class Callers(RuleBasedStateMachine):
    """A batcher, and a model of where each call should be."""

    @initialize(limits=LIMITS)
    def open(self, limits: BatchLimits) -> None:
        self.now, self.limits = 5000.0, limits
        self.tuner = BatchTuner(limits.max_size, limits.max_inflight)
        self.batcher = Batcher(limits, self.tuner)
        self.waiting: list[PendingCall] = []  # in order of arrival
        self.behind: set[str] = set()  # keys that a batch has left behind
        self.tickets: list[PendingBatch] = []
        self.sent: list[Sent] = []
        self.seen: set[PendingCall] = set()  # all calls that were sent

    def started(self, batches: list[PendingBatch], oldest: float) -> None:
        """Check that each batch has a reason to start."""
        for batch in batches:
            if batch.sealed:
                (member,) = batch.members
                assert batch.flush_reason == "window"
                assert member.deadline < math.inf
                self.goes(batch, [member])
                continue
            assert batch.first in self.waiting
            if batch.flush_reason == "slot":
                assert self.limits.policy == "eager"
                assert self.slots_used() < self.limits.max_inflight
            elif batch.flush_reason == "window":
                assert oldest + self.limits.max_wait <= self.now
                assert self.limits.policy == "window" or self.limits.max_wait > 0
            elif batch.flush_reason == "tokens":
                assert sum(call.tokens for call in self.waiting) >= self.limits.max_tokens
            else:
                items = sum(call.items for call in self.waiting)
                assert batch.flush_reason == "size"
                assert len(self.waiting) >= self.tuner.size or items >= self.limits.max_items
            self.tickets.append(batch)

    def slots_used(self) -> int:
        """Slots in use."""
        return len(self.tickets) + sum(not call.bypassed for call in self.sent)

    def goes(self, batch: PendingBatch | None, members: list[PendingCall], *, bypassed: bool = False) -> None:
        assert not self.seen.intersection(members)
        self.seen.update(members)
        self.waiting = [call for call in self.waiting if call not in members]
        self.sent.append(Sent(batch, members, self.now, bypassed=bypassed))

    def oldest(self) -> float:
        return min((call.arrived for call in self.waiting), default=math.inf)

    @rule(
        key=st.sampled_from("aaaabcd"),
        items=st.sampled_from([1, 1, 1, 2, 4]),
        tokens=st.sampled_from([1, 5, 10, 10, 40, 600]),
        priority=st.sampled_from([INTERACTIVE, INTERACTIVE, BATCH]),
        patience=st.sampled_from([math.inf] * 4 + [3.0, 0.1]),
        number=st.sampled_from([1, 1, 2, 5]),
    )
    def arrive(self, key: str, items: int, tokens: int, priority: Priority, patience: float, number: int) -> None:
        for _ in range(number):
            member = PendingCall(key, items, tokens, self.now, self.now + patience, priority)
            used = self.slots_used()
            outcome = self.batcher.arrive(member, self.now)
            if isinstance(outcome, list):
                self.waiting.append(member)
                self.started(outcome, self.oldest())
            else:
                if outcome == "idle":
                    assert self.limits.policy == "eager"
                    assert used < self.limits.max_inflight
                    assert not self.waiting
                elif outcome == "tokens":
                    assert 2 * tokens > self.limits.max_tokens
                elif outcome == "size":
                    assert items >= self.limits.max_items or self.limits.max_size == 1
                else:
                    assert patience < math.inf
                self.goes(None, [member], bypassed=outcome != "idle")

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK)
    def seal(self, pick: int) -> None:
        batch = self.tickets.pop(pick % len(self.tickets))
        before = list(self.waiting)
        members = self.batcher.take(batch, self.now)
        assert batch.members is members is self.batcher.take(batch, self.now)
        assert set(members) <= set(before)
        self.goes(batch, members)
        self.within_limits(members)
        self.in_turn(members, before)
        if all(call.deadline == math.inf for call in before):
            self.fair(members)
        self.behind = {call.key for call in self.waiting}

    def within_limits(self, members: list[PendingCall]) -> None:
        assert len(set(members)) == len(members) <= self.tuner.size
        assert sum(call.items for call in members) <= self.limits.max_items
        assert sum(call.tokens for call in members) <= self.limits.max_tokens
        assert members or not self.waiting

    def in_turn(self, members: list[PendingCall], before: list[PendingCall]) -> None:
        """Check that calls of one key and class go in order of arrival."""
        for lane in {(call.key, call.priority) for call in members}:
            lined = [call for call in before if (call.key, call.priority) == lane]
            sent = [call for call in members if (call.key, call.priority) == lane]
            assert sent == lined[: len(sent)]

    def fair(self, members: list[PendingCall]) -> None:
        """No call that fits is left behind, and a second call of a key excludes no other key."""
        calls, items = len(members), sum(call.items for call in members)
        tokens = sum(call.tokens for call in members)
        most = max(Counter(call.key for call in members).values(), default=0)
        for key in {call.key for call in self.waiting}:
            own = [call for call in self.waiting if call.key == key]
            first = next((call for call in own if call.priority == INTERACTIVE), own[0])
            if own[0] is not first:
                continue  # which of the two is next depends on its age
            fits = items + first.items <= self.limits.max_items
            fits = fits and tokens + first.tokens <= self.limits.max_tokens
            assert not fits or calls == self.tuner.size
            excluded = key not in {call.key for call in members} | self.behind
            if fits and excluded and first.priority == INTERACTIVE:
                assert most == 1

    @precondition(lambda self: self.sent)
    @rule(pick=PICK, outcome=OUTCOMES)
    def end(self, pick: int, outcome: BatchOutcome) -> None:
        self.over(self.sent.pop(pick % len(self.sent)), outcome)

    def over(self, call: Sent, outcome: BatchOutcome) -> None:
        tokens = sum(member.tokens for member in call.members)
        took = self.now - call.at
        started = self.batcher.ended(
            call.batch, len(call.members), tokens, took, outcome, self.now, bypassed=call.bypassed
        )
        self.started(started, self.oldest())

    @precondition(lambda self: self.tickets)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        """A batch ends unsealed: its calls go with another."""
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
            self.sent.append(Sent(batch, [], self.now, bypassed=False))
        assert self.batcher.leave(member) == []

    @precondition(lambda self: self.seen)
    @rule(pick=PICK)
    def leave_too_late(self, pick: int) -> None:
        gone = sorted(self.seen, key=lambda call: (call.arrived, id(call)))[pick % len(self.seen)]
        assert self.batcher.leave(gone) == []

    @rule(lockstep=st.booleans())
    def switch_mode(self, lockstep: bool) -> None:
        """Switch the merge mode while calls are in flight."""
        self.tuner.set_lockstep(lockstep)

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
    def every_call_is_where_it_should_be(self) -> None:
        assert self.batcher.waiting == len(self.waiting)
        assert self.batcher.under_way == len(self.tickets) + len(self.sent)
        assert 1 <= self.tuner.size <= self.limits.max_size
        assert 1 <= self.tuner.inflight <= self.limits.max_inflight
        if len(self.waiting) > len(self.tickets) * self.tuner.size:
            due = self.batcher.next_due()
            assert due is not None or self.slots_used(), "nothing would ever start a batch"
            if self.limits.max_wait or self.limits.policy == "window":
                assert due is not None
                assert due <= self.oldest() + self.limits.max_wait

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
