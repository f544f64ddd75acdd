"""Hand-written prompts score alike in Korean and English, and appended sentences do not buy a tier."""

import pytest
from pairs import PAIRS
from suffixes import SUFFIXES

from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import shipped

SCORER = PromptScorer(shipped())
SCORES = [(SCORER.score(Prompt(english)), SCORER.score(Prompt(korean))) for english, korean in PAIRS]
HARD = len(PAIRS) // 2


def border(share: float) -> float:
    """The score that this share of all the prompts are above."""
    every = sorted(score for pair in SCORES for score in pair)
    return every[int(len(every) * (1 - share)) - 1]


def test_there_are_a_hundred_pairs_and_twenty_endings():
    assert len(PAIRS) == len(set(PAIRS)) == 100
    assert len(SUFFIXES) == len(set(SUFFIXES)) == 20


def test_a_prompt_gets_the_same_tier_in_both_languages():
    same = sum((english > border(0.5)) is (korean > border(0.5)) for english, korean in SCORES)
    assert same >= 90


@pytest.mark.parametrize("language", [0, 1], ids=["English", "Korean"])
def test_hard_prompts_are_strong_and_easy_ones_cheap(language):
    strong = [pair[language] > border(0.5) for pair in SCORES]
    assert sum(strong[HARD:]) >= 0.9 * HARD
    assert sum(strong[:HARD]) <= 0.1 * HARD


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_ending_raises_the_strong_share_by_six_points_at_most(suffix, share):
    prompts = [prompt for pair in PAIRS for prompt in pair]
    strong = sum(SCORER.score(Prompt(f"{prompt} {suffix}")) > border(share) for prompt in prompts)
    assert strong / len(prompts) <= share + 0.06
