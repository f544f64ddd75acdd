"""Spill-over through the real queue and attempts, in virtual time: a small own engine and a paid one."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from doubles.virtual_time import run

from gateway.core.budget_calendar import Calendar
from gateway.core.call import CHAT, Call, Candidate, Credentials, Price, Reply, Route, TokenEstimate
from gateway.core.caller import Caller, KeyLimits
from gateway.core.errors import INSUFFICIENT_QUOTA, STATUS, Rejection, UpstreamFailure, upstream_status
from gateway.limits.account import Account
from gateway.limits.gate import KeyLimitGate
from gateway.queueing.layer import QueueLayer
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.layer import attempts
from gateway.resilience.retry_budget import RetryBudget
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.router import HEADER, RequestInspectors, Router, RoutingRule
from gateway.telemetry.metrics import Metrics

PRICE = Price(10**9, 10**9, 0)  # a dollar a million: 1000 nano-dollars a token
EACH = 200_000  # nano-dollars of a call
OWN = Candidate("own", "up", b'"up"', Price(0, 0, 0))
PAID = Candidate("paid", "up", b'"up"', PRICE)


class World:
    """An own engine with 4 places and a paid one with many; answers take `takes` seconds, give or take."""

    def __init__(
        self, spill_s: float | None, *, own: float = 1.0, paid_permits: int = 1000, seed: int = 1
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.rng = Random(seed)
        self.takes = {"own": own, "paid": 0.5}
        self.spread = 0.5
        self.fails: set[str] = set()
        self.served: Counter[str] = Counter()
        self.waits: list[float] = []
        self.own_busy_s = 0.0
        lines = {"own": UpstreamQueue("own", 4), "paid": UpstreamQueue("paid", paid_permits)}
        self.lines = lines
        queue = QueueLayer(
            WaitingRoom(10_000), lines, self.loop.time, dict.fromkeys(lines, lambda s: None), self.estimate
        )
        health = {
            name: UpstreamHealth(CircuitBreaker(5, 5.0, 60.0, self.rng), RetryBudget(0.1), 600.0)
            for name in lines
        }
        counts = RetryMetrics(lambda *labels: lambda calls: None, *[lambda *labels: None] * 2)
        self.health = health
        attempt = AttemptRunner(
            health, RetryPolicy(2, 0.0, 2.0), counts, self.loop.time, asyncio.sleep, self.rng
        )
        self.route = Route("m", b'"m"', (OWN, PAID))
        self.routing = Router(
            {"m": RoutingRule("priority", spill_s)},
            UpstreamLoads(lines),
            PrefixMap(),
            RequestInspectors(lambda body: frozenset(), lambda *_: (), self.estimate),
            lambda one, now: health[one.upstream].breaker.ready(now),
            lambda *labels: None,
            self.rng,
        )
        queue.spills = self.routing.spills
        self.queue = queue
        self.handle = attempts(attempt)(queue(self.forward))
        self.limit = KeyLimitGate(self.estimate, Calendar("UTC", 0.0, self.loop.time()), Metrics())

    def estimate(self, call: Call) -> TokenEstimate:
        call.estimate = TokenEstimate(100, 100, True)
        return call.estimate

    async def forward(self, call: Call) -> Reply | Rejection:
        assert call.candidate is not None
        name = call.candidate.upstream
        call.attempts += 1
        call.sent_at = self.loop.time()
        if name in self.fails:
            raise UpstreamFailure(upstream_status(500), "no", cause=STATUS, status=500)
        seconds = self.takes[name] * self.rng.uniform(1 - self.spread, 1 + self.spread)
        await asyncio.sleep(seconds)
        self.served[name] += 1
        if name == "own":
            self.own_busy_s += seconds
        call.answered_at = self.loop.time()
        return Reply(200, b"{}")

    def call(self, account: Account | None = None) -> Call:
        call = Call(CHAT, "id", Credentials(None, None, None), self.loop.time())
        call.route, call.candidate, call.model = self.route, OWN, "m"
        call.caller = Caller("team", None, account)
        return call

    async def serve(self, call: Call) -> Reply | Rejection:
        """The call's life, from the limits to the last byte."""
        now = call.accepted_at
        try:
            refusal = self.limit.admit(call, now) or self.routing.admit(call, now)
            if refusal is not None:
                return refusal
            return await self.handle(call)
        finally:
            call.cost = EACH if call.answered_at and call.candidate is PAID else 0
            self.waits.append(call.queue_s)
            call.lease.settle(call, self.loop.time())

    async def paid_fails(self) -> CircuitBreaker:
        """Its breaker opens, and ten seconds go by."""
        breaker = self.health["paid"].breaker
        for _ in range(5):
            breaker.record("failure", self.loop.time(), breaker.acquire(self.loop.time()))
        await asyncio.sleep(10.0)
        return breaker

    async def four_and_six_more(self) -> None:
        """Four fill the own engine before six more come."""
        first = [asyncio.create_task(self.serve(self.call())) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.gather(*(self.serve(self.call()) for _ in range(6)), *first)

    async def arrivals(self, rate: float, seconds: float, account: Account | None = None) -> list[Any]:
        """Calls at random moments, so many a second, all to their end."""
        tasks = []
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            tasks.append(asyncio.create_task(self.serve(self.call(account))))
            await asyncio.sleep(self.rng.expovariate(rate))
        return await asyncio.gather(*tasks)


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    run(scenario)


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


@pytest.mark.parametrize("rate", [6.0, 8.0, 12.0])
def test_overload_goes_past_the_own_engine_and_no_more_than_that(rate: float) -> None:
    """The own engine serves 4 calls a second. Beyond that nobody waits longer than the bound."""

    async def scenario() -> None:
        world = World(2.0)
        await world.arrivals(rate, 120.0)
        total = sum(world.served.values())
        assert max(world.waits) <= 2.0 + 0.5 + 0.01  # the bound, and the pause between two looks
        assert p99(world.waits) <= 2.5
        assert world.own_busy_s >= 0.97 * 4 * 120  # it has been kept full
        needed = 1 - 4.0 / rate
        assert world.served["paid"] / total <= needed + 0.05

    in_virtual_time(scenario())


def test_without_a_bound_everybody_waits_and_nothing_is_paid() -> None:
    async def scenario() -> None:
        world = World(None)
        await world.arrivals(8.0, 60.0)
        assert world.served["paid"] == 0
        assert p99(world.waits) > 30.0

    in_virtual_time(scenario())


def test_below_its_capacity_nothing_leaves_the_own_engine() -> None:
    async def scenario() -> None:
        world = World(2.0)
        await world.arrivals(2.5, 120.0)
        assert world.served["paid"] == 0

    in_virtual_time(scenario())


def test_who_has_waited_in_vain_moves_and_is_told_so() -> None:
    """The prediction was wrong: calls have become much longer. After the bound the call looks elsewhere."""

    async def scenario() -> None:
        world = World(2.0)
        world.spread = 0.0
        await world.arrivals(3.0, 10.0)
        world.takes["own"] = 60.0
        holders = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = world.call()
        began = world.loop.time()
        assert isinstance(await world.serve(late), Reply)
        assert late.candidate is PAID
        assert late.queue_s == pytest.approx(2.0)
        assert world.loop.time() - began == pytest.approx(2.5)
        assert late.response_notes[HEADER] == "spill; waited=2.0s"
        assert world.lines["own"].waiting == 0
        await asyncio.gather(*holders)

    in_virtual_time(scenario())


def test_where_nobody_takes_it_it_keeps_its_place() -> None:
    async def scenario() -> None:
        world = World(1.0, paid_permits=1)
        world.spread = 0.0
        world.takes = {"own": 5.0, "paid": 3.0}
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(world.serve(world.call())) for _ in range(3)]
        await asyncio.gather(*first, *waiting)
        # One moves after 1 s, another one after 4 s, at its next look; the third gets an own place.
        assert world.served == {"own": 5, "paid": 2}
        assert sorted(round(wait, 2) for wait in world.waits) == [0, 0, 0, 0, 1.0, 4.25, 5.0]

    in_virtual_time(scenario())


