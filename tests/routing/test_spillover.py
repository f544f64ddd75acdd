"""Spill-over, decided when a call arrives and when it has waited."""

import math
from collections.abc import Sequence

import pytest
from routing_scene import NOW, RoutingScene, candidate

from gateway.core.call import Call, Candidate, TokenEstimate
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import Waiter
from gateway.routing.load import EngineLoad
from gateway.routing.router import RoutingRule, Selection
from gateway.routing.spillover import preferred

OWN, OWN_2, PAID = candidate("own"), candidate("own-2"), candidate("paid", (1, 1))
UNKNOWN = candidate("unknown", None)


@pytest.mark.parametrize(
    ("candidates", "listed", "expected"),
    [
        ((PAID, OWN, OWN_2), False, (OWN, OWN_2)),
        ((OWN, PAID, OWN_2), True, (OWN, OWN_2)),
        ((PAID, OWN), True, (PAID,)),  # who lists a paid one first wants it so
        ((OWN, OWN_2), True, (OWN,)),
        ((OWN, OWN_2), False, (OWN, OWN_2)),
        ((UNKNOWN, PAID), False, (PAID,)),
    ],
)
def test_preferred_candidates(candidates: tuple[Candidate, ...], listed: bool, expected: tuple[Candidate, ...]):
    assert tuple(preferred(candidates, listed=listed)) == expected


def full(scene: RoutingScene, upstream: str, waiting: int, hold_s: float) -> None:
    """All permits are taken, each for this long, and calls are queued."""
    line = scene.queues[upstream]
    scene.busy(upstream, line.permits)
    line.learn_service_time(hold_s, NOW)
    for number in range(waiting):
        waiter = Waiter("a", "interactive", 200, math.inf, NOW)
        waiter.number = number
        line.enter("a")
        line.add(waiter)


def scene(*candidates: Candidate, kind: str = "priority", after: float = 2.0) -> RoutingScene:
    return RoutingScene(RoutingRule(kind, spill_s=after), *candidates)


def test_a_free_slot_at_a_preferred_upstream_is_used():
    one = scene(OWN, PAID)
    one.busy("own", 3)
    call = one.call()
    assert one.order(call) == ["own", "paid"]
    assert call.routing.max_wait_s == 2.0
    assert one.estimated == 0


def test_a_wait_within_the_bound_does_not_spill():
    one = scene(OWN, PAID)
    full(one, "own", waiting=7, hold_s=1.0)  # the eighth to go waits two seconds
    assert one.order() == ["own", "paid"]


def test_a_wait_over_the_bound_spills_with_a_header():
    one = scene(OWN, PAID)
    full(one, "own", waiting=8, hold_s=1.0)
    call = one.call()
    assert one.order(call) == ["paid", "own"]
    assert one.header(call) == "spill; wait=2.2s"
    assert one.counted == {("m", "paid", "spill"): 1}
    assert call.routing.max_wait_s == 2.0  # for the case that it has to wait all the same


def test_another_preferred_candidate_with_a_free_slot_comes_first():
    one = scene(OWN, OWN_2, PAID)
    full(one, "own", waiting=50, hold_s=1.0)
    assert one.order() == ["own-2", "own", "paid"]


def test_the_shortest_wait_of_full_preferred_candidates_counts():
    one = scene(OWN, OWN_2, PAID)
    full(one, "own", waiting=50, hold_s=1.0)
    full(one, "own-2", waiting=2, hold_s=1.0)
    assert one.order() == ["own-2", "own", "paid"]


def test_a_call_does_not_spill_to_a_longer_wait():
    one = scene(OWN, PAID)
    full(one, "own", waiting=20, hold_s=1.0)
    full(one, "paid", waiting=40, hold_s=1.0)
    assert one.order() == ["own", "paid"]


def test_calls_waiting_inside_the_engine_count_as_a_wait():
    one = scene(OWN, PAID)
    one.queues["own"].learn_service_time(8.0, NOW)
    one.engines["own"] = EngineLoad(running=4, waiting=3, kv=1.0)
    assert one.order() == ["paid", "own"]  # 8 s * 3 / 7
    one.engines["own"] = EngineLoad(running=4, waiting=1, kv=1.0)
    assert one.order() == ["own", "paid"]


def test_pacing_counts_as_a_wait():
    one = scene(OWN, PAID)
    pace = one.queues["own"].pace = Pace(6.0, None)
    pace.note(1, NOW)
    assert one.order() == ["paid", "own"]


def test_a_call_larger_than_the_rate_spills():
    one = scene(OWN, PAID)
    one.queues["own"].pace = Pace(None, 10.0)
    call = one.call()
    call.usage.estimate = TokenEstimate(1000, 10, True)
    assert one.order(call) == ["paid", "own"]


def test_a_call_does_not_spill_beyond_its_budget():
    one = scene(OWN, PAID)
    full(one, "own", waiting=50, hold_s=1.0)
    call = one.call(ceiling=0)
    assert one.order(call) == ["own"]
    assert not one.routing.spills(call, NOW + 60)


def test_a_call_does_not_spill_to_an_unusable_candidate():
    one = scene(OWN, PAID)
    one.unusable = {PAID}
    full(one, "own", waiting=50, hold_s=1.0)
    assert one.order() == ["own", "paid"]


def test_by_price_the_preferred_candidate_may_be_listed_anywhere():
    one = scene(PAID, OWN, kind="cheapest")
    assert one.order() == ["own", "paid"]
    full(one, "own", waiting=8, hold_s=1.0)
    assert one.order() == ["paid", "own"]


def test_a_call_that_has_waited_moves_to_a_candidate_with_a_free_slot():
    one = scene(OWN, OWN_2, PAID)
    full(one, "own", waiting=4, hold_s=1.0)
    full(one, "own-2", waiting=4, hold_s=1.0)
    call = one.routed()
    assert [it.upstream for it in call.routing.candidates] == ["own", "own-2", "paid"]
    full(one, "paid", waiting=0, hold_s=1.0)
    assert not one.routing.spills(call, NOW + 2)
    assert call.routing.max_wait_s == 2.0
    one.busy("paid", 0)
    assert one.routing.spills(call, NOW + 2.5)
    assert [it.upstream for it in call.routing.candidates] == ["paid", "own", "own-2"]
    assert (call.routing.max_wait_s, call.routing.candidate) == (math.inf, OWN)
    assert one.header(call) == "spill; waited=2.0s"
    assert one.counted["m", "paid", "spill"] == 1


def test_a_call_that_has_waited_does_not_move_to_an_unusable_candidate():
    one = scene(OWN, PAID)
    full(one, "own", waiting=4, hold_s=1.0)
    call = one.routed()
    one.unusable = {PAID}
    assert not one.routing.spills(call, NOW + 2)


def test_a_call_too_hard_for_preferred_candidates_does_not_go_there() -> None:
    class Hard:
        def pick(self, call: Call, candidates: Sequence[Candidate], now: float) -> Selection:
            return Selection(list(reversed(candidates)), "complexity")

    one = scene(OWN, PAID, kind="complexity")
    one.routing._scorers = {"m": Hard()}
    call = one.call()
    assert one.order(call) == ["paid", "own"]
    assert call.routing.max_wait_s == math.inf
