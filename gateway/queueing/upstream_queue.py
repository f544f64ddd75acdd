"""The queue of one upstream in this process: its permits, and the calls that wait for them in fair order.

A permit is a concurrency slot of the upstream. Fair order: class first (`interactive` before `batch`; a call
that has waited AGING_S counts as interactive), then the key with the smallest virtual token counter, then
arrival. A model whose advertised quota is used up is passed over until the quota resets: its waiters hold back
no other model's.

Bound on a batch call's wait: once it has aged, only older calls of its own key go before it, and of every
other waiting key no more than the tokens by which that key's counter is behind its own key's, plus one call.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.admission.engine_admission import EngineAdmission
from gateway.admission.kv_ledger import KvDemand
from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.tokens import TokenEstimate
from gateway.queueing.advertised_quota import Quota, Quotas
from gateway.queueing.pacing import Pace
from gateway.queueing.token_counter import VirtualTokenCounter

# States of a waiter. Plain integers: each call sets and compares them several times.
IDLE: Final = 0
QUEUED: Final = 1
GRANTED: Final = 2  # holds a permit
DONE: Final = 3


class Waiter:
    """The part of a call that the order of a queue depends on; layers subclass it to attach more.

    `tokens` is what the call is expected to cost (at least 1); `model` is the upstream's name for its model;
    `deadline` and `arrived` are in monotonic seconds. By its deadline (`math.inf`: none) a `stream` must have
    begun, any other answer be complete. The waiting room sets `number` (order of arrival), `since` (when the
    permit was granted) and `state`. `demand` is its part of the engine's KV cache, where a ledger is kept.
    """

    __slots__ = (
        "arrived",
        "deadline",
        "demand",
        "key",
        "model",
        "number",
        "priority",
        "since",
        "state",
        "stream",
        "tokens",
    )

    number: int
    since: float
    demand: KvDemand | None

    def __init__(
        self, key: str, priority: Priority, tokens: int, deadline: float, arrived: float, model: str = ""
    ) -> None:
        self.key = key
        self.model = model
        self.priority = priority
        self.tokens = tokens
        self.deadline = deadline
        self.arrived = arrived
        self.state = IDLE
        self.stream = False
        self.demand = None


AGING_S: Final = 30.0
STALL_S: Final = 5.0
"""Cap on `stalled_for`."""
_MEAN_SPAN_S: Final = 10.0
_MEAN_MIN_CALLS: Final = 20
"""The mean service time covers the last 10 s, or the last 20 calls where those took longer.

A mean over few calls is noisy: when it is low by chance the queue grows too long, and when it is high by
chance calls are rejected that would have been served in time.
"""


def demand_of(admission: EngineAdmission, estimate: TokenEstimate, key: str, model: str) -> KvDemand:
    """What a call with this estimate is expected to hold of the engine's KV cache."""
    return admission.ledger.demand(
        key, model, estimate.input, estimate.output, capped=estimate.capped, choices=estimate.choices
    )


class PriorityLane:
    """The waiters of one key and class in order of arrival, and the sum of their tokens."""

    __slots__ = ("tokens", "waiters")

    def __init__(self) -> None:
        # Not a plain dict, which scans all its deleted entries to find the first one.
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.tokens = 0

    def first(self) -> Waiter | None:
        """The oldest waiter."""
        return next(iter(self.waiters), None)


class KeyLanes:
    """Both lanes of a key with waiters for one model."""

    __slots__ = ("batch", "interactive")

    def __init__(self) -> None:
        self.interactive = PriorityLane()
        self.batch = PriorityLane()

    def lane(self, waiter: Waiter) -> PriorityLane:
        """The lane of the waiter's class."""
        return self.batch if waiter.priority == BATCH else self.interactive

    def first(self, now: float) -> tuple[bool, Waiter]:
        """The key's next waiter, and whether it ranks as a batch call. At least one must wait."""
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
        """Whether the key's oldest batch call ranks as interactive."""
        batch = self.batch.first()
        return batch is not None and now - batch.arrived >= AGING_S


