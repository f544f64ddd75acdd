"""The gate that routes: which candidate comes first, and who comes after it."""

from collections import Counter

import pytest
from routing_scene import NOW, RoutingScene, candidate

from gateway.core.call import Candidate, Route, TokenEstimate
from gateway.core.errors import INSUFFICIENT_QUOTA, INVALID_VALUE
from gateway.routing.load import FORGET_S, SATURATED_WAITING, EngineLoad
from gateway.routing.router import REASONS, RoutingRule

CHEAPEST, WEIGHTED, LEAST = RoutingRule("cheapest"), RoutingRule("weighted"), RoutingRule("least_loaded")
TOOLS = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}]}'


def long_chat(turns: int, talk: str = "x") -> bytes:
    """A conversation of which each turn contains the one before."""
    said = [f'{{"role":"user","content":"{talk * 600}"}}']
    for number in range(1, turns):
        said += [f'{{"role":"assistant","content":"a{number}"}}', f'{{"role":"user","content":"u{number}"}}']
    return f'{{"model":"m","messages":[{",".join(said)}]}}'.encode()


# cheapest

A, B, C, D = candidate("a"), candidate("b", (0.15, 0.60)), candidate("c", None), candidate("d", (0.15, 0.60))


def test_route_10_zero_is_a_price_equal_ones_take_turns_and_unknown_ones_come_last():
    scene = RoutingScene(CHEAPEST, C, D, A, B)
    orders = Counter("".join(scene.order()) for _ in range(200))
    assert set(orders) == {"abdc", "adbc"}
    assert min(orders.values()) > 60


def test_what_nobody_can_do_goes_to_a_fallback_that_is_well_and_can_be_paid_or_is_refused():
    scene = RoutingScene(RoutingRule("priority", needs=True), candidate("a", can=()))
    assert scene.refused(scene.call(TOOLS)).param == "tools"
    unable, dear = candidate("b", can=["vision"]), candidate("c", (9, 9), can=["tools"])
    ill, well = candidate("d", can=["tools"]), candidate("e", can=["tools"])
    others = (Route("m-b", b"", (unable,)), Route("m-c", b"", (dear,)), Route("m-d", b"", (ill, well)))
    scene.route.fallbacks, scene.ill = others, {ill}
    assert scene.order(scene.call(TOOLS)) == ["c"]
    assert scene.order(scene.call(TOOLS, ceiling=10)) == ["e"]
    scene.route.fallbacks = others[:2]
    assert scene.refused(scene.call(TOOLS, ceiling=10)).kind is INSUFFICIENT_QUOTA
    scene.route.fallbacks = others[:1]
    assert scene.refused(scene.call(TOOLS)).param == "tools"
    assert scene.refused(scene.call(TOOLS, ceiling=10)).param == "tools"


def test_route_10_an_answer_of_unknown_price_is_not_free():
    reads = candidate("reads", (0.01, 0))
    reads.price = None if reads.price is None else reads.price._replace(output=None)
    scene = RoutingScene(CHEAPEST, reads, B)
    assert scene.order() == ["b", "reads"]


def test_route_10_both_input_and_output_count():
    long_prompt, long_answer = TokenEstimate(10_000, 10, True), TokenEstimate(10, 10_000, True)
    cheap_in, cheap_out = candidate("in", (0.1, 2.0)), candidate("out", (1.0, 0.2))
    assert RoutingScene(CHEAPEST, cheap_out, cheap_in, estimate=long_prompt).order() == ["in", "out"]
    assert RoutingScene(CHEAPEST, cheap_in, cheap_out, estimate=long_answer).order() == ["out", "in"]


def test_route_10_one_that_is_not_well_is_passed_over_and_stays_the_last_resort():
    scene = RoutingScene(CHEAPEST, A, B, C)
    scene.ill = {A}
    assert scene.order() == ["b", "c", "a"]


def test_where_nobody_is_well_the_order_is_the_routes_own():
    scene = RoutingScene(CHEAPEST, B, A)
    scene.ill = {A, B}
    assert scene.order() == ["a", "b"]


def test_route_10_the_decision_can_be_seen():
    scene = RoutingScene(CHEAPEST, C, B)
    call = scene.routed()
    assert scene.told(call) == "cheapest; est_usd=0.000075"
    assert scene.counted == {("m", "b", "cheapest"): 1}


def test_equally_cheap_ones_are_filled_alike():
    scene = RoutingScene(CHEAPEST, B, D)
    scene.busy("b", 1)
    assert {tuple(scene.order()) for _ in range(20)} == {("d", "b")}


