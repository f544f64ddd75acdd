"""The calls of one group that may share an upstream call: which bypass, which wait, and when a batch starts.

A batch starts for a reason (`FlushReason`) and then waits for its permit. Its members are chosen when it is
sealed, so calls that arrive in the meantime join it, and earlier arrivals exclude nobody.

The batcher itself never waits. No waiting call is forgotten: a started batch has room for it, or a call in
flight will start one when it ends, or `next_due` says when to call `due`.
"""

import math
import sys
from typing import Final, Literal, NamedTuple

from gateway.batching.pending import BatchCapacity, PendingCall, PendingPool
from gateway.batching.tuner import OK, BatchOutcome, BatchTuner
from gateway.queueing.upstream_queue import QUEUED

FlushReason = Literal["idle", "slot", "size", "tokens", "window"]
IDLE: Final = "idle"  # a call that found a free slot, sent at once as a single call
SLOT: Final = "slot"  # a call in flight ended
SIZE: Final = "size"  # as many calls or items as a batch takes
TOKENS: Final = "tokens"  # as many tokens as a batch takes
WINDOW: Final = "window"  # the oldest call has waited max_wait, or a deadline leaves no time to wait


class BatchLimits(NamedTuple):
    """The limits of a batch, and when it leaves. `max_wait` is in seconds.

    `eager`: a call leaves at once while fewer than `max_inflight` are in flight; `max_wait` 0 is no bound.
    `window`: a batch leaves only after `max_wait` or when full. `max_items` is the upstream's `max_inputs`.
    """

    policy: Literal["eager", "window"]
    max_size: int
    max_tokens: int
    max_wait: float
    max_inflight: int
    max_items: int = sys.maxsize


