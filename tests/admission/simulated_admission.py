"""Calls through the gateway's queue to a simulated engine, in virtual time: direct, with a fixed limit, or `auto`."""

import heapq
import math
from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from doubles.engine_simulator import EngineProfile, EngineSimulator, SimulatedCall

from gateway.admission.engine_admission import EngineAdmission, EngineLoad
from gateway.core.caller import INTERACTIVE
from gateway.core.tokens import TokenEstimate
from gateway.queueing.upstream_queue import UpstreamQueue, Waiter, demand_of
from gateway.queueing.waiting_room import GRANTED_AT_ONCE, WaitingRoom

READ_EVERY_S = 1.0
MANY = 10**9


class _Waiting(Waiter):
    __slots__ = ("call",)

    call: SimulatedCall


class Outcome(NamedTuple):
    """What a run gave: tokens a second, preemptions, seconds to the first token and between tokens, and the calls."""

    tokens_s: float
    preemptions: int
    ttft_p50: float
    ttft_p99: float
    longest_gap: float
    calls: list[SimulatedCall]
    queue: UpstreamQueue


def run(
    profile: EngineProfile,
    calls: Iterable[SimulatedCall],
    limit: int | None,
    *,
    tells: bool = True,
    during: Callable[[float, EngineSimulator], None] = lambda now, engine: None,
) -> Outcome:
    """Serve the calls. `limit` is the fixed number of permits, None: `auto`. `tells`: the engine has metrics.

    `during(now, engine)` runs before every step, to change the engine or to take part of its cache.
    """
    engine = EngineSimulator(profile)
    admission = EngineAdmission() if limit is None else None
    permits = limit if admission is None else admission.limit.value
    queue, room = UpstreamQueue("engine", permits or 1, admission=admission), WaitingRoom(MANY)
    arrivals = [(call.arrived, number, call) for number, call in enumerate(calls)]
    heapq.heapify(arrivals)
    done: list[SimulatedCall] = []
    tickets: dict[SimulatedCall, _Waiting] = {}
    now, read_at = 0.0, 0.0

    def send(waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            assert isinstance(waiter, _Waiting)
            engine.submit(waiter.call, now)

    while arrivals or queue.waiting or not engine.idle:
        if engine.idle and not queue.waiting and arrivals:
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            call = heapq.heappop(arrivals)[2]
            ticket = _Waiting(call.key, INTERACTIVE, call.prompt + (call.cap or call.output), math.inf, now, "m")
            ticket.call = call
            if admission is not None:
                estimate = TokenEstimate(call.prompt, call.cap or 256, bool(call.cap))
                ticket.demand = demand_of(admission, estimate, call.key, "m")
            tickets[call] = ticket
            if room.arrive(queue, ticket, now) is GRANTED_AT_ONCE:
                send([ticket])
            elif queue.free > 0:
                send(room.grant_next(queue, now))
        if now >= read_at:
            read_at = now + READ_EVERY_S
            if admission is not None and tells:
                capacity = engine.profile.capacity
                load = EngineLoad(
                    len(engine.running) + (engine.taken > 0) * 1000,
                    len(engine.waiting),
                    engine.used / capacity,
                    engine.preemptions,
                    capacity,
                    profile.block,
                )
                admission.read(load, queue.in_flight, queue.waiting > 0, now)
                queue.follow_limit(now)
                send(room.grant_next(queue, now))
        during(now, engine)
        if engine.idle:
            now = min(arrivals[0][0] if arrivals else read_at, read_at)
            continue
        engine.now = now
        ended = engine.step()
        now = engine.now
        for call in ended:
            done.append(call)
            ticket = tickets.pop(call)
            if admission is not None and ticket.demand is not None:
                ticket.demand.output = call.output
                assert call.first_token is not None
                between = (now - call.first_token) / (call.output - 1) if call.output > 1 else None
                admission.limit.answered(call.first_token - call.sent, call.prompt, between)
            send(room.release(queue, ticket, call.prompt + call.output, now))
    ttfts = sorted(call.ttft for call in done)
    return Outcome(
        engine.tokens / now,
        engine.preemptions,
        median(ttfts),
        ttfts[int(0.99 * (len(ttfts) - 1))],
        max(call.longest_gap for call in done),
        done,
        queue,
    )
