"""Which candidates are the cheap tier and which the strong one."""

import pytest
from routing_scene import EXPECTED, NOW, RoutingScene, candidate

from gateway.core.call import Candidate, TokenEstimate
from gateway.core.request_fields import RequestFields
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import TierChooser
from gateway.routing.complexity.tiers import ComplexityScorer, TierRanking
from gateway.routing.complexity.weights import shipped
from gateway.routing.router import RoutingRule

CHEAP, MIDDLE, DEAR = candidate("cheap", (0, 0)), candidate("middle", (1, 1)), candidate("dear", (5, 9))
TWIN, UNKNOWN = candidate("twin", (5, 9)), candidate("unknown", None)


def ranked(*candidates: Candidate) -> TierRanking:
    call = RoutingScene(RoutingRule("priority"), *candidates).call()
    return TierRanking(call, candidates, lambda one: EXPECTED)


def names(candidates: list[Candidate]) -> list[str]:
    return [one.upstream for one in candidates]


@pytest.mark.parametrize(
    ("listed", "ascending", "descending"),
    [
        ((DEAR, CHEAP), ["cheap", "dear"], ["dear", "cheap"]),
        ((DEAR, MIDDLE, CHEAP), ["cheap", "middle", "dear"], ["dear", "middle", "cheap"]),
        ((DEAR, CHEAP, TWIN), ["cheap", "dear", "twin"], ["dear", "twin", "cheap"]),
        ((DEAR, TWIN), ["dear", "twin"], ["twin", "dear"]),  # the same price: as listed
        ((DEAR, UNKNOWN), ["dear", "unknown"], ["unknown", "dear"]),  # an unknown one: as listed
    ],
)
def test_tiers_go_by_price_else_as_listed(
    listed: tuple[Candidate, ...], ascending: list[str], descending: list[str]
) -> None:
    found = ranked(*listed)
    assert (names(found.ascending), names(found.descending)) == (ascending, descending)


def test_what_the_strong_tier_costs_more_is_the_difference_for_this_call() -> None:
    assert ranked(DEAR, CHEAP).extra == 100 * 5000 + 100 * 9000  # 100 tokens in, 100 out
    assert ranked(DEAR, UNKNOWN).extra == 0


def tiered(rule: RoutingRule, share: float, *candidates: Candidate) -> RoutingScene:
    scene = RoutingScene(rule, *candidates, permits=1)
    chooser = TierChooser(PromptScorer(shipped()), share)
    scene.routing._scorers = {"m": ComplexityScorer(chooser, lambda call: EXPECTED)}
    return scene


def test_a_hard_call_stays_strong_where_the_own_engine_has_time_for_it() -> None:
    assert tiered(RoutingRule("complexity", 1.0), 1.0, CHEAP, DEAR).order() == ["dear", "cheap"]


def test_what_only_one_candidate_can_serve_is_no_choice() -> None:
    scene = tiered(RoutingRule("complexity", needs=True), 0.0, candidate("blind", (0, 0), can=[]), DEAR)
    tools = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}]}'
    call = scene.call(tools)
    assert scene.order(call) == ["dear"]
    assert scene.header(call) == "complexity"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_only_one_tier_can_serve_is_no_choice(share: float) -> None:
    blind = candidate("blind", (0, 0), can=[])
    scene = tiered(RoutingRule("complexity", needs=True), share, blind, DEAR, TWIN)
    call = scene.call(b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}]}')
    assert scene.order(call) == ["dear", "twin"]
    assert scene.header(call) == "complexity"


def test_a_call_is_scored_once_also_when_its_first_candidate_cannot_be_called() -> None:
    scene = RoutingScene(RoutingRule("complexity"), CHEAP, MIDDLE, DEAR)
    asked: list[float] = []

    class Counting(TierChooser):
        def choose(self, fields: RequestFields | None, key: str, extra: int, now: float):
            asked.append(now)
            return super().choose(fields, key, extra, now)

    def estimate(call: object) -> TokenEstimate:
        return EXPECTED

    scene.routing._scorers = {"m": ComplexityScorer(Counting(PromptScorer(shipped()), 1.0), estimate)}
    scene.unusable.add(DEAR)
    assert scene.order() == ["middle", "cheap", "dear"]
    assert asked == [NOW]