def test_nobody_gives_up_his_place_for_an_upstream_whose_time_for_him_is_over() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 5.0
        world.lines["paid"].total_s = 0.5
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = world.call()
        waiting = asyncio.create_task(world.serve(late))
        await asyncio.sleep(0.7)
        later = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0.7)
        world.lines["paid"].free = 0  # none of these is tempted
        await waiting
        assert (late.candidate, late.queue_s) == (OWN, pytest.approx(5.0))
        await asyncio.gather(*first, *later)

    in_virtual_time(scenario())


def test_one_that_moved_and_failed_comes_back() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = asyncio.create_task(world.serve(world.call()))
        world.fails.add("paid")
        assert isinstance(await late, Reply)
        assert world.served == {"own": 5}
        await asyncio.gather(*first)

    in_virtual_time(scenario())


def test_a_slow_start_sends_nobody_back_to_the_end_of_the_line() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        breaker = await world.paid_fails()
        now = world.loop.time()
        breaker.record("success", now, breaker.acquire(now))  # of ten calls nine are refused for now
        await world.four_and_six_more()
        assert world.served == {"own": 4, "paid": 6}
        assert max(world.waits) == pytest.approx(1.0)

    in_virtual_time(scenario())


def test_who_was_sent_past_the_line_and_came_back_to_it_is_bound_to_no_longer_wait() -> None:
    """The wait is known to be too long, but of those that go to the paid one nine in ten are sent back."""

    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        await asyncio.gather(*(world.serve(world.call()) for _ in range(4)))
        breaker = world.health["paid"].breaker
        breaker.record("success", world.loop.time(), breaker.acquire(world.loop.time()))
        await world.paid_fails()
        now = world.loop.time()
        breaker.record("success", now, breaker.acquire(now))
        await world.four_and_six_more()
        assert world.served == {"own": 8, "paid": 6}
        assert max(world.waits) == pytest.approx(1.0)

    in_virtual_time(scenario())


