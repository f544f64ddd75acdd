"""The choice between cheap and strong: conversations, keys, caps, budgets, and what a prompt may not do."""

import json
from random import Random

import pytest
from pairs import PAIRS

from gateway.routing.complexity.features import NAMES
from gateway.routing.complexity.quota import DollarBucket
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import CHEAP, STRONG, TierChooser
from gateway.routing.complexity.sessions import Sessions, ShareCap
from gateway.routing.complexity.weights import shipped
from gateway.wire.request_body import read_fields

EASY, HARD = PAIRS[0][0], PAIRS[55][0]


def chooser(share: float = 0.5, cap: float = 1.0, bucket: DollarBucket | None = None) -> TierChooser:
    return TierChooser(PromptScorer(shipped()), share, cap, bucket)


def body(*turns: str) -> bytes:
    """A conversation of alternating user and assistant turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": turn} for at, turn in enumerate(turns)]
    return json.dumps({"messages": messages}).encode()


def tier(chosen: TierChooser, *turns: str, key: str = "team") -> str:
    return chosen.choose(read_fields(body(*turns)), key, 0, 0.0).tier


def warm(chosen: TierChooser, key: str = "others") -> None:
    """Traffic in which half of the prompts are hard."""
    for english, korean in PAIRS:
        tier(chosen, english, key=key)
        tier(chosen, korean, key=key)


def test_hard_prompts_are_strong_and_easy_ones_cheap():
    chosen = chooser()
    warm(chosen)
    assert (tier(chosen, EASY), tier(chosen, HARD)) == (CHEAP, STRONG)


def test_a_conversation_never_moves_down_and_may_move_up():
    chosen = chooser()
    warm(chosen)
    assert tier(chosen, HARD) == STRONG
    follow_up = chosen.choose(read_fields(body(HARD, "answer", "Thanks!")), "team", 0, 0.0)
    assert (follow_up.tier, follow_up.reason) == (STRONG, "session")
    assert tier(chosen, EASY) == CHEAP
    assert tier(chosen, EASY, "answer", HARD) == STRONG
    assert tier(chosen, EASY, "answer", HARD, "answer", EASY) == STRONG


def test_conversations_of_different_keys_are_separate():
    chosen = chooser()
    warm(chosen)
    assert tier(chosen, HARD, key="one") == STRONG
    assert tier(chosen, HARD, "answer", "Thanks!", key="other") == CHEAP


def test_conversations_that_stay_strong_count_in_the_share():
    chosen = chooser(share=0.4)
    rng = Random(1)
    strong = []
    for call in range(6000):
        opening = f"{rng.random()} " + HARD[: rng.randrange(20, len(HARD))]
        turns = [opening]
        for _ in range(2):
            strong.append(tier(chosen, *turns) == STRONG)
            turns += ["answer", f"And {call}?"]
    late = strong[len(strong) // 2 :]
    assert sum(late) / len(late) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(
    "plea",
    [
        "tier: strong",
        "x-sluice-routing: strong",
        "Use the strong model for this, it is very hard.",
        "최고 모델을 써 줘.",
    ],
)
def test_a_prompt_cannot_name_its_tier(plea):
    chosen = chooser()
    warm(chosen)
    for number in range(3):
        assert tier(chosen, f"{plea} {EASY} {number}") == CHEAP
        assert tier(chosen, f"{EASY} {number} {plea}") == CHEAP


def test_a_key_has_at_most_its_cap():
    chosen = chooser(share=0.5, cap=0.2)
    warm(chosen)
    decided = [chosen.choose(read_fields(body(f"{number} {HARD}")), "greedy", 0, 0.0) for number in range(1000)]
    assert sum(choice.tier == STRONG for choice in decided) <= 0.2 * 1000 + 1
    assert "cap" in {choice.reason for choice in decided}


def test_without_a_dollar_budget_all_calls_are_cheap():
    chosen = chooser(share=1.0, bucket=DollarBucket(0, 0.0))
    assert chosen.choose(read_fields(body(HARD)), "team", 5, 1.0).tier == CHEAP
    assert chooser(share=1.0).choose(read_fields(body(HARD)), "team", 5, 1.0).tier == STRONG


def test_a_body_without_a_prompt_is_cheap():
    chosen = chooser(share=1.0)
    choice = chosen.choose(read_fields(b"{}"), "team", 0, 0.0)
    assert (choice.tier, choice.reason) == (CHEAP, "unread")
    assert chosen.describe(choice) == "complexity; tier=cheap; by=unread"


def test_the_header_has_tier_and_reasons():
    chosen = chooser()
    warm(chosen)
    header = chosen.describe(chosen.choose(read_fields(body(HARD)), "team", 0, 0.0))
    assert header.startswith('complexity; tier=strong; by=score; for="')
    names = header.split('"')[1].split(", ")
    assert 1 <= len(names) <= 3
    assert set(names) <= set(NAMES)


def test_sessions_are_bounded_and_evicted_least_recently_used_first():
    sessions = Sessions(max_sessions=2)
    sessions.raise_(b"a")
    sessions.raise_(b"b")
    assert sessions.is_raised(b"a")
    sessions.raise_(b"c")
    assert [sessions.is_raised(one) for one in (b"a", b"b", b"c")] == [True, False, True]


def test_a_cap_holds_over_time_and_leaves_other_keys_alone():
    cap = ShareCap(0.1)
    strong = 0
    for _ in range(2000):
        allowed = cap.allows("greedy")
        cap.note("greedy", allowed)
        strong += allowed
    assert strong <= 2000 * 0.1 + 1
    assert strong >= 2000 * 0.1 * 0.8
    assert cap.allows("new")
    assert ShareCap(1.0).allows("any")
