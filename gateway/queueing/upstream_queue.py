"""The calls at one upstream of this process: its permits, and those who wait for one, in fair order.

Fair order: class first (`interactive` before `batch`; who has waited AGING_S counts as interactive), then the
key with the smallest virtual token counter, then arrival.

How long a batch call may wait: once it has aged, only older calls of its own key go before it, and of each
other waiting key no more than the tokens by which that key's counter is behind its own key's, plus one call.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from gateway.core.caller import BATCH, Priority
from gateway.queueing.pacing import Pace
from gateway.queueing.token_counter import VirtualTokenCounter

# Where a waiter stands.
IDLE: Final = 0
QUEUED: Final = 1
GRANTED: Final = 2  # holds a permit
DONE: Final = 3


class Waiter:
    """What the order of a line depends on. Opaque to the room otherwise: a layer may put more beside it.

    `tokens` is what the call is expected to cost (at least 1), `deadline` and `arrived` are in monotonic
    seconds. By its deadline (`math.inf`: none) a `stream` must have begun, or else the whole answer be there.
    `number` (the place in the order of arrival), `since` (the permit was given) and `state` are the room's.
    """

    __slots__ = ("arrived", "deadline", "key", "number", "priority", "since", "state", "stream", "tokens")

    number: int
    since: float

    def __init__(self, key: str, priority: Priority, tokens: int, deadline: float, arrived: float) -> None:
        self.key = key
        self.priority = priority
        self.tokens = tokens
        self.deadline = deadline
        self.arrived = arrived
        self.state = IDLE
        self.stream = False


AGING_S: Final = 30.0
STALL_S: Final = 5.0
_MEMORY_S: Final = 10.0
_LEAST: Final = 20
"""How long a permit is held is a mean over the last 10 s, or over the last 20 calls where those took longer.

Many wait behind each other: a mean of the last few calls, whose own chance is as large as what it is to tell,
lets the line grow whenever it is low by chance, and refuses whom there is a place for whenever it is high.
"""


class PriorityLane:
    """The waiters of one key and class in order of arrival, and the sum of their tokens."""

    __slots__ = ("tokens", "waiters")

    def __init__(self) -> None:
        # A plain dict walks over all its deleted entries to find its first one.
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.tokens = 0

    def first(self) -> Waiter | None:
        """The oldest one."""
        return next(iter(self.waiters), None)


class KeyLanes:
    """Both lanes of a key that waits."""

    __slots__ = ("batch", "interactive")

    def __init__(self) -> None:
        self.interactive = PriorityLane()
        self.batch = PriorityLane()

    def lane(self, waiter: Waiter) -> PriorityLane:
        """The lane of its class."""
        return self.batch if waiter.priority == BATCH else self.interactive

    def first(self, now: float) -> tuple[bool, Waiter]:
        """The key's next waiter, and whether it goes as a batch one. There must be one."""
        interactive, batch = self.interactive.first(), self.batch.first()
        if batch is not None:
            if interactive is None:
                return not self.aged(now), batch
            if batch.number < interactive.number and self.aged(now):
                return False, batch
        if interactive is None:
            raise AssertionError("a key without waiters has no lanes")
        return False, interactive

    def aged(self, now: float) -> bool:
        """Whether its oldest batch call counts as interactive."""
        batch = self.batch.first()
        return batch is not None and now - batch.arrived >= AGING_S


