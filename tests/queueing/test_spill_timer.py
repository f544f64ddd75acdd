"""Spill-over from a small self-hosted engine to a paid upstream, through the real layers, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from doubles.virtual_time import run
from kit.calls import make_call

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, Price, Reply, Route, TokenEstimate
from gateway.core.caller import Caller, KeyLimits
from gateway.core.errors import INSUFFICIENT_QUOTA, STATUS, Rejection, UpstreamFailure, upstream_status
from gateway.limits.account import Account
from gateway.limits.key_limit_gate import KeyLimitGate
from gateway.queueing.layer import QueueLayer
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom
from gateway.resilience.attempt import AttemptRunner, RetryMetrics, RetryPolicy, UpstreamHealth
from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.resilience.layer import attempts
from gateway.resilience.retry_budget import RetryBudget
from gateway.resilience.upstream_breakers import UpstreamBreakers
from gateway.routing.load import UpstreamLoads
from gateway.routing.prefix_affinity import PrefixMap
from gateway.routing.router import HEADER, RequestInspectors, Router, RoutingRule
from gateway.telemetry.metrics import Metrics
from gateway.wire.openai.chat import CHAT

PRICE = Price(10**9, 10**9, 0)  # a dollar a million: 1000 nano-dollars a token
EACH = 200_000  # nano-dollars of a call
OWN = Candidate("own", "up", b'"up"', Price(0, 0, 0))
PAID = Candidate("paid", "up", b'"up"', PRICE)


class World:
    """A self-hosted engine with 4 slots and a paid upstream with many; answers take about `takes` seconds."""

    def __init__(self, spill_s: float | None, *, own: float = 1.0, paid_permits: int = 1000, seed: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.rng = Random(seed)
        self.takes = {"own": own, "paid": 0.5}
        self.spread = 0.5
        self.fails: set[str] = set()
        self.served: Counter[str] = Counter()
        self.waits: list[float] = []
        self.own_busy_s = 0.0
        queues = {"own": UpstreamQueue("own", 4), "paid": UpstreamQueue("paid", paid_permits)}
        self.queues = queues
        layer = QueueLayer(WaitingRoom(10_000), queues, self.loop.time, lambda upstream: lambda s: None, self.estimate)
        health = {name: UpstreamHealth(self.breakers(), RetryBudget(0.1), 600.0) for name in queues}
        counts = RetryMetrics(lambda *labels: lambda calls: None, *[lambda *labels: None] * 2)
        self.health = health
        attempt = self.attempt = AttemptRunner(
            health, RetryPolicy(2, 0.0, 2.0), counts, self.loop.time, asyncio.sleep, self.rng
        )
        self.route = Route("m", b'"m"', (OWN, PAID))
        self.routing = Router(
            {"m": RoutingRule("priority", spill_s)},
            UpstreamLoads(queues),
            PrefixMap(),
            RequestInspectors(lambda body: frozenset(), lambda *_: (), self.estimate),
            lambda call, candidate, now: self.attempt.breaker(candidate, call.request.endpoint).ready(now),
            lambda *labels: None,
            self.rng,
        )
        layer.spills = self.routing.spills
        self.layer = layer
        self.handle = attempts(attempt)(layer(self.forward))
        self.limit = KeyLimitGate(self.estimate, Calendar("UTC", 0.0, self.loop.time()), Metrics())

    def estimate(self, call: Call) -> TokenEstimate:
        call.usage.estimate = TokenEstimate(100, 100, True)
        return call.usage.estimate

    async def forward(self, call: Call) -> Reply | Rejection:
        assert call.routing.candidate is not None
        name = call.routing.candidate.upstream
        call.attempts += 1
        call.timing.sent_at = self.loop.time()
        if name in self.fails:
            raise UpstreamFailure(upstream_status(500), "no", cause=STATUS, status=500)
        seconds = self.takes[name] * self.rng.uniform(1 - self.spread, 1 + self.spread)
        await asyncio.sleep(seconds)
        self.served[name] += 1
        if name == "own":
            self.own_busy_s += seconds
        call.timing.answered_at = self.loop.time()
        return Reply(200, b"{}")

    def call(self, account: Account | None = None) -> Call:
        call = make_call(now=self.loop.time())
        call.routing.route, call.routing.candidate, call.request.model = self.route, OWN, "m"
        call.caller = Caller("team", None, account)
        return call

    async def serve(self, call: Call) -> Reply | Rejection:
        """Handle the call from the limits to the last byte."""
        now = call.timing.accepted_at
        try:
            rejection = self.limit.admit(call, now) or self.routing.admit(call, now)
            if rejection is not None:
                return rejection
            return await self.handle(call)
        finally:
            call.usage.cost = EACH if call.timing.answered_at and call.routing.candidate is PAID else 0
            self.waits.append(call.timing.queue_s)
            call.lease.settle(call, self.loop.time())

    def breakers(self) -> UpstreamBreakers:
        """The breakers of one upstream."""
        return UpstreamBreakers(lambda: CircuitBreaker(5, 5.0, 60.0, self.rng))

    async def paid_fails(self) -> CircuitBreaker:
        """Open the paid upstream's breaker and let ten seconds pass."""
        breaker = self.attempt.breaker(PAID, CHAT)
        for _ in range(5):
            breaker.record("failure", self.loop.time(), breaker.acquire(self.loop.time()))
        await asyncio.sleep(10.0)
        return breaker

    async def four_and_six_more(self) -> None:
        """Four calls fill the self-hosted engine before six more arrive."""
        first = [asyncio.create_task(self.serve(self.call())) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.gather(*(self.serve(self.call()) for _ in range(6)), *first)

    async def arrivals(self, rate: float, seconds: float, account: Account | None = None) -> list[Any]:
        """Calls at random moments, `rate` a second, each run to its end."""
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
def test_only_the_overload_spills_over(rate: float) -> None:
    """The self-hosted engine serves 4 calls a second. Beyond that no call waits longer than the bound."""

    async def scenario() -> None:
        world = World(2.0)
        await world.arrivals(rate, 120.0)
        total = sum(world.served.values())
        assert max(world.waits) <= 2.0 + 0.5 + 0.01  # the bound, and the pause between two checks
        assert p99(world.waits) <= 2.5
        assert world.own_busy_s >= 0.97 * 4 * 120  # it was always full
        needed = 1 - 4.0 / rate
        assert world.served["paid"] / total <= needed + 0.05

    in_virtual_time(scenario())


def test_without_a_bound_every_call_waits_and_nothing_is_paid() -> None:
    async def scenario() -> None:
        world = World(None)
        await world.arrivals(8.0, 60.0)
        assert world.served["paid"] == 0
        assert p99(world.waits) > 30.0

    in_virtual_time(scenario())


def test_below_capacity_nothing_spills_over() -> None:
    async def scenario() -> None:
        world = World(2.0)
        await world.arrivals(2.5, 120.0)
        assert world.served["paid"] == 0

    in_virtual_time(scenario())


def test_a_call_whose_wait_exceeds_the_bound_moves_and_reports_it() -> None:
    """The prediction was wrong: calls have become much longer. After the bound the call moves."""

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
        assert late.routing.candidate is PAID
        assert late.timing.queue_s == pytest.approx(2.0)
        assert world.loop.time() - began == pytest.approx(2.5)
        assert late.response.notes[HEADER] == "spill; waited=2.0s"
        assert world.queues["own"].waiting == 0
        await asyncio.gather(*holders)

    in_virtual_time(scenario())


def test_a_call_that_no_upstream_takes_stays_in_its_queue() -> None:
    async def scenario() -> None:
        world = World(1.0, paid_permits=1)
        world.spread = 0.0
        world.takes = {"own": 5.0, "paid": 3.0}
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(world.serve(world.call())) for _ in range(3)]
        await asyncio.gather(*first, *waiting)
        # One moves after 1 s, another after 4 s, at its next check; the third gets a slot of the engine.
        assert world.served == {"own": 5, "paid": 2}
        assert sorted(round(wait, 2) for wait in world.waits) == [0, 0, 0, 0, 1.0, 4.25, 5.0]

    in_virtual_time(scenario())


