"""A discrete-event simulation of callers, a batcher and an upstream."""

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from gateway.batching.batcher import Batcher, BatchLimits, PendingBatch
from gateway.batching.experiment import GREEDY, LOCKSTEP, MergeMode
from gateway.batching.pending import PendingCall
from gateway.batching.profile import BatchProfile
from gateway.batching.tuner import FAILED, OK
from gateway.core.caller import INTERACTIVE

TOKENS = 10
"""Tokens of every call."""


class Engine(NamedTuple):
    """Serves `slots` calls at a time; a call takes `fixed` seconds plus `each` per item."""

    slots: int = 4
    fixed: float = 0.020
    each: float = 0.0005
    merged: float = 1.0  # factor of `each` in a list
    noise: float = 0.0  # the time of a call varies by this share of it
    queues: bool = False  # whether it takes every call at once, and queues itself


class World:
    """With `limits` None nothing is merged. `times` are latencies, `ends` when, `sizes` the calls per upstream call."""

    def __init__(
        self,
        limits: BatchLimits | None,
        engine: Engine = Engine(),  # noqa: B008 - a tuple
        modes: tuple[MergeMode, ...] = (LOCKSTEP, GREEDY),
    ) -> None:
        self.engine, self.free = engine, engine.slots
        self.batcher: Batcher | None = None
        if limits is not None:
            self.profile = BatchProfile("engine", limits, modes if limits.policy == "eager" else (GREEDY,))
            self.batcher = Batcher(limits, self.profile.tuner)
        self.now = 0.0
        self._random = Random(7)
        self.times: list[float] = []
        self.ends: list[float] = []
        self.sizes: list[int] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: list[tuple[PendingBatch | None, list[PendingCall]]] = []
        self._after: dict[PendingCall, Callable[[], None]] = {}
        self._single: set[PendingCall] = set()  # calls that bypass the batcher
        self._count = 0

    def closed(self, callers: int, seconds: float, after: float = 0.0) -> float:
        """Closed loop: callers return 10 us after each answer. Calls a second, from `after` seconds on."""
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
        """Open loop: `rate` calls a second at random moments. Returns the mean latency in seconds."""
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
        outcome: str | list[PendingBatch] = "off"
        if self.batcher is not None:
            if self.profile.arrived(self.now):
                outcome = self.batcher.arrive(member, self.now)
            else:
                self._single.add(member)
        if isinstance(outcome, list):
            self._start(outcome)
        else:
            self._queue.append((None, [member]))
            self._send()

    def _start(self, batches: list[PendingBatch]) -> None:
        queues, take = self.engine.queues, self.batcher.take if self.batcher is not None else None
        for batch in batches:
            self._queue.append((batch, take(batch, self.now) if queues and take is not None else []))
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
            if not members:  # all went with other batches
                assert batch is not None
                assert self.batcher is not None
                self._start(self.batcher.ended(batch, 0, 0, 0.0, FAILED, self.now))
                continue
            self.free -= 1
            self.sizes.append(len(members))
            factor = self.engine.merged if len(members) > 1 else 1.0
            takes = self.engine.fixed + self.engine.each * factor * len(members)
            noise = self.engine.noise / math.sqrt(len(members))
            takes *= self._random.uniform(1.0 - noise, 1.0 + noise)
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
                self.profile.done(self.now, self.now - member.arrived)
            self.times.append(self.now - member.arrived)
            self.ends.append(self.now)
            self._after.pop(member)()