def test_a_cheaper_cached_prompt_can_turn_the_order():
    plain = candidate("plain", (1.0, 1.0))
    cached = candidate("cached", (1.2, 1.2), cached=0.1)
    scene = RoutingScene(CHEAPEST, plain, cached, estimate=TokenEstimate(1000, 10, True))
    first = scene.routed(scene.call(long_chat(1)))
    assert first.candidate is plain
    scene.answered(first, by=cached)  # the cheaper one had failed
    again = scene.routed(scene.call(long_chat(2)))
    assert again.candidate is cached
    assert scene.told(again).startswith("affinity; est_usd=")


# weighted


def test_weights_are_shares_and_zero_is_for_when_there_is_nobody_else():
    one, three, none = candidate("1", weight=1), candidate("3", weight=3), candidate("0", weight=0)
    scene = RoutingScene(WEIGHTED, none, one, three)
    orders = [scene.order() for _ in range(1000)]
    assert all(order[-1] == "0" for order in orders)
    assert 700 < sum(order[0] == "3" for order in orders) < 800
    scene.ill = {one, three}
    assert scene.order()[0] == "0"


# least_loaded


def test_the_emptier_one_is_picked():
    scene = RoutingScene(LEAST, A, B)
    scene.busy("a", 2)
    scene.busy("b", 1)
    assert scene.order() == ["b", "a"]
    assert scene.told(scene.routed()) == "least_loaded"


def test_of_many_the_emptier_of_two_is_picked_so_the_fullest_never_is():
    many = [candidate(name) for name in "abcdefgh"]
    scene = RoutingScene(LEAST, *many, permits=16)
    for calls, one in enumerate(many):
        scene.busy(one.upstream, calls)
    orders = [scene.order() for _ in range(300)]
    first = Counter(order[0] for order in orders)
    assert first["h"] == 0
    assert first["a"] > first["d"] > 0
    assert all(sorted(order) == sorted("abcdefgh") for order in orders)


def test_idle_ones_take_turns():
    scene = RoutingScene(LEAST, A, B)
    assert "".join(scene.order()[0] for _ in range(6)) in ("ababab", "bababa")


def test_how_full_counts_and_not_how_many():
    scene = RoutingScene(LEAST, A, B)
    scene.lines["a"].permits, scene.lines["a"].free = 64, 54
    scene.busy("b", 2)
    assert scene.order() == ["a", "b"]


def test_what_an_engine_has_from_others_counts_too():
    scene = RoutingScene(LEAST, A, B)
    scene.engines["a"] = EngineLoad(3, 0, 0.1)
    scene.busy("b", 1)
    assert scene.order() == ["b", "a"]


def test_one_that_answers_much_more_slowly_counts_as_fuller_until_it_is_forgotten():
    scene = RoutingScene(LEAST, A, B)
    scene.loads.learn("a", False, 9.0, NOW)
    scene.loads.learn("b", False, 1.0, NOW)
    scene.busy("b", 2)
    assert scene.order() == ["b", "a"]  # 1/4 * 4.5 against 3/4
    later = scene.routed(now=NOW + FORGET_S + 0.1)
    assert later.candidate is A


def test_up_to_twice_as_slow_is_no_difference():
    scene = RoutingScene(LEAST, A, B)
    scene.loads.learn("a", False, 1.9, NOW)
    scene.loads.learn("b", False, 1.0, NOW)
    scene.busy("b", 1)
    assert scene.order() == ["a", "b"]


def test_how_long_calls_take_is_learned_from_them():
    scene = RoutingScene(LEAST, A, B)
    for _ in range(4):
        call = scene.routed()
        scene.answered(call, 9.0 if call.candidate is A else 1.0)
    scene.busy("b", 2)
    assert scene.routed(now=NOW + 9.0).candidate is B


# affinity


def test_a_conversation_stays_where_its_beginning_is():
    scene = RoutingScene(LEAST, A, B)
    first = scene.routed(scene.call(long_chat(1))).candidate
    for turn in range(2, 6):
        scene.order()  # somebody else's turn
        call = scene.routed(scene.call(long_chat(turn)))
        assert (call.candidate, scene.told(call)) == (first, "affinity")


def test_it_goes_on_where_it_was_really_served():
    scene = RoutingScene(LEAST, A, B)
    call = scene.routed(scene.call(long_chat(1)))
    other = B if call.candidate is A else A
    scene.answered(call, by=other)
    assert scene.routed(scene.call(long_chat(2))).candidate is other


def test_one_key_does_not_follow_another():
    scene = RoutingScene(LEAST, A, B)
    first = scene.routed(scene.call(long_chat(1), key="a")).candidate
    assert scene.told(scene.routed(scene.call(long_chat(2), key="b"))) == "least_loaded"
    assert scene.routed(scene.call(long_chat(2), key="a")).candidate is first


