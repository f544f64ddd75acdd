"""Context windows: what a call needs, who has room for it, and what an answer that was cut short has met."""

import pytest
from kit.calls import make_call

from gateway.auth.authenticate import ANONYMOUS
from gateway.context_window.windows import ContextWindows, PromptRequirement, cause, explained, larger, need
from gateway.core.call import Call, Candidate, Price, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller, KeyLimits, LimitStatus
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.overflow_messages import Overflow

UNBOUND = TokenEstimate(100, 256, False)


@pytest.mark.parametrize(
    ("overflow", "window", "estimate", "expected"),
    [
        (Overflow(5000, 4096), 8192, UNBOUND, PromptRequirement(5000, 0, 4096, True, False)),
        (Overflow(5000, 4096, 800), None, UNBOUND, PromptRequirement(4200, 800, 4096, True, True)),
        (
            Overflow(5000, 4096),
            None,
            TokenEstimate(100, 200, True, 2),
            PromptRequirement(5000, 100, 4096, True, False),
        ),
        (
            Overflow(None, 4096),
            None,
            TokenEstimate(9000, 256, False),
            PromptRequirement(9000, 0, 4096, False, False),
        ),
        (Overflow(None, None), 4096, UNBOUND, PromptRequirement(4096, 0, 4096, False, False)),
        (Overflow(None, None), None, UNBOUND, PromptRequirement(100, 0, 0, False, False)),
    ],
)
def test_missing_numbers_are_completed(
    overflow: Overflow, window: int | None, estimate: TokenEstimate, expected: PromptRequirement
):
    assert need(overflow, window, estimate) == expected


def test_room_is_left_for_the_answer_up_to_what_the_upstream_reserves():
    assert PromptRequirement(5000, 800, 4096, True, True).room == 4096 - 800
    assert PromptRequirement(5000, 100, 4096, True, False).room == 4096 - 100
    assert PromptRequirement(5000, 9000, 4096, True, False).room == 4096 - 1024
    assert PromptRequirement(5000, 0, 4096, True, False).room == 4096 - 256
    assert PromptRequirement(5000, 5000, 4096, True, True).room < 0


def test_a_declared_window_precedes_a_learned_one():
    windows, declared, unknown = ContextWindows(), candidate(window=8192), candidate()
    assert (windows.of(declared), windows.of(unknown)) == (8192, None)
    for one in (declared, unknown):
        windows.learn(one, 4096)
        windows.learn(one, None)
    assert (windows.of(declared), windows.of(unknown)) == (8192, 4096)


def candidate(name: str = "up", window: int | None = None, dollars: int | None = 1, **more: object) -> Candidate:
    price = None if dollars is None else Price(dollars * 10**9, dollars * 10**9, dollars * 10**9)
    return Candidate("local", name, b'"up"', price, window, **more)  # type: ignore[arg-type]


def route(name: str, *candidates: Candidate) -> Route:
    return Route(name, b'"m"', candidates)


class Account:
    """Of a key with a budget."""

    limits = KeyLimits(usd_per_day=1)

    def status(self, now: float) -> LimitStatus:
        return LimitStatus(0, 0.0, 0, 0.0)


def call(endpoint: str = CHAT, caller: Caller = ANONYMOUS) -> Call:
    one = make_call(endpoint)
    one.routing.route = route("asked", candidate())
    one.caller = caller
    return one


NEED = PromptRequirement(5000, 800, 4096, True, True)


def names(one: Call, *routes: Route, uses: frozenset[str] = frozenset()) -> list[str]:
    return [found.name for found in larger(one, routes, NEED, uses)]


def test_models_with_room_for_prompt_and_answer_are_sorted_by_price_with_unknown_ones_last():
    assert names(
        call(),
        route("dear", candidate(window=10000, dollars=5)),
        route("small", candidate(window=5799)),
        route("unpriced", candidate(window=10000, dollars=None)),
        route("just", candidate(window=5800, dollars=2)),
        route("unknown", candidate()),
        route("free", candidate(window=10000, dollars=0)),
        route("asked", candidate(window=10000)),
    ) == ["free", "just", "dear", "unpriced"]


def test_only_suitable_candidates_of_a_model_remain():
    small, large = candidate(window=4096), candidate(window=16384)
    assert larger(call(), [route("other", small, large)], NEED, frozenset())[0].candidates == (large,)


def test_models_that_the_key_may_not_use_are_not_offered():
    routes = [route("secret", candidate(window=10000)), route("open", candidate(window=10000))]
    assert names(call(caller=Caller("k", frozenset({"open"}))), *routes) == ["open"]
    assert names(call(caller=Caller("k", None)), *routes) == ["secret", "open"]


