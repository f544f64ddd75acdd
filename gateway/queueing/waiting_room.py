"""The waiting room: who goes to an upstream at once, who waits, who is turned away, and who goes next.

One room for all upstreams of a process, one `Line` for each. Nothing here waits itself: what is handed out is
told to the layer, which wakes it. Between two calls no line has a free permit and a waiter, unless the line's
pace holds it (`held_until`).
"""

from collections import OrderedDict
from typing import NamedTuple

from gateway.core.caller import BATCH, INTERACTIVE, Priority
from gateway.core.errors import DEADLINE_IN_QUEUE, QUEUE_FULL, REQUEST_TOO_LARGE, Rejection
from gateway.queueing.upstream_queue import DONE, GRANTED, QUEUED, UpstreamQueue, Waiter

_Keys = dict[str, OrderedDict[Waiter, UpstreamQueue]]


class WaitingIndex:
    """Waiters by class and key in order of arrival, each with its line."""

    __slots__ = ("_classes", "size")

    def __init__(self) -> None:
        self.size = 0
        self._classes: dict[Priority, _Keys] = {BATCH: {}, INTERACTIVE: {}}  # the lowest first

    def add(self, waiter: Waiter, line: UpstreamQueue) -> None:
        """One more."""
        keys = self._classes[waiter.priority]
        keys.setdefault(waiter.key, OrderedDict())[waiter] = line
        self.size += 1

    def remove(self, waiter: Waiter) -> None:
        """One less."""
        keys = self._classes[waiter.priority]
        own = keys[waiter.key]
        del own[waiter]
        if not own:
            del keys[waiter.key]
        self.size -= 1

    def pick_victim(self, newcomer: Waiter) -> tuple[Waiter, UpstreamQueue] | None:
        """Who would have to leave for a newcomer; None: nobody does.

        In the lowest class that waits the key with the most waiters gives up its newest one: to another key
        that has fewer, or to any call of a higher class.
        """
        lowest = next((name for name, keys in self._classes.items() if keys), None)
        if lowest is None or (newcomer.priority == BATCH and lowest == INTERACTIVE):
            return None
        keys = self._classes[lowest]
        largest = max(keys.values(), key=len)
        own = keys.get(newcomer.key, ())
        if newcomer.priority == lowest and len(own) >= len(largest):
            return None
        return next(reversed(largest.items()))


SHORTEST_S = 0.001
"""The shortest time that a refusal tells to wait."""
UNKNOWN_S = 1.0
"""What it tells while nothing is known of an upstream."""


class Queued(NamedTuple):
    """The newcomer waits. A `victim` has left its line for it and is to be told `full(line, now)`."""

    victim: tuple[Waiter, UpstreamQueue] | None