def saturated(scene: RoutingScene, warm: Candidate, how: str) -> None:
    if how == "permits":
        scene.busy(warm.upstream, scene.lines[warm.upstream].permits)
    elif how == "engine":
        scene.engines[warm.upstream] = EngineLoad(4, SATURATED_WAITING, 0.9)
    else:
        for line in scene.lines.values():
            line.permits = line.free = 64
        scene.busy(warm.upstream, 9)


@pytest.mark.parametrize("how", ["permits", "engine", "far ahead of the others"])
def test_until_it_is_saturated(how: str):
    scene = RoutingScene(LEAST, A, B)
    warm = scene.routed(scene.call(long_chat(1))).candidate
    assert warm is not None
    saturated(scene, warm, how)
    call = scene.routed(scene.call(long_chat(2)))
    assert call.candidate is not warm
    assert scene.told(call) == "least_loaded"


def test_short_requests_are_not_worth_it():
    scene = RoutingScene(LEAST, A, B)
    scene.routed()
    assert len(scene.prefixes) == 0


def test_what_is_remembered_is_bounded_and_the_oldest_goes():
    scene = RoutingScene(LEAST, A, B, remembered=10)
    talks = [chr(ord("a") + number) for number in range(12)]
    first = {talk: scene.routed(scene.call(long_chat(1, talk))).candidate for talk in talks}
    assert len(scene.prefixes) == 10
    assert scene.told(scene.routed(scene.call(long_chat(2, "a")))) == "least_loaded"
    last = scene.routed(scene.call(long_chat(2, talks[-1])))
    assert (last.candidate, scene.told(last)) == (first[talks[-1]], "affinity")


# filters


def test_who_cannot_do_it_is_not_asked():
    able, unable = candidate("able", can=["tools"]), candidate("unable", can=["vision"])
    scene = RoutingScene(RoutingRule("priority", needs=True), unable, candidate("any"), able)
    assert scene.order(scene.call(TOOLS)) == ["any", "able"]
    assert scene.order() == ["unable", "any", "able"]


def test_what_nobody_can_do_is_a_clear_400():
    scene = RoutingScene(
        RoutingRule("priority", needs=True), candidate("a", can=["vision"]), candidate("b", can=[])
    )
    refusal = scene.refused(scene.call(TOOLS))
    assert (refusal.kind, refusal.param) == (INVALID_VALUE, "tools")
    assert "`tools`" in refusal.message
    assert "no upstream of it offers that" in refusal.message


def test_what_nobody_can_do_together_is_told_so():
    scene = RoutingScene(
        RoutingRule("priority", needs=True), candidate("a", can=["tools"]), candidate("b", can=["audio"])
    )
    body = TOOLS[:-1] + b',"modalities":["text","audio"]}'
    assert "`audio` and `tools`" in scene.refused(scene.call(body)).message
    assert "together" in scene.refused(scene.call(body)).message


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
def test_who_cannot_hold_it_is_not_asked(estimate: TokenEstimate, expected: str):
    sizes = (candidate("a", window=100), candidate("b", window=1000), candidate("c", window=2000))
    scene = RoutingScene(RoutingRule("priority", measures=True), *sizes, estimate=estimate)
    assert "".join(scene.order()) == expected


def test_a_longest_answer_is_kept_to():
    short, any_length = candidate("short", longest=99), candidate("any")
    scene = RoutingScene(RoutingRule("priority", measures=True), short, any_length)
    assert scene.order() == ["any"]
    only = RoutingScene(RoutingRule("priority", measures=True), short, candidate("shorter", longest=98))
    assert only.order() == ["short"]


def test_what_a_key_cannot_pay_is_not_asked():
    scene = RoutingScene(RoutingRule("priority"), B, A)
    call = scene.call(ceiling=0)
    assert scene.order(call) == ["a"]
    assert scene.told(call) == "priority; budget"


def test_where_it_can_pay_nobody_who_is_able_it_is_told_so():
    paid, own = candidate("paid", (1, 1), can=["tools"]), candidate("own", can=[])
    scene = RoutingScene(RoutingRule("priority", needs=True), paid, own)
    assert scene.refused(scene.call(TOOLS, ceiling=0)).kind is INSUFFICIENT_QUOTA


def test_a_plain_list_is_left_alone():
    scene = RoutingScene(RoutingRule("priority"), A, B)
    call = scene.routed()
    assert (call.candidate, call.candidates, call.response_notes, scene.estimated) == (A, (), {}, 0)


def test_every_reason_is_of_a_closed_set():
    for rule in (CHEAPEST, WEIGHTED, LEAST, RoutingRule("priority", needs=True), RoutingRule("complexity")):
        scene = RoutingScene(rule, A, B)
        scene.routed()
        assert {reason for _, _, reason in scene.counted} <= set(REASONS)
