"""A hundred everyday prompts, written down with a rule before they were scored: hard ones score higher."""

import json
from itertools import product
from pathlib import Path
from random import Random

import pytest

from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import STRONG, TierChooser
from gateway.routing.complexity.weights import shipped
from gateway.wire.request_body import read_fields

SCORER = PromptScorer(shipped())


def _read() -> dict[str, list[str]]:
    prompts: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("everyday.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            title = line.strip("[]")
            prompts[title] = []
        elif line and not line.startswith("#"):
            prompts[title].append(line)
    return prompts


EVERYDAY = _read()


def scored(text: str) -> float:
    return SCORER.score(Prompt(text))


def test_there_are_a_hundred() -> None:
    assert {title: len({*prompts}) for title, prompts in EVERYDAY.items()} == {
        "easy, English": 25,
        "hard, English": 25,
        "easy, Korean": 25,
        "hard, Korean": 25,
    }


@pytest.mark.parametrize("language", ["English", "Korean"])
def test_hard_ones_score_above_easy_ones(language: str) -> None:
    pairs = [*product(EVERYDAY[f"hard, {language}"], EVERYDAY[f"easy, {language}"])]
    above = sum((scored(hard) > scored(easy)) + 0.5 * (scored(hard) == scored(easy)) for hard, easy in pairs)
    assert above / len(pairs) >= 0.95


@pytest.mark.parametrize(
    ("hard", "easy"),
    [
        ("Fix the bug: this Rust code deadlocks", "What is the capital of Australia?"),
        ("Solve the quartic x^4 - 5x^2 + 4 = 0", "Tell me a joke"),
        ("소수가 무한히 많음을 증명해 줘", "호주의 수도는 어디인가요?"),
    ],
)
def test_short_prompts_for_a_specialist_are_strong(hard: str, easy: str) -> None:
    assert SCORER.percentile(scored(hard)) > 70 > SCORER.percentile(scored(easy))


def test_the_first_fifty_calls_use_the_share() -> None:
    chooser = TierChooser(SCORER, 0.3)
    rng = Random(1)
    calls = [rng.choice(prompts) for _ in range(13) for prompts in EVERYDAY.values()][:50]
    bodies = [json.dumps({"messages": [{"role": "user", "content": text}]}).encode() for text in calls]
    strong = [chooser.choose(read_fields(body), "team", 0, 0.0).tier == STRONG for body in bodies]
    assert 10 <= sum(strong) <= 20
    hard = [text in EVERYDAY["hard, English"] + EVERYDAY["hard, Korean"] for text in calls]
    assert sum(one for one, is_hard in zip(strong, hard, strict=True) if not is_hard) <= 1