class UpstreamQueue:
    """One upstream. `permits` is this process's share; `pace` None is an upstream that states no rate.

    No call waits longer than `total_s`, its whole time for an answer.
    """

    __slots__ = (
        "_hold",
        "_holds",
        "_last",
        "_learned",
        "active",
        "free",
        "held_until",
        "keys",
        "moved",
        "name",
        "pace",
        "permits",
        "token_counter",
        "total_s",
        "waiting",
    )

    def __init__(self, name: str, permits: int, pace: Pace | None = None, total_s: float = math.inf) -> None:
        self.name = name
        self.permits = permits
        self.free = permits
        self.pace = pace
        self.total_s = total_s
        self.token_counter = VirtualTokenCounter()
        self.keys: dict[str, KeyLanes] = {}  # those that wait
        self.active: dict[str, int] = {}  # calls that wait or have a permit, by key
        self._last: tuple[str, ...] = ()  # the key that was active last
        self.waiting = 0
        self.moved = 0.0  # when a permit was given last
        self.held_until = 0.0  # the pace holds the first waiter until then; 0.0: it holds nobody
        self._hold = 0.0
        self._holds = 0.0  # how many of them the mean is made of, older ones in part
        self._learned = 0.0  # when the latest was added

    @property
    def in_flight(self) -> int:
        """Permits given out."""
        return self.permits - self.free

    @property
    def mean_service_time(self) -> float | None:
        """Seconds for which a permit is held, a mean; None while nothing is known."""
        return self._hold if self._holds else None

    def oldest_s(self, now: float) -> float:
        """Seconds for which the oldest waiter has waited; 0.0 without any."""
        firsts = (lane.first() for one in self.keys.values() for lane in (one.interactive, one.batch))
        return now - min((first.arrived for first in firsts if first is not None), default=now)

    def enter(self, key: str) -> None:
        """A call of this key begins to wait, or goes at once."""
        calls = self.active.get(key, 0)
        if not calls and (self.active or self._last != (key,)):
            self.token_counter.enter(key, self.rivals())
        self.active[key] = calls + 1

    def leave(self, key: str) -> None:
        """It does neither any more."""
        calls = self.active[key] - 1
        if calls:
            self.active[key] = calls
            return
        del self.active[key]
        self._last = (key,)

    def rivals(self) -> Iterable[str]:
        """The keys beside which another one begins: who is active or, if nobody is, who was last."""
        return self.active or self._last

    def grant(self, waiter: Waiter, now: float) -> None:
        """Give it a permit and charge what it is expected to cost."""
        self.free -= 1
        self.moved = now
        waiter.state, waiter.since = GRANTED, now
        self.token_counter.charge(waiter.key, waiter.tokens, now)
        if self.pace is not None:
            self.pace.note(waiter.tokens, now)

    def add(self, waiter: Waiter) -> None:
        """To the end of its lane."""
        lanes = self.keys.get(waiter.key)
        if lanes is None:
            lanes = self.keys[waiter.key] = KeyLanes()
        lane = lanes.lane(waiter)
        lane.waiters[waiter] = None
        lane.tokens += waiter.tokens
        self.waiting += 1

    def remove(self, waiter: Waiter) -> None:
        """Out of its lane, wherever it stands."""
        lanes = self.keys[waiter.key]
        lane = lanes.lane(waiter)
        del lane.waiters[waiter]
        lane.tokens -= waiter.tokens
        if not lanes.interactive.waiters and not lanes.batch.waiters:
            del self.keys[waiter.key]
        self.waiting -= 1

    def first(self, now: float) -> Waiter:
        """Who goes next. Somebody must wait."""
        ranks = []
        for key, lanes in self.keys.items():
            late, waiter = lanes.first(now)
            ranks.append((late, self.token_counter.of(key), waiter.number, waiter))
        return min(ranks)[3]

    def learn_service_time(self, seconds: float, now: float) -> None:
        """A permit that was held for so long has come back."""
        known = self._holds
        kept = known * _MEMORY_S / (_MEMORY_S + now - self._learned)
        if kept < _LEAST:
            kept = known if known < _LEAST else _LEAST
        self._holds = kept = kept + 1.0
        self._hold += (seconds - self._hold) / kept
        self._learned = now

    def stalled_for(self, now: float) -> float:
        """Seconds since the last permit was given, while none is free, up to STILL_S.

        Of one that hangs the mean tells nothing, for no call ends: it is likely to last as long again.
        """
        return min(now - self.moved, STALL_S) if self.free <= 0 else 0.0

    def drain_time(self, calls: int, tokens: float) -> float | None:
        """Seconds that so many calls take to leave the line; None while nothing is known."""
        by_permits = calls * self._hold / self.permits if self._holds else None
        if self.pace is None:
            return by_permits
        return max(by_permits or 0.0, self.pace.lasts(calls, tokens))

    def expected_wait(self, waiter: Waiter, now: float) -> float | None:
        """How long a newcomer would wait as things stand; None while nothing is known."""
        calls, tokens = 1, float(waiter.tokens)
        own = self.keys.get(waiter.key, _NOBODY)
        weight = self.token_counter.weight(now)
        batch = waiter.priority == BATCH
        mine = own.interactive.tokens + (own.batch.tokens if batch else 0)
        active = waiter.key in self.active
        start = (
            self.token_counter.of(waiter.key)
            if active
            else self.token_counter.entering(waiter.key, self.rivals())
        )
        level = start + weight * mine  # its key's counter at its turn
        for key, lanes in self.keys.items():
            behind = (level - self.token_counter.of(key)) / weight if lanes is not own else float("inf")
            for lane in (lanes.interactive, lanes.batch):
                if lane is lanes.batch and not (batch or lanes.aged(now)):
                    continue
                first_class = batch and lane is lanes.interactive
                ahead = len(lane.waiters) if first_class else _fitting(lane, behind)
                calls += ahead
                tokens += ahead and lane.tokens * ahead / len(lane.waiters)
        lasts = self.drain_time(calls, tokens)
        return lasts if self.pace is None else max(lasts or 0.0, self.pace.wait(waiter.tokens, now))


def _fitting(lane: PriorityLane, behind: float) -> int:
    """How many of a lane go while its key is that many tokens behind the newcomer's."""
    number = len(lane.waiters)
    if not number or behind < 0:
        return 0
    return int(min(number, behind * number / lane.tokens + 1))


_NOBODY: Final = KeyLanes()