def test_a_call_does_not_move_to_an_upstream_whose_timeout_has_passed() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 5.0
        world.queues["paid"].total_s = 0.5
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = world.call()
        waiting = asyncio.create_task(world.serve(late))
        await asyncio.sleep(0.7)
        later = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0.7)
        world.queues["paid"].free = 0  # no call can move
        await waiting
        assert (late.routing.candidate, late.timing.queue_s) == (OWN, pytest.approx(5.0))
        await asyncio.gather(*first, *later)

    in_virtual_time(scenario())


def test_a_call_that_moved_and_failed_comes_back() -> None:
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


def test_a_slow_start_sends_no_call_to_the_end_of_the_queue() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        breaker = await world.paid_fails()
        now = world.loop.time()
        breaker.record("success", now, breaker.acquire(now))  # nine calls of ten are rejected for now
        await world.four_and_six_more()
        assert world.served == {"own": 4, "paid": 6}
        assert max(world.waits) == pytest.approx(1.0)

    in_virtual_time(scenario())


def test_a_call_that_skipped_the_queue_and_came_back_has_no_bound_on_its_wait() -> None:
    """The wait is known to be too long, but the paid upstream sends nine calls of ten back."""

    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        await asyncio.gather(*(world.serve(world.call()) for _ in range(4)))
        breaker = world.attempt.breaker(PAID, CHAT)
        breaker.record("success", world.loop.time(), breaker.acquire(world.loop.time()))
        await world.paid_fails()
        now = world.loop.time()
        breaker.record("success", now, breaker.acquire(now))
        await world.four_and_six_more()
        assert world.served == {"own": 8, "paid": 6}
        assert max(world.waits) == pytest.approx(1.0)

    in_virtual_time(scenario())


