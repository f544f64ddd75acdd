"""Callers, a gateway and engines in plain numbers and virtual time, around the gateway's own policies.

Engines have slots, and a call in a slot takes `service_s` seconds, exponentially distributed. Callers behave
as the OpenAI SDK does: a timeout of 10 s, two retries, `retry-after` heeded, no retry where the header says
that none helps. Each defence can be switched off.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random

from gateway.core.caller import INTERACTIVE
from gateway.core.errors import Rejection
from gateway.queueing.upstream_queue import GRANTED, QUEUED, UpstreamQueue, Waiter
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, WaitingRoom
from gateway.resilience.circuit_breaker import CircuitBreaker, Outcome
from gateway.resilience.retry_budget import RetryBudget, backoff, own_attempts

PATIENCE_S = 10.0
BUCKET_S = 10


@dataclass(frozen=True)
class Defences:
    """All on. `queue_s`: seconds of work that may wait; `timeout_known`: the gateway knows it.

    `steady`: what it knows of the engine is a mean over many calls, and not over the last few.
    """

    queue_s: float = 4.0
    timeout_known: bool = True
    steady: bool = True
    abort: bool = True
    breaker: bool = True
    budget: bool = True


class Jumpy(UpstreamQueue):
    """A queue whose mean covers only the last few calls."""

    __slots__ = ()

    def learn_service_time(self, seconds: float, now: float) -> None:
        self._mean_weight = min(self._mean_weight, 9.0)
        super().learn_service_time(seconds, now)


class Engine:
    """One upstream, with the gateway's state for it."""

    def __init__(self, name: str, slots: int, rng: Random, *, steady: bool) -> None:
        self.queue = UpstreamQueue(name, slots) if steady else Jumpy(name, slots)
        self.breaker = CircuitBreaker(5, 5.0, 60.0, rng)
        self.budget = RetryBudget(0.1)
        self.up = True
        self.frozen_until = 0.0
        self.slowness = 1.0
        self.calls: set[Call] = set()


class Call(Waiter):
    """One request of a caller. The gateway may make several attempts, each queued separately."""

    def __init__(self, bucket: int, retries: int, deadline: float, now: float) -> None:
        super().__init__("key", INTERACTIVE, 1, deadline, now)
        self.bucket, self.retries = bucket, retries
        self.attempts = 0
        self.ticket = 0
        self.engine: Engine | None = None
        self.answered = False


