"""The calls that wait to be batched, and which of them a batch takes.

The order is that of the upstream queue: class first, then the key that has taken the fewest tokens, then
arrival; within a key and class always arrival. Tokens are counted from the first batch that leaves a call
behind until one that leaves none: as long as all calls fit, no key takes a slot from another. A key that
arrives in between starts with the fewest tokens taken by a key that was left behind.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import NamedTuple, cast

from gateway.core.caller import Priority
from gateway.queueing.upstream_queue import DONE, QUEUED, KeyLanes, Waiter


class PendingCall(Waiter):
    """A call at the batcher. `items` and `tokens` (estimated input tokens) are at least 1."""

    __slots__ = ("items",)

    def __init__(self, key: str, items: int, tokens: int, arrived: float, deadline: float, priority: Priority) -> None:
        Waiter.__init__(self, key, priority, tokens, deadline, arrived)
        self.items = items


class BatchCapacity(NamedTuple):
    """What a batch can hold."""

    calls: int
    items: int
    tokens: int


class PendingPool:
    """The waiting calls. `cost(tokens)` is the expected duration in seconds of a batch with `tokens`.

    `oldest` and `tightest` are the earliest arrival and the nearest deadline, `math.inf` in an empty pool.
    """

    __slots__ = (
        "_arrivals",
        "_cost",
        "_lanes",
        "_tokens_by_key",
        "calls",
        "items",
        "oldest",
        "tightest",
        "tokens",
    )

    def __init__(self, cost: Callable[[int], float]) -> None:
        self._cost = cost
        self._lanes: dict[str, KeyLanes] = {}
        self._tokens_by_key: dict[str, int] = {}  # tokens taken, of keys that a batch has left behind
        self._arrivals = 0
        self.calls = self.items = self.tokens = 0
        self.oldest = self.tightest = math.inf

    def __iter__(self) -> Iterator[PendingCall]:
        for lanes in self._lanes.values():
            for lane in (lanes.interactive, lanes.batch):
                yield from cast("Iterator[PendingCall]", iter(lane.waiters))

    def add(self, member: PendingCall) -> None:
        """Add a call."""
        self._arrivals += 1
        member.number, member.state = self._arrivals, QUEUED
        lanes = self._lanes.get(member.key)
        if lanes is None:
            lanes = self._lanes[member.key] = KeyLanes()
        lanes.lane(member).waiters[member] = None
        self.calls += 1
        self.items += member.items
        self.tokens += member.tokens
        self.oldest = min(self.oldest, member.arrived)
        self.tightest = min(self.tightest, member.deadline)

    def remove(self, member: PendingCall) -> None:
        """Remove a call."""
        self._drop(member)
        self._update_extremes()

    def first(self, now: float) -> PendingCall:
        """The next call in fair order. At least one must wait."""
        key = min(self._ranks(now))[3]
        return self._next(key, now)[1]

    def take_urgent(self, capacity: BatchCapacity, now: float) -> list[PendingCall]:
        """Remove and return the calls whose deadline leaves no time for a batch of all that would go now."""
        duration = self.duration(capacity)
        urgent = [member for member in self if member.deadline - duration <= now]
        for member in urgent:
            self._drop(member)
        self._update_extremes()
        return urgent

    def duration(self, capacity: BatchCapacity) -> float:
        """Expected seconds of a batch of the waiting calls."""
        return self._cost(min(self.tokens, capacity.tokens))

    def take_batch(self, capacity: BatchCapacity, now: float) -> list[PendingCall]:
        """Remove and return the calls of one batch, in fair order."""
        if (
            self.calls <= capacity.calls
            and self.items <= capacity.items
            and self.tokens <= capacity.tokens
            and now < self.tightest - self.duration(capacity)
        ):
            chosen = sorted(self, key=attrgetter("number"))
            for member in chosen:
                member.state = DONE
            self._lanes.clear()
            self.calls = self.items = self.tokens = 0
        else:
            chosen = self._take_fairly(capacity, now)
        self._update_extremes()
        return chosen

    def _take_fairly(self, capacity: BatchCapacity, now: float) -> list[PendingCall]:
        """As many calls as fit. A key whose call does not fit yields, and is ahead the next time."""
        ranks = self._ranks(now)
        heapify(ranks)
        taken = {key: tokens for _, tokens, _, key in ranks}
        chosen: list[PendingCall] = []
        items = tokens = 0
        nearest = math.inf  # the nearest deadline of the chosen calls that can be met at all
        while ranks and len(chosen) < capacity.calls:
            key = ranks[0][3]
            member = self._next(key, now)[1]
            ends = now + self._cost(tokens + member.tokens)
            fits = items + member.items <= capacity.items and tokens + member.tokens <= capacity.tokens
            if chosen and (not fits or ends > min(nearest, member.deadline)):
                heappop(ranks)
                continue
            if ends <= member.deadline:
                nearest = min(nearest, member.deadline)
            chosen.append(member)
            items += member.items
            tokens += member.tokens
            taken[key] += member.tokens
            self._drop(member)
            if key in self._lanes:
                late, following = self._next(key, now)
                heapreplace(ranks, (late, taken[key], following.number, key))
            else:
                heappop(ranks)
        self._tokens_by_key = {key: taken[key] for key in self._lanes}
        return chosen

    def _ranks(self, now: float) -> list[tuple[bool, int, int, str]]:
        """By key: whether its next call ranks as batch, the tokens taken, that call's number, the key."""
        least = min(self._tokens_by_key.values(), default=0)
        ranks = []
        for key in self._lanes:
            late, member = self._next(key, now)
            ranks.append((late, self._tokens_by_key.get(key, least), member.number, key))
        return ranks

    def _next(self, key: str, now: float) -> tuple[bool, PendingCall]:
        return cast("tuple[bool, PendingCall]", self._lanes[key].first(now))

    def _drop(self, member: PendingCall) -> None:
        lanes = self._lanes[member.key]
        del lanes.lane(member).waiters[member]
        if not lanes.interactive.waiters and not lanes.batch.waiters:
            del self._lanes[member.key]
        member.state = DONE
        self.calls -= 1
        self.items -= member.items
        self.tokens -= member.tokens

    def _update_extremes(self) -> None:
        self.oldest = min((member.arrived for member in self), default=math.inf)
        self.tightest = min((member.deadline for member in self), default=math.inf)
        if not self._lanes:
            self._tokens_by_key.clear()
