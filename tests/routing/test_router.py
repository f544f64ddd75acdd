"""The router: which candidate comes first, and the order of the others."""

from collections import Counter

import pytest
from routing_scene import NOW, RoutingScene, candidate

from gateway.core.call import Call, Candidate, Route, TokenEstimate
from gateway.core.errors import INSUFFICIENT_QUOTA, INVALID_VALUE
from gateway.routing.load import FORGET_S, SATURATED_WAITING, EngineLoad
from gateway.routing.router import REASONS, RoutingRule

CHEAPEST, WEIGHTED, LEAST = RoutingRule("cheapest"), RoutingRule("weighted"), RoutingRule("least_loaded")
TOOLS = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}]}'


def long_chat(turns: int, talk: str = "x") -> bytes:
    """A conversation in which each turn contains the one before."""
    said = [f'{{"role":"user","content":"{talk * 600}"}}']
    for number in range(1, turns):
        said += [f'{{"role":"assistant","content":"a{number}"}}', f'{{"role":"user","content":"u{number}"}}']
    return f'{{"model":"m","messages":[{",".join(said)}]}}'.encode()


# cheapest

A, B, C, D = candidate("a"), candidate("b", (0.15, 0.60)), candidate("c", None), candidate("d", (0.15, 0.60))


def test_route_10_zero_is_a_price_ties_alternate_and_unknown_prices_come_last():
    scene = RoutingScene(CHEAPEST, C, D, A, B)
    orders = Counter("".join(scene.order()) for _ in range(200))
    assert set(orders) == {"abdc", "adbc"}
    assert min(orders.values()) > 60


def test_a_call_that_no_candidate_can_serve_goes_to_a_usable_affordable_fallback_or_is_rejected():
    scene = RoutingScene(RoutingRule("priority", needs=True), candidate("a", can=()))
    assert scene.rejected(scene.call(TOOLS)).param == "tools"
    unable, dear = candidate("b", can=["vision"]), candidate("c", (9, 9), can=["tools"])
    ill, well = candidate("d", can=["tools"]), candidate("e", can=["tools"])
    others = (Route("m-b", b"", (unable,)), Route("m-c", b"", (dear,)), Route("m-d", b"", (ill, well)))
    scene.route.fallbacks, scene.unusable = others, {ill}
    assert scene.order(scene.call(TOOLS)) == ["c"]
    assert scene.order(scene.call(TOOLS, ceiling=10)) == ["e"]
    scene.route.fallbacks = others[:2]
    assert scene.rejected(scene.call(TOOLS, ceiling=10)).kind is INSUFFICIENT_QUOTA
    scene.route.fallbacks = others[:1]
    assert scene.rejected(scene.call(TOOLS)).param == "tools"
    assert scene.rejected(scene.call(TOOLS, ceiling=10)).param == "tools"


def test_route_10_an_unknown_output_price_is_not_free():
    reads = candidate("reads", (0.01, 0))
    reads.price = None if reads.price is None else reads.price._replace(output=None)
    scene = RoutingScene(CHEAPEST, reads, B)
    assert scene.order() == ["b", "reads"]


def test_route_10_both_input_and_output_count():
    long_prompt, long_answer = TokenEstimate(10_000, 10, True), TokenEstimate(10, 10_000, True)
    cheap_in, cheap_out = candidate("in", (0.1, 2.0)), candidate("out", (1.0, 0.2))
    assert RoutingScene(CHEAPEST, cheap_out, cheap_in, estimate=long_prompt).order() == ["in", "out"]
    assert RoutingScene(CHEAPEST, cheap_in, cheap_out, estimate=long_answer).order() == ["out", "in"]


def test_route_10_an_unusable_candidate_is_the_last_resort():
    scene = RoutingScene(CHEAPEST, A, B, C)
    scene.unusable = {A}
    assert scene.order() == ["b", "c", "a"]


def test_if_no_candidate_is_usable_the_strategy_decides():
    scene = RoutingScene(CHEAPEST, B, A)
    scene.unusable = {A, B}
    assert scene.order() == ["a", "b"]


def test_route_10_the_decision_is_in_a_header():
    scene = RoutingScene(CHEAPEST, C, B)
    call = scene.routed()
    assert scene.header(call) == "cheapest; est_usd=0.000075"
    assert scene.counted == {("m", "b", "cheapest"): 1}


