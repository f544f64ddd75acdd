"""The waiting room: admission, eviction and fair order over the queues of all upstreams of a process.

The waiting room itself never waits. It returns the waiters that now hold a permit, and the layer wakes them.
Between two calls no queue has both a free permit and a waiter, unless its pace or a quota holds it (`held_until`)
or its engine's KV cache has no room for it.
"""

import math
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, REQUEST_TOO_LARGE, Rejection
from gateway.queueing.upstream_queue import DONE, GRANTED, QUEUED, UpstreamQueue, Waiter

SHORTEST_S: Final = 0.001
"""The shortest `retry_after` of a rejection."""
UNKNOWN_S: Final = 1.0
"""The `retry_after` while nothing is known of an upstream."""

_Keys = dict[str, OrderedDict[Waiter, UpstreamQueue]]


class Granted(Enum):
    """The newcomer holds a permit."""

    AT_ONCE = "at once"


GRANTED_AT_ONCE: Final = Granted.AT_ONCE


class Queued(NamedTuple):
    """The newcomer waits. A `victim` was evicted from its queue for it; reject it with `queue_full`."""

    victim: tuple[Waiter, UpstreamQueue] | None


QueueOutcome = Granted | Queued | Rejection


class WaitingIndex:
    """Waiters by class and key in order of arrival, each with its queue."""

    __slots__ = ("_classes", "size")

    def __init__(self) -> None:
        self.size = 0
        self._classes: dict[Priority, _Keys] = {BATCH: {}, INTERACTIVE: {}}  # the lowest class first

    def add(self, waiter: Waiter, queue: UpstreamQueue) -> None:
        """Add a waiter behind those of its class and key."""
        keys = self._classes[waiter.priority]
        keys.setdefault(waiter.key, OrderedDict())[waiter] = queue
        self.size += 1

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        keys = self._classes[waiter.priority]
        waiters = keys[waiter.key]
        del waiters[waiter]
        if not waiters:
            del keys[waiter.key]
        self.size -= 1

    def pick_victim(self, newcomer: Waiter) -> tuple[Waiter, UpstreamQueue] | None:
        """The waiter to evict for a newcomer, or None.

        The victim is the newest waiter of the key with the most waiters in the lowest class that has any. It
        yields to a key with fewer waiters, or to any call of a higher class.
        """
        lowest = next((name for name, keys in self._classes.items() if keys), None)
        if lowest is None or (newcomer.priority == BATCH and lowest == INTERACTIVE):
            return None
        keys = self._classes[lowest]
        largest = max(keys.values(), key=len)
        if newcomer.priority == lowest and len(keys.get(newcomer.key, ())) >= len(largest):
            return None
        return next(reversed(largest.items()))