def test_while_a_probe_is_out_everybody_keeps_his_place() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        breaker = await world.paid_fails()
        probe = breaker.acquire(world.loop.time())
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        early = asyncio.create_task(world.serve(world.call()))
        await asyncio.sleep(1.5)
        assert (world.lines["own"].waiting, world.lines["paid"].in_flight) == (1, 0)
        breaker.record("success", world.loop.time(), probe)
        await asyncio.gather(early, *first)
        assert world.served == {"own": 4, "paid": 1}  # at its next look
        assert max(world.waits) == pytest.approx(1.75, abs=0.26)

    in_virtual_time(scenario())


def test_who_has_failed_at_another_place_does_not_move_back_to_it() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        world.fails.add("paid")
        failed = world.call()
        failed.max_wait_s = 1.0
        failed.candidate, failed.candidates = PAID, (PAID, OWN)
        late = asyncio.create_task(world.handle(failed))
        await asyncio.sleep(0.5)
        behind = world.call()
        behind.candidates = (OWN,)
        behind.max_wait_s = 1000.0
        after = asyncio.create_task(world.handle(behind))
        await asyncio.gather(*first, late, after)
        assert failed.queue_s == pytest.approx(10.0)
        assert world.lines["paid"].in_flight == 0
        for one in (failed, behind):
            one.lease.settle(one, world.loop.time())

    in_virtual_time(scenario())


def test_who_leaves_in_the_moment_of_moving_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = asyncio.create_task(world.serve(world.call()))
        await asyncio.sleep(0)
        world.loop.call_later(1.0, late.cancel)  # set after the call's own timer, so it rings right after it
        await asyncio.gather(late, return_exceptions=True)
        assert late.cancelled()
        assert world.served["paid"] == 0
        assert (world.lines["paid"].in_flight, world.lines["own"].waiting) == (0, 0)
        assert world.queue._ahead == {}
        await asyncio.gather(*first)

    in_virtual_time(scenario())


def test_a_budget_is_kept_to_one_call_and_then_the_own_engine_is_waited_for() -> None:
    async def scenario() -> None:
        world = World(1.0)
        account = Account(KeyLimits(usd_per_day=10 * EACH), "1970-01-01")
        replies = await world.arrivals(12.0, 30.0, account)
        assert all(isinstance(one, Reply) for one in replies)
        assert world.served["paid"] == 10
        assert account.spent_today == 10 * EACH
        assert world.served["own"] == len(replies) - 10

    in_virtual_time(scenario())


def test_where_nothing_is_free_a_spent_budget_is_a_refusal() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.route = Route("m", b'"m"', (PAID, PAID))
        account = Account(KeyLimits(usd_per_day=EACH), "1970-01-01")
        assert isinstance(await world.serve(world.call(account)), Reply)
        refused = await world.serve(world.call(account))
        assert isinstance(refused, Rejection)
        assert refused.kind is INSUFFICIENT_QUOTA

    in_virtual_time(scenario())