class World:
    """`load` is the arrival rate relative to the capacity of all slots."""

    def __init__(
        self,
        seed: int,
        load: float,
        engines: int,
        slots: int,
        defences: Defences,
        service_s: float = 1.0,
    ) -> None:
        self.rng = Random(seed)
        self.now = 100.0
        self.start = self.now
        self.defences = defences
        self.engines = [Engine(f"engine-{n}", slots, self.rng, steady=defences.steady) for n in range(engines)]
        self.service_s = service_s
        bound = defences.queue_s * slots * engines / service_s
        self.room = WaitingRoom(10**9 if bound == math.inf else int(bound))
        self.rate = load * slots * engines / service_s
        self.asked: Counter[int] = Counter()  # by the time bucket of a caller's first request
        self.served: Counter[int] = Counter()
        self.attempts = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Schedule the event `seconds` after the start."""
        self._after(self.start + seconds - self.now, event)

    def run(self, seconds: float) -> None:
        """Run the simulation until `seconds` after the start."""
        self._next_caller()
        while self._events[0][0] < self.start + seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def goodput(self, begin: float, end: float) -> list[float]:
        """The ratio of callers served, by the bucket of their first request."""
        buckets = range(math.ceil(begin / BUCKET_S), int(end / BUCKET_S))
        return [self.served[bucket] / self.asked[bucket] for bucket in buckets]

    def kill(self, engine: Engine) -> None:
        """Fail the engine's calls, and all new ones."""
        engine.up = False
        for call in list(engine.calls):
            self._failed(call)

    # Callers

    def _next_caller(self) -> None:
        self._after(self.rng.expovariate(self.rate), self._caller)

    def _caller(self) -> None:
        self._next_caller()
        bucket = int((self.now - self.start) / BUCKET_S)
        self.asked[bucket] += 1
        self._send(bucket, 0)

    def _send(self, bucket: int, retries: int) -> None:
        deadline = self.now + PATIENCE_S if self.defences.timeout_known else math.inf
        call = Call(bucket, retries, deadline, self.now)
        self._after(PATIENCE_S, lambda: self._gave_up(call))
        if retries == 0:
            # Deposits even if the breaker rejects the call, or a dead engine could not pay for its probes.
            self._ranked(call)[0].budget.deposit(self.now)
        self._attempt(call)

    def _retry(self, call: Call, retry_after: float | None = None) -> None:
        if call.retries < 2:
            own = min(8.0, 0.5 * 2**call.retries) * (1.0 - 0.25 * self.rng.random())
            wait = own if retry_after is None else max(1, math.ceil(retry_after))
            self._after(wait, lambda: self._send(call.bucket, call.retries + 1))

    def _gave_up(self, call: Call) -> None:
        if call.answered:
            return
        call.answered = True
        engine = call.engine
        if engine is not None and call.state == QUEUED and (self.defences.abort or self.defences.timeout_known):
            self._record(call, "none")
            self._go(self.room.leave(engine.queue, call, self.now))
        elif call.state == GRANTED and self.defences.abort:
            self._record(call, "none")
            self._free(call)
        self._retry(call)

    # Gateway

    def _ranked(self, call: Call) -> list[Engine]:
        """Engines, least loaded first; after a failure, the failed one last."""
        load = {engine: engine.queue.in_flight + engine.queue.waiting for engine in self.engines}
        return sorted(self.engines, key=lambda one: (one is call.engine, load[one], self.rng.random()))

    def _choose(self, call: Call) -> Engine | None:
        ranked = self._ranked(call)
        if not self.defences.breaker:
            return ranked[0]
        for last_resort in (False, True):
            for engine in ranked:
                if ticket := engine.breaker.acquire(self.now, last_resort):
                    call.ticket = ticket
                    return engine
        return None

    def _attempt(self, call: Call) -> None:
        if call.answered and self.defences.abort:
            return
        engine = self._choose(call)
        if engine is None:
            self._reject(call, min(engine.breaker.wait(self.now) for engine in self.engines))
            return
        call.engine = engine
        call.attempts += 1
        outcome = self.room.arrive(engine.queue, call, self.now)
        if outcome is GRANTED_AT_ONCE:
            self._go([call])
        elif isinstance(outcome, Rejection):
            self._record(call, "none")
            self._reject(call, outcome.retry_after)

    def _reject(self, call: Call, retry_after: float | None) -> None:
        if not call.answered:
            call.answered = True
            self._retry(call, retry_after)

    def _record(self, call: Call, outcome: Outcome) -> None:
        if self.defences.breaker:
            call.engine.breaker.record(outcome, self.now, call.ticket)

    def _free(self, call: Call) -> None:
        call.engine.calls.discard(call)
        self._go(self.room.release(call.engine.queue, call, 1, self.now))

    def _failed(self, call: Call) -> None:
        if call.state != GRANTED:
            return
        self._record(call, "failure")
        self._free(call)
        may = call.attempts < own_attempts(2, call.retries)
        if may and (not self.defences.budget or call.engine.budget.try_withdraw(self.now)):
            self._after(backoff(call.attempts, 0.05, 2.0, self.rng), lambda: self._attempt(call))
        else:
            call.answered = True  # with a 502 that says not to retry

    # Engines

    def _go(self, waiters: list[Waiter]) -> None:
        for call in waiters:
            self.attempts += 1
            call.engine.calls.add(call)
            if call.engine.up:
                self._serve(call)
            else:
                self._after(0.0, lambda call=call: self._failed(call))

    def _serve(self, call: Call) -> None:
        engine = call.engine
        mean_s = engine.slowness * self.service_s
        wait = max(0.0, engine.frozen_until - self.now) + self.rng.expovariate(1.0 / mean_s)
        self._after(wait, lambda: self._done(call, engine))

    def _done(self, call: Call, engine: Engine) -> None:
        if call.state != GRANTED or call.engine is not engine:
            return
        if self.now < engine.frozen_until:
            self._serve(call)  # the rest of an exponential service time is distributed as the whole
            return
        self._record(call, "success")
        self._free(call)
        if not call.answered:
            call.answered = True
            self.served[call.bucket] += 1

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event))