class WaitingRoom:
    """Holds at most `max_queue` waiters over all lines; 0: nobody ever waits."""

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self._crowd = WaitingIndex()
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """Waiters over all lines."""
        return self._crowd.size

    def arrive(self, line: UpstreamQueue, waiter: Waiter, now: float) -> Rejection | Queued | None:
        """None: it goes at once and has its permit. After `Waits` on a line with a free permit ask `next`."""
        if (
            line.free > 0
            and not line.waiting
            and now < waiter.deadline
            and (line.pace is None or line.pace.wait(waiter.tokens, now) <= 0.0)
        ):
            line.enter(waiter.key)
            line.grant(waiter, now)
            return None
        return self._wait(line, waiter, now)

    def release(self, line: UpstreamQueue, waiter: Waiter, used: int | None, now: float) -> list[Waiter]:
        """Its call is over, having used so many tokens (None: unknown, the estimate stands).

        Who goes now; a second release does nothing.
        """
        if waiter.state != GRANTED:
            return []
        line.learn_service_time(now - waiter.since, now)
        return self._back(line, waiter, used, now)

    def give_back(self, line: UpstreamQueue, waiter: Waiter, now: float) -> list[Waiter]:
        """Its permit comes back unused: the caller left when it was given. Who goes now.

        The pace has counted the call and keeps it, which errs on the safe side.
        """
        return self._back(line, waiter, 0, now) if waiter.state == GRANTED else []

    def leave(self, line: UpstreamQueue, waiter: Waiter, now: float) -> list[Waiter]:
        """It waits no longer. Who goes now: the pace may have held others behind it only."""
        if waiter.state != QUEUED:
            return []
        self._remove(line, waiter)
        line.leave(waiter.key)
        return self.next(line, now) if line.free > 0 else []

    def next(self, line: UpstreamQueue, now: float) -> list[Waiter]:
        """Who goes now; sets `line.held_until` when the pace holds the one after them."""
        going = []
        line.held_until = 0.0
        while line.free > 0 and line.waiting:
            waiter = line.first(now)
            wait = 0.0 if line.pace is None else line.pace.wait(waiter.tokens, now)
            if wait > 0.0:
                # Others might fit, but who is large would never go if they went before it.
                line.held_until = now + wait
                break
            self._remove(line, waiter)
            line.grant(waiter, now)
            going.append(waiter)
        return going

    def full(self, line: UpstreamQueue, now: float) -> Rejection:
        """Tells one who finds no place, or has lost it."""
        frees = line.drain_time(1, 0.0)
        return Rejection(
            QUEUE_FULL,
            f"Too many calls wait for upstream `{line.name}`.",
            retry_after=UNKNOWN_S if frees is None else max(SHORTEST_S, frees, line.stalled_for(now)),
        )

    def too_late(self, line: UpstreamQueue, waiter: Waiter, now: float) -> Rejection:
        """Tells one who does not wait (any more) because the caller will not.

        It would fit as soon as a newcomer's wait and work are no longer than its own patience.
        """
        wait = line.expected_wait(waiter, now)
        patience = max(0.0, waiter.deadline - waiter.arrived)
        return Rejection(
            DEADLINE_IN_QUEUE,
            f"The wait for upstream `{line.name}` is longer than this call's time-out.",
            retry_after=UNKNOWN_S
            if wait is None
            else max(
                SHORTEST_S,
                line.drain_time(1, 0.0) or 0.0,
                line.stalled_for(now),
                wait + _work(line, waiter) - patience,
            ),
        )

    def _wait(self, line: UpstreamQueue, waiter: Waiter, now: float) -> Rejection | Queued:
        if line.pace is not None and waiter.tokens > line.pace.largest:
            return Rejection(
                REQUEST_TOO_LARGE,
                f"This call needs about {waiter.tokens} tokens; upstream `{line.name}` "
                f"takes at most {int(line.pace.largest)} a minute (its `rate.tpm`).",
            )
        if waiter.deadline <= now:
            return self.too_late(line, waiter, now)
        victim = None
        if self._crowd.size >= self._max_queue:
            victim = self._crowd.pick_victim(waiter)
            if victim is None:
                return self.full(line, now)
        # The first in line waits for less than a whole hold, which makes up for its own work, unless with a
        # permit free it is the pace that it waits for.
        work = _work(line, waiter) if line.waiting or line.free > 0 else 0.0
        if now + (line.expected_wait(waiter, now) or 0.0) + work > waiter.deadline:
            return self.too_late(line, waiter, now)
        if victim is not None:
            self._remove(victim[1], victim[0])
            victim[1].leave(victim[0].key)
        self._arrivals += 1
        waiter.state, waiter.number = QUEUED, self._arrivals
        line.enter(waiter.key)
        line.add(waiter)
        self._crowd.add(waiter, line)
        return Queued(victim)

    def _remove(self, line: UpstreamQueue, waiter: Waiter) -> None:
        line.remove(waiter)
        self._crowd.remove(waiter)
        waiter.state = DONE

    def _back(self, line: UpstreamQueue, waiter: Waiter, used: int | None, now: float) -> list[Waiter]:
        waiter.state = DONE
        line.free += 1
        line.leave(waiter.key)
        expected = waiter.tokens
        line.token_counter.settle(waiter.key, expected, expected if used is None else used, waiter.since)
        return self.next(line, now) if line.waiting else []


def _work(line: UpstreamQueue, waiter: Waiter) -> float:
    """Seconds from its permit to its answer; of a stream its caller waits for the beginning only.

    At most half of the caller's patience: a mean tells little of a short call among long ones.
    """
    return (
        0.0
        if waiter.stream
        else min(line.mean_service_time or 0.0, 0.5 * max(0.0, waiter.deadline - waiter.arrived))
    )