def test_a_dollar_budget_requires_a_price_within_it():
    routes = [
        route("unpriced", candidate(window=10000, dollars=None)),
        route("dear", candidate(window=10000)),
    ]
    one = call(caller=Caller("k", None, Account()))
    assert names(one, *routes) == ["dear"]
    one.routing.ceiling = 5800 * 1000
    assert names(one, *routes) == ["dear"]
    one.routing.ceiling -= 1
    assert names(one, *routes) == []


def test_embeddings_need_no_output_price():
    def embeds(dollars: int) -> Candidate:
        one = candidate("text-embedding-x", window=10000)
        one.price = Price(dollars * 10**9, None, dollars * 10**9)
        return one

    routes = [route("dear", embeds(2)), route("cheap", embeds(1))]
    poor = Caller("k", None, Account())
    assert names(call(EMBEDDINGS), *routes) == names(call(EMBEDDINGS, poor), *routes) == ["cheap", "dear"]
    bounded = call(EMBEDDINGS, poor)
    bounded.routing.ceiling = NEED.prompt * 1000
    assert names(bounded, *routes) == ["cheap"]
    chats = [route("m", candidate(window=10000))]
    chats[0].candidates[0].price = Price(10**9, None, 10**9)
    assert names(call(CHAT, poor), *chats) == []


def test_embedding_models_serve_only_embeddings():
    routes = [route(one, candidate(one, window=10000)) for one in ("text-embedding-3-small", "bge-m3", "gpt-x")]
    assert names(call(), *routes) == ["gpt-x"]
    assert names(call(COMPLETIONS), *routes) == ["gpt-x"]
    assert names(call(EMBEDDINGS), *routes) == ["text-embedding-3-small", "bge-m3"]


def test_models_without_the_capability_are_excluded():
    routes = [
        route("blind", candidate(window=10000, capabilities=frozenset({"tools"}))),
        route("sees", candidate(window=10000, capabilities=frozenset({"tools", "vision"}))),
        route("all", candidate(window=10000)),
    ]
    assert names(call(), *routes, uses=frozenset({"vision"})) == ["sees", "all"]


def test_the_message_has_the_upstreams_text_the_numbers_and_suitable_models():
    message = explained("It is too long", NEED, [("big", 131072), ("huge", 10**6)], shortened=False)
    assert message == (
        "It is too long. It needs 5800 tokens, the limit is 4096, 1704 too many. Models here with a large "
        "enough context window: `big` (131072), `huge` (1000000)."
    )


def test_the_message_without_numbers_and_without_a_model():
    nobody = "No other model that you may use here is known to have a large enough context window."
    unknown = PromptRequirement(100, 0, 0, False, False)
    assert explained("No!", unknown, [], shortened=False) == f"No! {nobody}"
    assert explained("No!", unknown._replace(counted=True), [], shortened=False) == (
        f"No! It needs 100 tokens. {nobody}"
    )
    assert explained("No.", PromptRequirement(4096, 0, 4096, False, False), [], shortened=True) == (
        "No. It needs about 4096 tokens, the limit is 4096. It cannot be trimmed enough: the part that must "
        f"stay is too long. {nobody}"
    )
    assert "the limit is not known" in explained("No.", unknown, [], shortened=True)


@pytest.mark.parametrize(
    ("used", "estimate", "window", "expected"),
    [
        (TokenUsage(100, 50), TokenEstimate(90, 50, True), None, "cap"),
        (TokenUsage(100, 50), TokenEstimate(90, 50, True), 150, "cap"),
        (TokenUsage(100, 49), TokenEstimate(90, 50, True), 149, "window"),
        (TokenUsage(100, 49), TokenEstimate(90, 50, True), 4096, "cap"),  # one of the upstream's own
        (TokenUsage(100, 49), TokenEstimate(90, 50, True), None, "window"),
        (TokenUsage(4000, 94), UNBOUND, 4096, "window"),
        (TokenUsage(100, 3900), UNBOUND, 4096, "cap"),
        (TokenUsage(100, 60), TokenEstimate(90, 100, True, 2), 4096, "cap"),  # 50 for each of the two
        (None, TokenEstimate(90, 50, True), 4096, "cap"),
        (None, UNBOUND, 4096, "window"),
    ],
)
def test_cap_or_window(used: TokenUsage | None, estimate: TokenEstimate, window: int | None, expected: str):
    assert cause(used, estimate, window) == expected
