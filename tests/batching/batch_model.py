"""Callers, a batcher and an upstream in one event loop of plain numbers; no clock runs."""

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from gateway.batching.batcher import Batcher, BatchLimits, PendingBatch
from gateway.batching.experiment import GREEDY, LOCKSTEP, MergeMode
from gateway.batching.pending import PendingCall
from gateway.batching.profile import BatchProfile
from gateway.batching.tuner import OK
from gateway.core.caller import INTERACTIVE

TOKENS = 10
"""Of every call."""


class Engine(NamedTuple):
    """Does `places` calls at a time; one takes `fixed` seconds and `each` for every item in it."""

    places: int = 4
    fixed: float = 0.020
    each: float = 0.0005


class World:
    """`bounds` None: nothing is merged. `times` are the callers' waits, `sizes` the upstream calls'."""

    def __init__(
        self,
        bounds: BatchLimits | None,
        engine: Engine = Engine(),  # noqa: B008 - a tuple
        ways: tuple[MergeMode, ...] = (LOCKSTEP, GREEDY),
    ) -> None:
        self.engine, self.free = engine, engine.places
        self.batcher: Batcher | None = None
        if bounds is not None:
            self.kind = BatchProfile("engine", bounds, ways if bounds.policy == "eager" else (GREEDY,))
            self.batcher = Batcher(bounds, self.kind.tuning)
        self.now = 0.0
        self.times: list[float] = []
        self.sizes: list[int] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: list[tuple[PendingBatch | None, list[PendingCall]]] = []
        self._after: dict[PendingCall, Callable[[], None]] = {}
        self._single: set[PendingCall] = set()  # those that the batcher has not seen
        self._count = 0

    def closed(self, callers: int, seconds: float, after: float = 0.0) -> float:
        """Callers who come back 10 us after each answer. Calls a second, from the second `after` on."""
        for number in range(callers):
            key = f"caller-{number}"

            def again(key: str = key) -> None:
                self._at(self.now + 10e-6, lambda: self._call(key, again))

            self._at(number * 10e-6, again)
        self._run(after)
        before = len(self.times)
        self._run(seconds)
        return (len(self.times) - before) / (seconds - after)

    def open(self, rate: float, seconds: float, seed: int = 1) -> float:
        """Calls at random moments, so many a second. Mean seconds until the answer."""
        random, at = Random(seed), 0.0
        while at < seconds:
            at += random.expovariate(rate)
            self._at(at, lambda: self._call("caller", lambda: None))
        self._run(math.inf)
        return math.fsum(self.times) / len(self.times)

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def _run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def _call(self, key: str, after: Callable[[], None]) -> None:
        member = PendingCall(key, 1, TOKENS, self.now, math.inf, INTERACTIVE)
        self._after[member] = after
        told: str | list[PendingBatch] = "off"
        if self.batcher is not None:
            if self.kind.come(self.now):
                told = self.batcher.arrive(member, self.now)
            else:
                self._single.add(member)
        if isinstance(told, list):
            self._start(told)
        else:
            self._queue.append((None, [member]))
            self._send()

    def _start(self, batches: list[PendingBatch]) -> None:
        self._queue.extend((batch, []) for batch in batches)
        self._send()
        due = None if self.batcher is None else self.batcher.next_due()
        if due is not None:
            self._at(max(due, self.now), self._ring)

    def _ring(self) -> None:
        assert self.batcher is not None
        due = self.batcher.next_due()
        if due is not None and due <= self.now:
            self._start(self.batcher.due(self.now))

    def _send(self) -> None:
        while self.free and self._queue:
            batch, members = self._queue.pop(0)
            if batch is not None and self.batcher is not None:
                members = self.batcher.take(batch, self.now)
            assert members
            self.free -= 1
            self.sizes.append(len(members))
            takes = self.engine.fixed + self.engine.each * len(members)
            self._at(self.now + takes, lambda b=batch, m=members, t=takes: self._end(b, m, t))

    def _end(self, batch: PendingBatch | None, members: list[PendingCall], took: float) -> None:
        self.free += 1
        if members[0] in self._single:
            self._single.remove(members[0])
        elif self.batcher is not None:
            tokens = TOKENS * len(members)
            self._start(self.batcher.ended(batch, len(members), tokens, took, OK, self.now))
        self._send()
        for member in members:
            if self.batcher is not None:
                self.kind.gone(self.now)
            self.times.append(self.now - member.arrived)
            self._after.pop(member)()
