"""Calls of one group that may share an upstream call: who leaves alone, who waits, which batch starts when.

A batch is a ticket. It starts for a reason (`Release`) and then waits for its permit; whom it takes is
decided when it is sealed, so that members who come meanwhile go with it and nobody is kept out by who came
before.

Nothing here waits itself. A member that waits is never forgotten: a batch has started that has a place for
it, or something is under way whose end starts one, or `next_due` tells when to call `due`.
"""

import math
import sys
from typing import Final, Literal, NamedTuple

from gateway.batching.pending import BatchCapacity, PendingCall, PendingPool
from gateway.batching.tuner import OK, BatchOutcome, BatchTuner
from gateway.queueing.upstream_queue import QUEUED

FlushReason = Literal["idle", "slot", "size", "tokens", "window"]
IDLE: Final = "idle"  # alone, at once: a slot was free
SLOT: Final = "slot"  # one under way has ended
SIZE: Final = "size"  # as many calls or items as a batch takes
TOKENS: Final = "tokens"  # as many tokens
WINDOW: Final = "window"  # the oldest has waited max_wait, or a deadline leaves no time to wait


class BatchLimits(NamedTuple):
    """What a batch never exceeds, and when it leaves. `max_wait` is in seconds.

    `eager`: at once while fewer than `max_inflight` are under way; `max_wait` 0 is no bound.
    `window`: only after `max_wait` or when full. `max_items` is the upstream's `max_inputs`.
    """

    policy: Literal["eager", "window"]
    max_size: int
    max_tokens: int
    max_wait: float
    max_inflight: int
    max_items: int = sys.maxsize


class PendingBatch:
    """A batch that has started. `members` is empty until it is sealed.

    `first` is who would have gone first when it started; `calls` and `tokens` are about what it will take.
    """

    __slots__ = ("calls", "first", "flush_reason", "members", "sealed", "tokens")

    def __init__(self, flush_reason: FlushReason, first: PendingCall, calls: int, tokens: int) -> None:
        self.flush_reason = flush_reason
        self.first = first
        self.calls = calls
        self.tokens = tokens
        self.members: list[PendingCall] = []
        self.sealed = False


