"""Whatever the candidates and the state of their upstreams: whom routing may pick, and whom never."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from routing_scene import RoutingScene, candidate

from gateway.core.call import Call, Candidate, TokenEstimate, TokenUsage
from gateway.core.errors import Rejection
from gateway.routing.router import RoutingRule
from gateway.usage.cost import cost

ABLE = ("tools", "vision")
BODIES = {
    frozenset[str](): b'{"messages":[{"role":"user","content":"Hi"}]}',
    frozenset({"tools"}): b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{}]}',
    frozenset({"vision"}): b'{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}',
}
PRICES = st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3))
CANDIDATES = st.lists(
    st.builds(
        dict,
        price=PRICES,
        window=st.sampled_from([None, 100, 1000]),
        longest=st.sampled_from([None, 10, 100]),
        can=st.none() | st.lists(st.sampled_from(ABLE), unique=True),
        weight=st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)
KINDS = ("priority", "cheapest", "weighted", "least_loaded", "complexity")


def fits(one: Candidate, needed: frozenset[str], estimate: TokenEstimate, call: Call) -> tuple[bool, bool]:
    """Whether it may serve the call at all, and whether it holds it."""
    able = one.capabilities is None or needed <= one.capabilities
    if call.routing.ceiling is not None:
        able = (
            able
            and one.price is not None
            and cost(TokenUsage(estimate.input, estimate.output), one.price) <= call.routing.ceiling
        )
    answer = estimate.output if estimate.capped else 0
    holds = (one.context_window is None or estimate.input + answer <= one.context_window) and (
        one.max_output is None or answer <= one.max_output
    )
    return able, holds


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    fields=CANDIDATES,
    kind=st.sampled_from(KINDS),
    spill_s=st.none() | st.floats(0, 10),
    needed=st.sampled_from(sorted(BODIES, key=len)),
    estimate=st.builds(
        TokenEstimate, st.integers(1, 2000), st.integers(1, 200), st.booleans(), st.just(1), st.just(())
    ),
    ceiling=st.none() | st.integers(0, 10**4),
    ill=st.sets(st.integers(0, 4)),
    calls=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    seed=st.integers(0, 9),
)
def test_never_one_that_cannot_while_another_can(
    fields: Any,
    kind: str,
    spill_s: Any,
    needed: Any,
    estimate: Any,
    ceiling: Any,
    ill: Any,
    calls: Any,
    seed: Any,
) -> None:
    candidates = [candidate(str(number), **one) for number, one in enumerate(fields)]
    scene = RoutingScene(RoutingRule(kind, spill_s, True, True), *candidates, estimate=estimate, seed=seed)
    scene.unusable = {one for number, one in enumerate(candidates) if number in ill}
    for one, busy in zip(candidates, calls, strict=False):
        scene.busy(one.upstream, busy)
    call = scene.call(BODIES[needed], ceiling=ceiling)
    outcome = scene.routing.admit(call, 1000.0)
    judged = {one: fits(one, needed, estimate, call) for one in candidates}
    able = [one for one, (can, _) in judged.items() if can]
    if isinstance(outcome, Rejection):
        assert not able
        return
    picked = call.routing.candidate
    assert picked in able
    assert set(call.routing.candidates) <= set(able)
    assert len(set(call.routing.candidates)) == len(call.routing.candidates)
    assert call.routing.candidates[0] is picked
    holding = [one for one in able if judged[one][1]]
    if holding:
        assert set(call.routing.candidates) == set(holding)
    choice = holding or list(call.routing.candidates)
    assert picked not in scene.unusable or set(choice) <= scene.unusable