class PendingBatch:
    """A started batch. `members` is empty until it is sealed.

    `first` was the first call in fair order when it started; `calls` and `tokens` estimate what it will take.
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
    """The calls of one group. `tuner` may be shared by groups whose calls cost alike.

    Report every call sent singly and every started batch with `ended`, exactly once.
    """

    __slots__ = (
        "_bypassing",
        "_eager",
        "_expected_returns",
        "_limits",
        "_max_wait",
        "_pool",
        "_returns_until",
        "_tickets",
        "_tuner",
        "_until",
        "under_way",
    )

    def __init__(self, limits: BatchLimits, tuner: BatchTuner) -> None:
        self._limits = limits
        self._tuner = tuner
        self._eager = limits.policy == "eager"
        self._max_wait = math.inf if self._eager and not limits.max_wait else limits.max_wait
        self._pool = PendingPool(tuner.cost)
        self._tickets: dict[PendingBatch, None] = {}  # started and not sealed, oldest first
        self.under_way = 0
        self._bypassing = 0  # of these: too large or too urgent to be gathered; they use no slot
        # Callers that were answered together and may return: the next by _until, all by _returns_until.
        self._expected_returns = 0
        self._until = self._returns_until = 0.0

    @property
    def waiting(self) -> int:
        """Calls that are in no sealed batch."""
        return self._pool.calls

    @property
    def idle(self) -> bool:
        """Whether no call waits, is in flight or is expected to return: the batcher can be dropped."""
        return not self.under_way and not self._pool.calls and not self._expected_returns

    def arrive(self, member: PendingCall, now: float) -> FlushReason | list[PendingBatch]:
        """Return the reason if the call goes at once as a single call; else the batches that start now."""
        if self._expected_returns:
            self._count_return(now)
        if (
            self._eager
            and not self._pool.calls
            and self.under_way - self._bypassing < self._tuner.inflight
            and not self._expected_returns
        ):
            self.under_way += 1
            return IDLE
        reason = self._bypass_reason(member, now)
        if reason is not None:
            self.under_way += 1
            self._bypassing += 1
            return reason
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
        bypassed: bool = False,
    ) -> list[PendingBatch]:
        """Report the end of a batch or of a call sent singly (None). Returns the batches that start now.

        `calls` and `tokens` are what was sent (0 calls: nothing was), `seconds` the time from sending to the
        answer. A batch that ends unsealed takes no members; to reject some, call `take` first. `bypassed`:
        the call was not to be gathered and used no slot.
        """
        self.under_way -= 1
        self._bypassing -= bypassed
        if batch is not None:
            batch.sealed = True
            self._tickets.pop(batch, None)
        # The return of a single caller is expected only if others wait, or it would stay out of step with
        # them for ever. A caller that bypassed will bypass again.
        if outcome == OK and self._tuner.waits_for_returns and not bypassed and (calls > 1 or self._pool.calls):
            self._expect_returns(calls, now)
        if calls:
            self._tuner.ended(calls, tokens, seconds, outcome, now)
        return self._start(now) if self._pool.calls else []

    def due(self, now: float) -> list[PendingBatch]:
        """The batches that start because of the time. Urgent calls leave in sealed batches of one."""
        if now >= self._until:
            self._expected_returns = 0
        if not self._uncovered():
            return []
        urgent = []
        if self._pool.tightest - self._pool.duration(self._capacity()) <= now:
            for member in self._pool.take_urgent(self._capacity(), now):
                batch = PendingBatch(WINDOW, member, 1, member.tokens)
                batch.members, batch.sealed = [member], True
                urgent.append(batch)
            self.under_way += len(urgent)
        return urgent + self._start(now)

    def flush(self) -> None:
        """Hold no call back from now on. Call `due` for those that wait."""
        self._max_wait = 0.0

    def next_due(self) -> float | None:
        """When to call `due`, possibly in the past. Changes with every call of another method."""
        if not self._uncovered():
            return self._until if self._expected_returns else None
        pool = self._pool
        when = min(pool.oldest + self._max_wait, pool.tightest - pool.duration(self._capacity()))
        if self._eager and self.under_way - self._bypassing < self._tuner.inflight:
            when = min(when, self._until if self._expected_returns else pool.oldest)
        return when if when < math.inf else None

    def leave(self, member: PendingCall) -> list[PendingBatch]:
        """Remove a call, if it still waits. Returns the batches that have no call left to take.

        They are sealed and empty, and must still be reported with `ended`.
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
        """Seal the batch and return its members in fair order; empty if all went with other batches.

        A second call returns the same. `only_first`: take only its `first`, if that still waits.
        """
        if not batch.sealed:
            batch.sealed = True
            self._tickets.pop(batch, None)
            if not only_first:
                batch.members = self._pool.take_batch(self._capacity(), now)
            elif batch.first.state == QUEUED:
                self._pool.remove(batch.first)
                batch.members = [batch.first]
        return batch.members

    def _capacity(self, batches: int = 1) -> BatchCapacity:
        """What `batches` can hold at present."""
        limits = self._limits
        return BatchCapacity(batches * self._tuner.size, batches * limits.max_items, batches * limits.max_tokens)

    def _expect_returns(self, calls: int, now: float) -> None:
        """Expect `calls` callers that were answered together to return together."""
        self._expected_returns = calls + (self._expected_returns if now < self._until else 0)
        # The first has the whole time: its call may only be sent once all of them are answered.
        self._until = self._returns_until = now + self._tuner.patience()[1]

    def _count_return(self, now: float) -> None:
        """Count an arrival as an expected return, or stop expecting any if the time is over."""
        self._expected_returns = self._expected_returns - 1 if now < self._until else 0
        self._until = min(now + self._tuner.patience()[0], self._returns_until)

    def _bypass_reason(self, member: PendingCall, now: float) -> FlushReason | None:
        """Why the call must not be gathered, or None."""
        limits = self._limits
        if 2 * member.tokens > limits.max_tokens:
            return TOKENS  # the others would wait for more work than merging saves them
        if member.items >= limits.max_items or limits.max_size == 1:
            return SIZE
        tokens = min(self._pool.tokens + member.tokens, limits.max_tokens)
        return WINDOW if member.deadline - self._tuner.cost(tokens) <= now else None

    def _start(self, now: float) -> list[PendingBatch]:
        """Start batches for as long as there is a reason for another."""
        started: list[PendingBatch] = []
        while (reason := self._flush_reason(now)) is not None:
            calls, _, tokens = self._capacity()
            batch = PendingBatch(
                reason, self._pool.first(now), min(self._pool.calls, calls), min(self._pool.tokens, tokens)
            )
            self._tickets[batch] = None
            self.under_way += 1
            started.append(batch)
        return started

    def _uncovered(self) -> bool:
        """Whether more calls wait than the started batches can take."""
        pool = self._pool
        if not pool.calls or not self._tickets:
            return pool.calls > 0
        calls, items, tokens = self._capacity(len(self._tickets))
        return pool.calls > calls or pool.items > items or pool.tokens > tokens

    def _flush_reason(self, now: float) -> FlushReason | None:
        """Why another batch is to start now, or None."""
        if not self._uncovered():
            return None
        if (
            self._eager
            and self.under_way - self._bypassing < self._tuner.inflight
            and not (self._expected_returns > 0 and now < self._until)
        ):
            return SLOT
        calls, items, tokens = self._capacity(len(self._tickets) + 1)
        if self._pool.calls >= calls or self._pool.items >= items:
            return SIZE
        if self._pool.tokens >= tokens:
            return TOKENS
        return WINDOW if self._pool.oldest + self._max_wait <= now else None