def test_while_a_probe_is_in_flight_every_call_stays_in_its_queue() -> None:
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
        assert (world.queues["own"].waiting, world.queues["paid"].in_flight) == (1, 0)
        breaker.record("success", world.loop.time(), probe)
        await asyncio.gather(early, *first)
        assert world.served == {"own": 4, "paid": 1}  # at its next check
        assert max(world.waits) == pytest.approx(1.75, abs=0.26)

    in_virtual_time(scenario())


def test_a_call_does_not_move_back_to_an_upstream_where_it_failed() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        world.fails.add("paid")
        failed = world.call()
        failed.routing.max_wait_s = 1.0
        failed.routing.candidate, failed.routing.candidates = PAID, (PAID, OWN)
        late = asyncio.create_task(world.handle(failed))
        await asyncio.sleep(0.5)
        behind = world.call()
        behind.routing.candidates = (OWN,)
        behind.routing.max_wait_s = 1000.0
        after = asyncio.create_task(world.handle(behind))
        await asyncio.gather(*first, late, after)
        assert failed.timing.queue_s == pytest.approx(10.0)
        assert world.queues["paid"].in_flight == 0
        for call in (failed, behind):
            call.lease.settle(call, world.loop.time())

    in_virtual_time(scenario())


def test_a_call_that_leaves_while_moving_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.spread = 0.0
        world.takes["own"] = 10.0
        first = [asyncio.create_task(world.serve(world.call())) for _ in range(4)]
        await asyncio.sleep(0)
        late = asyncio.create_task(world.serve(world.call()))
        await asyncio.sleep(0)
        world.loop.call_later(1.0, late.cancel)  # set after the call's timer, so it fires right after it
        await asyncio.gather(late, return_exceptions=True)
        assert late.cancelled()
        assert world.served["paid"] == 0
        assert (world.queues["paid"].in_flight, world.queues["own"].waiting) == (0, 0)
        assert world.layer._moving == {}
        await asyncio.gather(*first)

    in_virtual_time(scenario())


def test_a_budget_holds_to_one_call_and_then_calls_wait_for_the_engine() -> None:
    async def scenario() -> None:
        world = World(1.0)
        account = Account(KeyLimits(usd_per_day=10 * EACH), "1970-01-01")
        replies = await world.arrivals(12.0, 30.0, account)
        assert all(isinstance(reply, Reply) for reply in replies)
        assert world.served["paid"] == 10
        assert account.spent_today == 10 * EACH
        assert world.served["own"] == len(replies) - 10

    in_virtual_time(scenario())


def test_without_a_free_candidate_a_spent_budget_is_a_rejection() -> None:
    async def scenario() -> None:
        world = World(1.0)
        world.route = Route("m", b'"m"', (PAID, PAID))
        account = Account(KeyLimits(usd_per_day=EACH), "1970-01-01")
        assert isinstance(await world.serve(world.call(account)), Reply)
        refused = await world.serve(world.call(account))
        assert isinstance(refused, Rejection)
        assert refused.kind is INSUFFICIENT_QUOTA

    in_virtual_time(scenario())