class Batcher:
    """The members of one group. `tuning` may be shared by groups whose calls cost alike.

    Every call that went alone and every batch that started is told of with `ended`, exactly once.
    """

    __slots__ = (
        "_bounds",
        "_bypassing",
        "_eager",
        "_expected_returns",
        "_latest",
        "_patience",
        "_pool",
        "_tickets",
        "_tuning",
        "_until",
        "under_way",
    )  # fmt: skip

    def __init__(self, bounds: BatchLimits, tuning: BatchTuner) -> None:
        self._bounds = bounds
        self._tuning = tuning
        self._eager = bounds.policy == "eager"
        self._patience = math.inf if self._eager and not bounds.max_wait else bounds.max_wait
        self._pool = PendingPool(tuning.cost)
        self._tickets: dict[PendingBatch, None] = {}  # started and not sealed, oldest first
        self.under_way = 0
        self._bypassing = (
            0  # of these: too large or in too much haste to be gathered; they take nobody's slot
        )
        # Those who were answered together and are awaited: the next one until then, all until the latest.
        self._expected_returns = 0
        self._until = self._latest = 0.0

    @property
    def waiting(self) -> int:
        """Members that are in no sealed batch."""
        return self._pool.calls

    @property
    def idle(self) -> bool:
        """Nothing waits, is under way or is awaited: the batcher may be forgotten."""
        return not self.under_way and not self._pool.calls and not self._expected_returns

    def arrive(self, member: PendingCall, now: float) -> FlushReason | list[PendingBatch]:
        """A reason: it goes alone, at once. A list: it waits, and these batches start now (often none)."""
        if self._expected_returns:
            self._returned(now)
        if (
            self._eager
            and not self._pool.calls
            and self.under_way - self._bypassing < self._tuning.inflight
            and not self._expected_returns
        ):
            self.under_way += 1
            return IDLE
        alone = self._alone(member, now)
        if alone is not None:
            self.under_way += 1
            self._bypassing += 1
            return alone
        self._pool.add(member)
        return self._start(now)

    def ended(
        self,
        batch: PendingBatch | None,
        calls: int,
        tokens: int,
        seconds: float,
        outcome: BatchOutcome,
        now: float,
        *,
        apart: bool = False,
    ) -> list[PendingBatch]:
        """A call that went alone (None) or a batch is over. Which batches start now.

        `calls` and `tokens` are what was sent (0 calls: nothing was), `seconds` the time from sending to the
        answer. A batch that ends unsealed takes nobody with it: whom a refusal is meant for tells `take`.
        `apart`: it was not to be gathered, and went for another reason than a free slot.
        """
        self.under_way -= 1
        self._bypassing -= apart
        if batch is not None:
            batch.sealed = True
            self._tickets.pop(batch, None)
        # One alone is awaited by others only: else it would be out of step with them for ever. One apart
        # comes back to go alone again.
        if outcome == OK and self._tuning.awaits and not apart and (calls > 1 or self._pool.calls):
            self._await(calls, now)
        if calls:
            self._tuning.ended(calls, tokens, seconds, outcome, now)
        return self._start(now) if self._pool.calls else []

    def due(self, now: float) -> list[PendingBatch]:
        """Which batches start because of the time. Some may be sealed already, with one member."""
        if now >= self._until:
            self._expected_returns = 0
        if not self._uncovered():
            return []
        hurried = []
        if self._pool.tightest - self._pool.lasts(self._room()) <= now:
            for member in self._pool.hurried(self._room(), now):
                batch = PendingBatch(WINDOW, member, 1, member.tokens)
                batch.members, batch.sealed = [member], True
                hurried.append(batch)
            self.under_way += len(hurried)
        return hurried + self._start(now)

    def flush(self) -> None:
        """From now on nobody is held back. Call `due` for those who wait."""
        self._patience = 0.0

    def next_due(self) -> float | None:
        """When to call `due`, maybe a moment that has passed. Changes with every call of another method."""
        if not self._uncovered():
            return self._until if self._expected_returns else None
        when = min(self._pool.oldest + self._patience, self._pool.tightest - self._pool.lasts(self._room()))
        if self._eager and self.under_way - self._bypassing < self._tuning.inflight:
            when = min(when, self._until if self._expected_returns else self._pool.oldest)
        return when if when < math.inf else None

    def leave(self, member: PendingCall) -> list[PendingBatch]:
        """It waits no longer; nothing happens where it does not. Batches that nobody is left for.

        They are sealed, empty, and still to be told of with `ended`.
        """
        if member.state != QUEUED:
            return []
        self._pool.remove(member)
        if self._pool.calls:
            return []
        surplus = list(self._tickets)
        for batch in surplus:
            batch.sealed = True
        self._tickets.clear()
        return surplus

    def take(self, batch: PendingBatch, now: float, *, only_first: bool = False) -> list[PendingCall]:
        """Seal it: its members, in fair order. A second time the same. Nobody, if all went with others.

        `only_first`: nobody but its `first`, if that one still waits.
        """
        if not batch.sealed:
            batch.sealed = True
            self._tickets.pop(batch, None)
            if not only_first:
                batch.members = self._pool.choose(self._room(), now)
            elif batch.first.state == QUEUED:
                self._pool.remove(batch.first)
                batch.members = [batch.first]
        return batch.members

    def _room(self, batches: int = 1) -> BatchCapacity:
        """What so many batches may hold as things are."""
        bounds = self._bounds
        return BatchCapacity(
            batches * self._tuning.size, batches * bounds.max_items, batches * bounds.max_tokens
        )

    def _await(self, calls: int, now: float) -> None:
        """So many have been answered together and may come back as one."""
        self._expected_returns = calls + (self._expected_returns if now < self._until else 0)
        # The first one has all of the time: before it comes all of them are answered.
        self._until = self._latest = now + self._tuning.patience()[1]

    def _returned(self, now: float) -> None:
        """One of those who are awaited has come, or the time is over."""
        self._expected_returns = self._expected_returns - 1 if now < self._until else 0
        self._until = min(now + self._tuning.patience()[0], self._latest)

    def _awaited(self, now: float) -> bool:
        """Whether a free slot waits for more than those who are there."""
        return self._expected_returns > 0 and now < self._until

    def _alone(self, member: PendingCall, now: float) -> FlushReason | None:
        """Why it is not to be gathered, if so."""
        bounds = self._bounds
        if 2 * member.tokens > bounds.max_tokens:
            return TOKENS  # the others would wait for more work than the merging saves them
        if member.items >= bounds.max_items or bounds.max_size == 1:
            return SIZE
        together = min(self._pool.tokens + member.tokens, bounds.max_tokens)
        return WINDOW if member.deadline - self._tuning.cost(together) <= now else None

    def _start(self, now: float) -> list[PendingBatch]:
        """The batches that leave now, for as long as there is a reason for one."""
        started: list[PendingBatch] = []
        while (release := self._release(now)) is not None:
            calls, _, tokens = self._room()
            batch = PendingBatch(
                release, self._pool.first(now), min(self._pool.calls, calls), min(self._pool.tokens, tokens)
            )
            self._tickets[batch] = None
            self.under_way += 1
            started.append(batch)
        return started

    def _uncovered(self) -> bool:
        """Whether more wait than the batches that have started can take."""
        pool = self._pool
        if not pool.calls or not self._tickets:
            return pool.calls > 0
        calls, items, tokens = self._room(len(self._tickets))
        return pool.calls > calls or pool.items > items or pool.tokens > tokens

    def _release(self, now: float) -> FlushReason | None:
        """Why one more batch is to start now, if so."""
        if not self._uncovered():
            return None
        if (
            self._eager
            and self.under_way - self._bypassing < self._tuning.inflight
            and not self._awaited(now)
        ):
            return SLOT
        calls, items, tokens = self._room(len(self._tickets) + 1)
        if self._pool.calls >= calls or self._pool.items >= items:
            return SIZE
        if self._pool.tokens >= tokens:
            return TOKENS
        return WINDOW if self._pool.oldest + self._patience <= now else None