def test_equally_cheap_candidates_are_filled_evenly():
    scene = RoutingScene(CHEAPEST, B, D)
    scene.busy("b", 1)
    assert {tuple(scene.order()) for _ in range(20)} == {("d", "b")}


def test_a_cached_prompt_can_change_the_order():
    plain = candidate("plain", (1.0, 1.0))
    cached = candidate("cached", (1.2, 1.2), cached=0.1)
    scene = RoutingScene(CHEAPEST, plain, cached, estimate=TokenEstimate(1000, 10, True))
    first = scene.routed(scene.call(long_chat(1)))
    assert first.routing.candidate is plain
    scene.answered(first, by=cached)  # the cheaper one had failed
    again = scene.routed(scene.call(long_chat(2)))
    assert again.routing.candidate is cached
    assert scene.header(again).startswith("affinity; est_usd=")


# weighted


def test_weights_are_shares_and_zero_is_the_last_resort():
    one, three, none = candidate("1", weight=1), candidate("3", weight=3), candidate("0", weight=0)
    scene = RoutingScene(WEIGHTED, none, one, three)
    orders = [scene.order() for _ in range(1000)]
    assert all(order[-1] == "0" for order in orders)
    assert 700 < sum(order[0] == "3" for order in orders) < 800
    scene.unusable = {one, three}
    assert scene.order()[0] == "0"


# least_loaded


def test_the_less_loaded_candidate_is_picked():
    scene = RoutingScene(LEAST, A, B)
    scene.busy("a", 2)
    scene.busy("b", 1)
    assert scene.order() == ["b", "a"]
    assert scene.header(scene.routed()) == "least_loaded"


def test_the_less_loaded_of_two_random_candidates_is_picked_so_the_fullest_never_is():
    many = [candidate(name) for name in "abcdefgh"]
    scene = RoutingScene(LEAST, *many, permits=16)
    for calls, one in enumerate(many):
        scene.busy(one.upstream, calls)
    orders = [scene.order() for _ in range(300)]
    first = Counter(order[0] for order in orders)
    assert first["h"] == 0
    assert first["a"] > first["d"] > 0
    assert all(sorted(order) == sorted("abcdefgh") for order in orders)


def test_idle_candidates_take_turns():
    scene = RoutingScene(LEAST, A, B)
    assert "".join(scene.order()[0] for _ in range(6)) in ("ababab", "bababa")


def test_relative_load_counts():
    scene = RoutingScene(LEAST, A, B)
    scene.queues["a"].permits, scene.queues["a"].free = 64, 54
    scene.busy("b", 2)
    assert scene.order() == ["a", "b"]


def test_calls_of_other_clients_of_an_engine_count():
    scene = RoutingScene(LEAST, A, B)
    scene.engines["a"] = EngineLoad(3, 0, 0.1)
    scene.busy("b", 1)
    assert scene.order() == ["b", "a"]


def test_a_much_slower_upstream_counts_as_fuller_until_that_is_forgotten():
    scene = RoutingScene(LEAST, A, B)
    for _ in range(3):
        scene.loads.learn("a", False, 9.0, NOW)
        scene.loads.learn("b", False, 1.0, NOW)
    scene.busy("b", 2)
    assert scene.order() == ["b", "a"]  # 1/4 * 4.5 against 3/4
    later = scene.routed(now=NOW + FORGET_S + 0.1)
    assert later.routing.candidate is A


def test_up_to_twice_as_slow_counts_as_equal():
    scene = RoutingScene(LEAST, A, B)
    for _ in range(3):
        scene.loads.learn("a", False, 1.9, NOW)
        scene.loads.learn("b", False, 1.0, NOW)
    scene.busy("b", 1)
    assert scene.order() == ["a", "b"]


def test_response_times_are_learned_from_calls():
    scene = RoutingScene(LEAST, A, B)
    for _ in range(6):
        call = scene.routed()
        scene.answered(call, 9.0 if call.routing.candidate is A else 1.0)
    scene.busy("b", 2)
    assert scene.routed(now=NOW + 9.0).routing.candidate is B


# affinity


def test_a_conversation_stays_where_its_prefix_is_cached():
    scene = RoutingScene(LEAST, A, B)
    first = scene.routed(scene.call(long_chat(1))).routing.candidate
    for turn in range(2, 6):
        scene.order()  # somebody else's turn
        call = scene.routed(scene.call(long_chat(turn)))
        assert (call.routing.candidate, scene.header(call)) == (first, "affinity")


