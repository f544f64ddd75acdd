"""Those who wait to be batched, and who of them goes together.

The order is that of the waiting room (`policy/line.py`): class first, then the caller who has taken the
fewest tokens, then arrival; within a caller and class always arrival. Tokens are counted from the first
choice that leaves somebody behind until one leaves nobody: where all find a place, nobody takes it from
another. Who comes in between begins with the least that one of those left behind has taken.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import NamedTuple, cast

from gateway.core.caller import Priority
from gateway.queueing.upstream_queue import DONE, QUEUED, KeyLanes, Waiter


class PendingCall(Waiter):
    """One call at the batcher. `items` and `tokens` (estimated input tokens) are at least 1."""

    __slots__ = ("items",)

    def __init__(
        self, key: str, items: int, tokens: int, arrived: float, deadline: float, priority: Priority
    ) -> None:
        Waiter.__init__(self, key, priority, tokens, deadline, arrived)
        self.items = items


class BatchCapacity(NamedTuple):
    """What one batch may hold."""

    calls: int
    items: int
    tokens: int


class PendingPool:
    """Who waits. `cost(tokens)` is how many seconds a batch of so many is expected to take.

    `oldest` and `tightest` are the earliest arrival and the nearest deadline, `math.inf` where nobody waits.
    """

    __slots__ = ("_arrivals", "_cost", "_lanes", "_taken", "calls", "items", "oldest", "tightest", "tokens")

    def __init__(self, cost: Callable[[int], float]) -> None:
        self._cost = cost
        self._lanes: dict[str, KeyLanes] = {}
        self._taken: dict[str, int] = {}  # tokens, of the callers that a choice has left behind
        self._arrivals = 0
        self.calls = self.items = self.tokens = 0
        self.oldest = self.tightest = math.inf

    def __iter__(self) -> Iterator[PendingCall]:
        for lanes in self._lanes.values():
            for lane in (lanes.interactive, lanes.batch):
                yield from cast("Iterator[PendingCall]", iter(lane.waiters))

    def add(self, member: PendingCall) -> None:
        """It waits from now on."""
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
        """It waits no longer."""
        self._drop(member)
        self._look_around()

    def first(self, now: float) -> PendingCall:
        """Who would go first. Somebody must wait."""
        key = min(self._ranks(now))[3]
        return self._next(key, now)[1]

    def hurried(self, room: BatchCapacity, now: float) -> list[PendingCall]:
        """Out of the pool: those whose deadline does not leave the time for all that would go now."""
        lasts = self.lasts(room)
        late = [member for member in self if member.deadline - lasts <= now]
        for member in late:
            self._drop(member)
        self._look_around()
        return late

    def lasts(self, room: BatchCapacity) -> float:
        """Seconds that a batch of those who wait would take."""
        return self._cost(min(self.tokens, room.tokens))

    def choose(self, room: BatchCapacity, now: float) -> list[PendingCall]:
        """Out of the pool: those who go together, in fair order."""
        if (
            self.calls <= room.calls
            and self.items <= room.items
            and self.tokens <= room.tokens
            and now < self.tightest - self.lasts(room)
        ):
            chosen = sorted(self, key=attrgetter("number"))
            for member in chosen:
                member.state = DONE
            self._lanes.clear()
            self.calls = self.items = self.tokens = 0
        else:
            chosen = self._fair(room, now)
        self._look_around()
        return chosen

    def _fair(self, room: BatchCapacity, now: float) -> list[PendingCall]:
        """As many as fit. Who does not fit lets other callers go, and is ahead of them the next time."""
        ranks = self._ranks(now)
        heapify(ranks)
        taken = {key: tokens for _, tokens, _, key in ranks}
        chosen: list[PendingCall] = []
        items = tokens = 0
        before = math.inf  # the nearest deadline of the chosen that can be kept at all
        while ranks and len(chosen) < room.calls:
            key = ranks[0][3]
            member = self._next(key, now)[1]
            ends = now + self._cost(tokens + member.tokens)
            fits = items + member.items <= room.items and tokens + member.tokens <= room.tokens
            if chosen and (not fits or ends > min(before, member.deadline)):
                heappop(ranks)
                continue
            if ends <= member.deadline:
                before = min(before, member.deadline)
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
        self._taken = {key: taken[key] for key in self._lanes}
        return chosen

    def _ranks(self, now: float) -> list[tuple[bool, int, int, str]]:
        """For each caller: class and number of its next member, and what it has taken."""
        least = min(self._taken.values(), default=0)
        ranks = []
        for key in self._lanes:
            late, member = self._next(key, now)
            ranks.append((late, self._taken.get(key, least), member.number, key))
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

    def _look_around(self) -> None:
        self.oldest = min((member.arrived for member in self), default=math.inf)
        self.tightest = min((member.deadline for member in self), default=math.inf)
        if not self._lanes:
            self._taken.clear()