class ModelLanes:
    """The waiters for one model, by key. `held_until` is when the model's quota lets its next one go, 0.0: now."""

    __slots__ = ("held_until", "keys", "waiting")

    def __init__(self) -> None:
        self.keys: dict[str, KeyLanes] = {}
        self.waiting = 0
        self.held_until = 0.0

    def held(self, now: float) -> bool:
        """Whether the model's quota holds all its waiters."""
        return self.held_until > now


class UpstreamQueue:
    """The queue of one upstream. `permits` is this process's share; `pace` is None without a stated rate.

    No call waits longer than `total_s`, its whole time for an answer. `models` holds the waiters, `active` the
    number of calls by key that wait or hold a permit. `held_until` is when the pace or a quota lets the next
    waiter go, 0.0 if neither holds any. `quotas` may be shared with other queues; they count with a pace only.
    With an `admission` a call must fit the engine's KV cache too, and the permits follow its limit.
    """

    __slots__ = (
        "_last_key",
        "_mean_service_s",
        "_mean_updated_at",
        "_mean_weight",
        "active",
        "admission",
        "free",
        "granted_at",
        "held_until",
        "interactive",
        "models",
        "name",
        "pace",
        "permits",
        "quotas",
        "token_counter",
        "total_s",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        permits: int,
        pace: Pace | None = None,
        total_s: float = math.inf,
        quotas: Quotas | None = None,
        admission: EngineAdmission | None = None,
    ) -> None:
        self.name = name
        self.permits = permits
        self.free = permits  # below 0 while more calls are in flight than a lowered limit allows
        self.pace = pace
        self.total_s = total_s
        self.admission = admission
        self.token_counter = VirtualTokenCounter()
        self.quotas: Quotas = {} if quotas is None else quotas
        self.models: dict[str, ModelLanes] = {}
        self.active: dict[str, int] = {}
        self._last_key: tuple[str, ...] = ()  # the key that was active last
        self.waiting = 0
        self.interactive = 0  # permits that calls of this class hold
        self.granted_at = 0.0  # when the last permit was granted
        self.held_until = 0.0
        self._mean_service_s = 0.0
        self._mean_weight = 0.0  # calls in the mean, older ones in part
        self._mean_updated_at = 0.0

    @property
    def in_flight(self) -> int:
        """Granted permits."""
        return self.permits - self.free

    @property
    def idle(self) -> bool:
        """Whether no call is in flight, and none waits."""
        return not self.in_flight and not self.waiting

    @property
    def mean_service_time(self) -> float | None:
        """Mean seconds for which a permit is held; None before the first call."""
        return self._mean_service_s if self._mean_weight else None

    def full(self, now: float, estimate: TokenEstimate | None = None, key: str = "", model: str = "") -> bool:
        """Whether it has no permit, or its engine no room, for a call of this size; None: for any call."""
        if self.free <= 0:
            return True
        if self.admission is None:
            return False
        demand = None if estimate is None else demand_of(self.admission, estimate, key, model)
        return not self.admission.fits(demand, now)

    def set_permits(self, permits: int) -> None:
        """Change the limit; `free` is below 0 while more calls are in flight."""
        self.free += permits - self.permits
        self.permits = permits

    def follow_limit(self, now: float) -> None:
        """Let the limit of the admission move, and follow it."""
        if self.admission is not None:
            if self.waiting and self.free <= 0:
                self.admission.limit.waited()
            if self.admission.limit.adjust(self.in_flight, now):
                self.set_permits(self.admission.limit.value)

    def oldest_s(self, now: float) -> float:
        """Seconds for which the oldest waiter has waited; 0.0 without any."""
        firsts = (
            lane.first()
            for model in self.models.values()
            for lanes in model.keys.values()
            for lane in (lanes.interactive, lanes.batch)
        )
        return now - min((first.arrived for first in firsts if first is not None), default=now)

    def enter(self, key: str) -> None:
        """Count a call of this key that starts to wait, or is granted a permit at once."""
        calls = self.active.get(key, 0)
        if not calls and (self.active or self._last_key != (key,)):
            self.token_counter.enter(key, self.rivals())
        self.active[key] = calls + 1

    def leave(self, key: str) -> None:
        """Count off a call of this key that neither waits nor holds a permit any more."""
        calls = self.active[key] - 1
        if calls:
            self.active[key] = calls
            return
        del self.active[key]
        self._last_key = (key,)

    def rivals(self) -> Iterable[str]:
        """The keys beside which a key becomes active: the active ones or, without any, the last of them."""
        return self.active or self._last_key

    def grant(self, waiter: Waiter, now: float) -> None:
        """Give the waiter a permit and charge its expected cost."""
        self.free -= 1
        if waiter.priority == INTERACTIVE:
            self.interactive += 1
        self.granted_at = now
        waiter.state, waiter.since = GRANTED, now
        self.token_counter.charge(waiter.key, waiter.tokens, now)
        if self.admission is not None:
            self.admission.hold(waiter.demand, now)
        if self.pace is not None:
            self.pace.note(waiter.tokens, now)
            if (quota := self._quota(waiter.model)) is not None:
                quota.note(waiter.tokens)

    def learn(self, model: str, headers: Mapping[str, str], now: float) -> bool:
        """Read the quota that a model's answer advertises (lower-case names); return whether it has changed."""
        quota = self._quota(model) or Quota()
        if self.pace is None or not quota.learn(headers, now):
            return False
        self.quotas[self.name, model] = quota
        if (lanes := self.models.get(model)) is not None:
            lanes.held_until = 0.0
        return True

    def rate_wait(self, model: str, tokens: int, now: float) -> float:
        """Seconds until the pace and the model's quota let a call of `tokens` go; 0.0 is now."""
        if self.pace is None:
            return 0.0
        return max(self.pace.wait(tokens, now), self.quota_wait(model, tokens, now))

    def quota_wait(self, model: str, tokens: int, now: float) -> float:
        """Seconds until the model's quota lets a call of `tokens` go; 0.0 is now."""
        quota = self._quota(model) if self.pace is not None else None
        return 0.0 if quota is None else quota.wait(tokens, now)

    def _quota(self, model: str) -> Quota | None:
        return self.quotas.get((self.name, model)) if self.quotas else None

    def add(self, waiter: Waiter) -> None:
        """Append the waiter to its lane."""
        model = self.models.get(waiter.model)
        if model is None:
            model = self.models[waiter.model] = ModelLanes()
        lanes = model.keys.get(waiter.key)
        if lanes is None:
            lanes = model.keys[waiter.key] = KeyLanes()
        lane = lanes.lane(waiter)
        lane.waiters[waiter] = None
        lane.tokens += waiter.tokens
        self.waiting += 1
        model.waiting += 1
        model.held_until = 0.0  # it may be the model's next one, and small enough for what is left

    def move_to_front(self, waiter: Waiter) -> None:
        """Make the waiter the first in its lane."""
        lane = self.models[waiter.model].keys[waiter.key].lane(waiter)
        lane.waiters.move_to_end(waiter, last=False)

    def remove(self, waiter: Waiter) -> None:
        """Remove the waiter from its lane, whatever its position."""
        model = self.models[waiter.model]
        lanes = model.keys[waiter.key]
        lane = lanes.lane(waiter)
        del lane.waiters[waiter]
        lane.tokens -= waiter.tokens
        if not lanes.interactive.waiters and not lanes.batch.waiters:
            del model.keys[waiter.key]
        self.waiting -= 1
        model.waiting -= 1
        model.held_until = 0.0
        if not model.waiting:
            del self.models[waiter.model]

    def first(self, now: float) -> Waiter | None:
        """The next waiter in fair order among those that no quota holds; None without any."""
        ranks = []
        for model in self.models.values():
            if model.held(now):
                continue
            for key, lanes in model.keys.items():
                late, waiter = lanes.first(now)
                ranks.append((late, self.token_counter.of(key), waiter.number, waiter))
        return min(ranks)[3] if ranks else None

    def next_release(self, now: float) -> float:
        """When the first quota lets waiters go that it holds; `math.inf` if none holds any."""
        return min((model.held_until for model in self.models.values() if model.held(now)), default=math.inf)

    def release_holds(self) -> None:
        """Follow changed limits: what holds a model is asked anew."""
        for model in self.models.values():
            model.held_until = 0.0

    def calls_ahead(self, model: str, now: float) -> int:
        """Waiters before which a newcomer of this model does not go: all but those whose own quota holds them."""
        if not self.waiting:
            return 0
        return sum(lanes.waiting for other, lanes in self.models.items() if other == model or not lanes.held(now))

    def learn_service_time(self, seconds: float, now: float) -> None:
        """Add a permit that was held for `seconds` to the mean."""
        before = self._mean_weight
        weight = before * _MEAN_SPAN_S / (_MEAN_SPAN_S + now - self._mean_updated_at)
        if weight < _MEAN_MIN_CALLS:
            weight = before if before < _MEAN_MIN_CALLS else _MEAN_MIN_CALLS
        self._mean_weight = weight = weight + 1.0
        self._mean_service_s += (seconds - self._mean_service_s) / weight
        self._mean_updated_at = now

    def stalled_for(self, now: float) -> float:
        """Seconds since the last grant while no permit is free, up to STALL_S.

        When an upstream hangs, no call ends and the mean goes stale; the stall is then likely to last as long
        again.
        """
        return min(now - self.granted_at, STALL_S) if self.free <= 0 else 0.0

    def drain_time(self, calls: int, tokens: float) -> float | None:
        """Seconds until `calls` with `tokens` in total have left the queue; None if nothing is known yet."""
        at_once = self.permits
        if self.admission is not None and self.waiting:
            at_once = max(1, self.in_flight)  # the KV cache may be full before the permits are used up
        by_permits = calls * self._mean_service_s / at_once if self._mean_weight else None
        if self.pace is None:
            return by_permits
        return max(by_permits or 0.0, self.pace.drain_time(calls, tokens))

    def expected_wait(self, waiter: Waiter, now: float) -> float | None:
        """Seconds that a newcomer would wait as things stand; None if nothing is known yet."""
        calls, tokens = 1, float(waiter.tokens)
        rivals = [
            (key, lanes)
            for name, model in self.models.items()
            if name == waiter.model or not model.held(now)
            for key, lanes in model.keys.items()
        ]
        weight = self.token_counter.weight(now)
        batch = waiter.priority == BATCH
        own_tokens = sum(
            lanes.interactive.tokens + (lanes.batch.tokens if batch else 0)
            for key, lanes in rivals
            if key == waiter.key
        )
        active = waiter.key in self.active
        start = self.token_counter.of(waiter.key) if active else self.token_counter.entering(waiter.key, self.rivals())
        level = start + weight * own_tokens  # its key's counter when its turn comes
        for key, lanes in rivals:
            behind = (level - self.token_counter.of(key)) / weight if key != waiter.key else math.inf
            for lane in (lanes.interactive, lanes.batch):
                if lane is lanes.batch and not (batch or lanes.aged(now)):
                    continue
                higher_class = batch and lane is lanes.interactive
                ahead = len(lane.waiters) if higher_class else _calls_within(lane, behind)
                calls += ahead
                tokens += ahead and lane.tokens * ahead / len(lane.waiters)
        wait = self.drain_time(calls, tokens)
        return wait if self.pace is None else max(wait or 0.0, self.rate_wait(waiter.model, waiter.tokens, now))


def _calls_within(lane: PriorityLane, behind: float) -> int:
    """Calls of a lane that go while its key is `behind` tokens behind the newcomer's key."""
    count = len(lane.waiters)
    if not count or behind < 0:
        return 0
    return int(min(count, behind * count / lane.tokens + 1))