def test_a_conversation_follows_the_replica_that_served_it():
    scene = RoutingScene(LEAST, A, B)
    call = scene.routed(scene.call(long_chat(1)))
    other = B if call.routing.candidate is A else A
    scene.answered(call, by=other)
    assert scene.routed(scene.call(long_chat(2))).routing.candidate is other


def test_one_key_does_not_follow_another():
    scene = RoutingScene(LEAST, A, B)
    first = scene.routed(scene.call(long_chat(1), key="a")).routing.candidate
    assert scene.header(scene.routed(scene.call(long_chat(2), key="b"))) == "least_loaded"
    assert scene.routed(scene.call(long_chat(2), key="a")).routing.candidate is first


def saturated(scene: RoutingScene, warm: Candidate, how: str) -> None:
    if how == "permits":
        scene.busy(warm.upstream, scene.queues[warm.upstream].permits)
    elif how == "engine":
        scene.engines[warm.upstream] = EngineLoad(4, SATURATED_WAITING, 0.9)
    else:
        for line in scene.queues.values():
            line.permits = line.free = 64
        scene.busy(warm.upstream, 9)


@pytest.mark.parametrize("how", ["permits", "engine", "far ahead of the others"])
def test_a_conversation_leaves_a_saturated_replica(how: str):
    scene = RoutingScene(LEAST, A, B)
    warm = scene.routed(scene.call(long_chat(1))).routing.candidate
    assert warm is not None
    saturated(scene, warm, how)
    call = scene.routed(scene.call(long_chat(2)))
    assert call.routing.candidate is not warm
    assert scene.header(call) == "least_loaded"


def test_short_requests_have_no_affinity():
    scene = RoutingScene(LEAST, A, B)
    scene.routed()
    assert len(scene.prefixes) == 0


def test_the_prefix_map_is_bounded_and_evicts_the_oldest():
    scene = RoutingScene(LEAST, A, B, remembered=10)
    talks = [chr(ord("a") + number) for number in range(12)]
    first = {talk: scene.routed(scene.call(long_chat(1, talk))).routing.candidate for talk in talks}
    assert len(scene.prefixes) == 10
    assert scene.header(scene.routed(scene.call(long_chat(2, "a")))) == "least_loaded"
    last = scene.routed(scene.call(long_chat(2, talks[-1])))
    assert (last.routing.candidate, scene.header(last)) == (first[talks[-1]], "affinity")


# filters


def test_candidates_without_the_capability_are_excluded():
    able, unable = candidate("able", can=["tools"]), candidate("unable", can=["vision"])
    scene = RoutingScene(RoutingRule("priority", needs=True), unable, candidate("any"), able)
    assert scene.order(scene.call(TOOLS)) == ["any", "able"]
    assert scene.order() == ["unable", "any", "able"]


def test_a_capability_that_no_candidate_has_is_a_clear_400():
    scene = RoutingScene(RoutingRule("priority", needs=True), candidate("a", can=["vision"]), candidate("b", can=[]))
    rejection = scene.rejected(scene.call(TOOLS))
    assert (rejection.kind, rejection.param) == (INVALID_VALUE, "tools")
    assert "`tools`" in rejection.message
    assert "none of its upstreams offers that" in rejection.message


def test_capabilities_that_no_candidate_has_together_are_a_clear_400():
    scene = RoutingScene(
        RoutingRule("priority", needs=True), candidate("a", can=["tools"]), candidate("b", can=["audio"])
    )
    body = TOOLS[:-1] + b',"modalities":["text","audio"]}'
    assert "`audio` and `tools`" in scene.rejected(scene.call(body)).message
    assert "together" in scene.rejected(scene.call(body)).message


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (TokenEstimate(50, 50, True), "abc"),
        (TokenEstimate(51, 50, True), "bc"),
        (TokenEstimate(500, 50, False), "bc"),  # a guess of the answer's length is no reason
        (TokenEstimate(1000, 200, True), "c"),
        (TokenEstimate(5000, 10, True), "c"),  # its upstream may say that it is too long
        (TokenEstimate(10, 2100, True, 3), "bc"),  # three choices of 700
    ],
)
def test_candidates_without_room_are_excluded(estimate: TokenEstimate, expected: str):
    sizes = (candidate("a", window=100), candidate("b", window=1000), candidate("c", window=2000))
    scene = RoutingScene(RoutingRule("priority", measures=True), *sizes, estimate=estimate)
    assert "".join(scene.order()) == expected