class WaitingRoom:
    """Holds at most `max_queue` waiters over all queues; with 0 no call ever waits."""

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self._index = WaitingIndex()
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """Waiters over all queues."""
        return self._index.size

    def arrive(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> QueueOutcome:
        """Grant a permit, queue the waiter, or reject it.

        After `Queued` on a queue with a free permit, call `grant_next`: it sets `held_until`.
        """
        if (
            queue.free > 0
            and (not queue.waiting or not queue.calls_ahead(waiter.model, now))
            and now < waiter.deadline
            and (queue.admission is None or queue.admission.fits(waiter.demand, now))
            and (queue.pace is None or queue.rate_wait(waiter.model, waiter.tokens, now) <= 0.0)
        ):
            queue.enter(waiter.key)
            queue.grant(waiter, now)
            return GRANTED_AT_ONCE
        return self._enqueue(queue, waiter, now)

    def release(self, queue: UpstreamQueue, waiter: Waiter, used: int | None, now: float) -> list[Waiter]:
        """Return the permit of a call that used `used` tokens (None: unknown, the estimate stands).

        Returns the waiters that now hold a permit. A second release does nothing.
        """
        if waiter.state != GRANTED:
            return []
        queue.learn_service_time(now - waiter.since, now)
        return self._return_permit(queue, waiter, used, now)

    def give_back(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> list[Waiter]:
        """Return an unused permit: the caller left just when it was granted. Returns as `release` does.

        The pace still counts the call, which errs on the safe side.
        """
        return self._return_permit(queue, waiter, 0, now) if waiter.state == GRANTED else []

    def leave(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> list[Waiter]:
        """Remove a waiter. Returns the waiters that now hold a permit: the pace may have held only this."""
        if waiter.state != QUEUED:
            return []
        self._remove(queue, waiter)
        queue.leave(waiter.key)
        return self.grant_next(queue, now) if queue.free > 0 else []

    def grant_next(self, queue: UpstreamQueue, now: float) -> list[Waiter]:
        """Grant the free permits in fair order and return the waiters that got one.

        Sets `queue.held_until` when the pace holds the next waiter, or quotas hold those of their models.
        """
        granted, paced_until = [], math.inf
        while queue.free > 0 and (waiter := queue.first(now)) is not None:
            # A smaller call might fit, but if those overtook it a large call would starve.
            if (wait := queue.quota_wait(waiter.model, waiter.tokens, now)) > 0.0:
                queue.models[waiter.model].held_until = now + wait
                continue
            if queue.admission is not None and not queue.admission.fits(waiter.demand, now):
                closed_until = queue.admission.closed_until
                paced_until = closed_until if closed_until > now else math.inf  # room: when a call ends
                break
            if queue.pace is not None and (wait := queue.pace.wait(waiter.tokens, now)) > 0.0:
                paced_until = now + wait
                break
            self._remove(queue, waiter)
            queue.grant(waiter, now)
            granted.append(waiter)
        held_until = min(paced_until, queue.next_release(now)) if queue.free > 0 else math.inf
        queue.held_until = 0.0 if held_until == math.inf else held_until
        return granted

    def queue_full(self, queue: UpstreamQueue, now: float) -> Rejection:
        """The rejection of a call that finds the waiting room full, or was evicted from it."""
        drain = queue.drain_time(1, 0.0)
        return Rejection(
            QUEUE_FULL,
            f"Too many calls are waiting for upstream `{queue.name}`.",
            retry_after=UNKNOWN_S if drain is None else max(SHORTEST_S, drain, queue.stalled_for(now)),
        )

    def too_late(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> Rejection:
        """The rejection of a call that would not be answered by its deadline.

        Its `retry_after` is the time until a newcomer's wait and work fit the caller's patience.
        """
        wait = queue.expected_wait(waiter, now)
        patience = max(0.0, waiter.deadline - waiter.arrived)
        return Rejection(
            DEADLINE_IN_QUEUE,
            f"The wait for upstream `{queue.name}` is longer than this call's timeout.",
            retry_after=UNKNOWN_S
            if wait is None
            else max(
                SHORTEST_S,
                queue.drain_time(1, 0.0) or 0.0,
                queue.stalled_for(now),
                wait + _service_time(queue, waiter) - patience,
            ),
        )

    def _enqueue(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> Queued | Rejection:
        if queue.pace is not None and waiter.tokens > queue.pace.largest:
            return Rejection(
                REQUEST_TOO_LARGE,
                f"This call needs about {waiter.tokens} tokens; upstream `{queue.name}` "
                f"takes at most {int(queue.pace.largest)} a minute (its `rate.tpm`).",
            )
        if waiter.deadline <= now:
            return self.too_late(queue, waiter, now)
        victim = None
        if self._index.size >= self._max_queue:
            victim = self._index.pick_victim(waiter)
            if victim is None:
                return self.queue_full(queue, now)
        # The first in the queue waits for less than a whole service time, which makes up for its own work,
        # unless a permit is free and it waits only for the pace.
        work = _service_time(queue, waiter) if queue.waiting or queue.free > 0 else 0.0
        if now + (queue.expected_wait(waiter, now) or 0.0) + work > waiter.deadline:
            return self.too_late(queue, waiter, now)
        if victim is not None:
            self._remove(victim[1], victim[0])
            victim[1].leave(victim[0].key)
        self._arrivals += 1
        waiter.state, waiter.number = QUEUED, self._arrivals
        queue.enter(waiter.key)
        queue.add(waiter)
        self._index.add(waiter, queue)
        return Queued(victim)

    def put_back(self, queue: UpstreamQueue, waiter: Waiter, now: float) -> None:
        """Queue a call again that the engine refused as it is full: it is the next of its key.

        Afterwards call `grant_next`. No room in the waiting room is asked for: the call had been let through.
        """
        waiter.state, waiter.number = QUEUED, 0
        queue.enter(waiter.key)
        queue.add(waiter)
        queue.move_to_front(waiter)
        self._index.add(waiter, queue)

    def _remove(self, queue: UpstreamQueue, waiter: Waiter) -> None:
        queue.remove(waiter)
        self._index.remove(waiter)
        waiter.state = DONE

    def _return_permit(self, queue: UpstreamQueue, waiter: Waiter, used: int | None, now: float) -> list[Waiter]:
        waiter.state = DONE
        if queue.admission is not None:
            queue.admission.release(waiter.demand, now)
            queue.follow_limit(now)
        queue.free += 1
        if waiter.priority == INTERACTIVE:
            queue.interactive -= 1
        queue.leave(waiter.key)
        expected = waiter.tokens
        queue.token_counter.settle(waiter.key, expected, expected if used is None else used, waiter.since)
        return self.grant_next(queue, now) if queue.waiting else []


def _service_time(queue: UpstreamQueue, waiter: Waiter) -> float:
    """Expected seconds from the permit to the answer; 0.0 for a stream, which need only begin in time.

    At most half of the caller's patience: a mean says little about a short call among long ones.
    """
    return (
        0.0 if waiter.stream else min(queue.mean_service_time or 0.0, 0.5 * max(0.0, waiter.deadline - waiter.arrived))
    )
