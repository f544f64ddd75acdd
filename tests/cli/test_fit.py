"""Fitting: the same weights every time, words where they are told to, steps that only rise."""

import pytest
from synthetic import prompts

from gateway.cli.router.dataset import LabelledPrompt, draw, folds
from gateway.cli.router.fit import BY_HAND, SHIPPED, again, fit, isotonic
from gateway.cli.router.metrics import curve
from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump, shipped


def rows(count: int, seed: int) -> list[LabelledPrompt]:
    return [
        LabelledPrompt(Prompt(text), float(weak), float(strong))
        for text, weak, strong in prompts(count, seed)
    ]


def test_the_same_rows_give_the_same_file_whatever_their_order():
    made = rows(200, 3)
    assert dump(fit(draw(made), again(shipped()), {})) == dump(fit(draw(made[::-1]), again(shipped()), {}))


def test_words_are_learned_from_ones_own_traffic_and_not_for_the_package():
    known, new = rows(400, 3), rows(400, 4)
    gains = [row.gain for row in new]
    own, package = (PromptScorer(fit(known, prior, {})) for prior in (again(shipped()), SHIPPED))
    assert curve([own.score(row.prompt) for row in new], gains).apgr > 0.65
    assert package.weights.grams == {}
    assert {gram for gram, (weight, _) in own.weights.grams.items() if weight > 0} >= {
        "violet",
        "orbit",
        "enzyme",
    }


def test_without_a_difference_between_prompts_the_prior_stays():
    same = [LabelledPrompt(Prompt("tree"), 0.0, 1.0), LabelledPrompt(Prompt("tree"), 1.0, 0.0)] * 10
    assert fit([*same, *rows(1, 5)], SHIPPED, {}).dense["tools"] == BY_HAND["tools"]


def test_calibrated_gains_only_rise_and_keep_the_mean():
    steps = isotonic([1, 2, 3, 4, 4, 5], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert steps == [(1, 0.0), (2, 0.5), (5, 1.0)]


def test_folds_and_draws_go_by_the_prompt():
    made = rows(100, 6)
    assert draw(made) == draw(made[::-1]) != draw(made, "other:")
    seen = []
    for known, rest in folds([*made, *made], 5):
        assert not {row.prompt.text for row in known} & {row.prompt.text for row in rest}
        seen += rest
    assert len(seen) == 200


@pytest.mark.parametrize("name", ["length", "reasoning words", "building words", "analysis words"])
def test_what_was_written_by_hand_makes_hard_words_hard(name):
    assert BY_HAND[name] > 0