def test_the_output_limit_of_a_candidate_is_respected():
    short, any_length = candidate("short", longest=99), candidate("any")
    scene = RoutingScene(RoutingRule("priority", measures=True), short, any_length)
    assert scene.order() == ["any"]
    only = RoutingScene(RoutingRule("priority", measures=True), short, candidate("shorter", longest=98))
    assert only.order() == ["short"]


def test_candidates_over_the_budget_are_excluded():
    scene = RoutingScene(RoutingRule("priority"), B, A)
    call = scene.call(ceiling=0)
    assert scene.order(call) == ["a"]
    assert scene.header(call) == "priority; budget"


def test_a_budget_too_small_for_every_capable_candidate_is_rejected():
    paid, own = candidate("paid", (1, 1), can=["tools"]), candidate("own", can=[])
    scene = RoutingScene(RoutingRule("priority", needs=True), paid, own)
    assert scene.rejected(scene.call(TOOLS, ceiling=0)).kind is INSUFFICIENT_QUOTA


def test_a_plain_priority_list_is_untouched():
    scene = RoutingScene(RoutingRule("priority"), A, B)
    call = scene.routed()
    assert (call.routing.candidate, call.routing.candidates, call.response.notes, scene.estimated) == (A, (), {}, 0)


def test_every_reason_is_from_a_closed_set():
    for rule in (CHEAPEST, WEIGHTED, LEAST, RoutingRule("priority", needs=True), RoutingRule("complexity")):
        scene = RoutingScene(rule, A, B)
        scene.routed()
        assert {reason for _, _, reason in scene.counted} <= set(REASONS)


# four equally fast upstreams after trouble

FOUR = [candidate(name) for name in "abcd"]


def shares(scene: RoutingScene, now: float, calls: int = 120) -> list[int]:
    """The calls that each upstream gets, at 20 open calls of half a second."""
    got = dict.fromkeys("abcd", 0)
    open_calls: list[tuple[float, Call]] = []
    for _ in range(calls):
        if len(open_calls) == 20:
            end, first = open_calls.pop(0)
            now = max(now, end)
            scene.queues[first.routing.candidate.upstream].free += 1
            first.timing.answered_at, first.response.outcome = now, "ok"
            first.lease.settle(first, now)
        call = scene.routed(now=now)
        got[call.routing.candidate.upstream] += 1
        scene.queues[call.routing.candidate.upstream].free -= 1
        call.attempts, call.timing.sent_at = 1, now
        open_calls.append((now + 0.5, call))
        now += 0.02
    return sorted(got.values())


def ended_badly(scene: RoutingScene, by: Candidate, *, sent_at: float, outcome: str) -> None:
    call = scene.routed()
    call.routing.candidate, call.attempts = by, 1
    call.timing.sent_at, call.timing.answered_at, call.response.outcome = sent_at, NOW + 0.001, outcome
    call.lease.settle(call, NOW + 0.001)


@pytest.mark.parametrize(
    ("sent_at", "outcome"),
    [(NOW, "upstream_error"), (0.0, "client_gone"), (NOW, "client_gone")],
    ids=["refused", "left while waiting to retry", "left after a refusal"],
)
def test_failures_and_departed_callers_leave_the_shares_even(sent_at: float, outcome: str):
    scene = RoutingScene(LEAST, *FOUR, permits=64)
    shares(scene, NOW - 5.0)
    for _ in range(20):
        ended_badly(scene, FOUR[0], sent_at=sent_at, outcome=outcome)
    assert shares(scene, NOW + 1.0)[0] >= 24


def test_one_slow_answer_starves_no_upstream():
    scene = RoutingScene(LEAST, *FOUR, permits=64)
    shares(scene, NOW - 5.0)
    for line in scene.queues.values():
        line.free = line.permits
    scene.loads.learn("a", False, 30.0, NOW)
    assert shares(scene, NOW)[0] >= 24
    fresh = RoutingScene(LEAST, *FOUR, permits=64)
    fresh.loads.learn("a", False, 30.0, NOW)
    assert shares(fresh, NOW)[0] >= 24
