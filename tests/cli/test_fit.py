"""Fitting: reproducible weights, words only where configured, steps that only rise."""

import pytest
from synthetic import prompts

from gateway.cli.router.dataset import LabelledPrompt, draw, folds
from gateway.cli.router.evaluation import SPREADS
from gateway.cli.router.fit import BY_HAND, SHIPPED, Prior, again, fit, fit_order, isotonic
from gateway.cli.router.metrics import curve
from gateway.routing.complexity.features import NAMES, Prompt
from gateway.routing.complexity.lexicon import HARD
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump, shipped


def rows(count: int, seed: int) -> list[LabelledPrompt]:
    return [LabelledPrompt(Prompt(text), float(weak), float(strong)) for text, weak, strong in prompts(count, seed)]


def test_the_same_rows_give_the_same_file_whatever_their_order():
    made = rows(200, 3)
    assert dump(fit(draw(made), again(shipped()), {})) == dump(fit(draw(made[::-1]), again(shipped()), {}))


def test_words_are_learned_from_an_operators_traffic_and_not_for_the_package():
    training, new = rows(400, 3), rows(400, 4)
    gains = [row.gain for row in new]
    operator, package = (PromptScorer(fit(training, prior, {})) for prior in (again(shipped()), SHIPPED))
    assert curve([operator.score(row.prompt) for row in new], gains).apgr > 0.65
    assert package.weights.grams == {}
    assert {gram for gram, (weight, _) in operator.weights.grams.items() if weight > 0} >= {
        "violet",
        "orbit",
        "enzyme",
    }


def test_without_a_difference_between_prompts_the_prior_stays():
    same = [LabelledPrompt(Prompt("tree"), 0.0, 1.0), LabelledPrompt(Prompt("tree"), 1.0, 0.0)] * 10
    assert fit([*same, *rows(1, 5)], SHIPPED, {}).dense["tools"] == BY_HAND["tools"]


def test_calibrated_gains_only_rise_and_preserve_the_mean():
    steps = isotonic([1, 2, 3, 4, 4, 5], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert steps == [(1, 0.0), (2, 0.5), (5, 1.0)]


def test_folds_and_draws_go_by_the_prompt():
    made = rows(100, 6)
    assert draw(made) == draw(made[::-1]) != draw(made, "other:")
    seen = []
    for training, rest in folds([*made, *made], 5):
        assert not {row.prompt.text for row in training} & {row.prompt.text for row in rest}
        seen += rest
    assert len(seen) == 200


@pytest.mark.parametrize("name", ["length", *HARD, "mathematical marks", "code marks"])
def test_the_hand_written_prior_makes_hard_words_hard(name):
    assert BY_HAND[name] > 0


def test_labels_cannot_turn_a_sign_against_sense():
    hard, easy = "Prove the theorem in Python: x = {y}", "Who can translate the poem"
    wrong = [
        LabelledPrompt(Prompt(f"{text} {number}"), weak, 1.0 - weak)
        for number in range(200)
        for text, weak in ((hard, 1.0), (easy, 0.0))
    ]
    learned = fit_order(wrong, Prior(BY_HAND, 0.3, grams=False)).dense
    assert min(learned[name] for name in (*HARD, "length", "mathematical marks", "code marks")) >= 0
    assert learned["simple-task words"] <= 0 >= learned["fact questions"]
    assert learned["proof words"] == 0.0


def test_tables_are_compared_within_and_not_with_each_other():
    easy = [LabelledPrompt(Prompt(f"tree {at}"), 1.0, 1.0, table="a") for at in range(50)]
    hard = [LabelledPrompt(Prompt(f"python {at}"), 0.0, 1.0, table="b") for at in range(50)]
    free = Prior(dict.fromkeys(NAMES, 0.0), 0.3, grams=False)
    assert fit_order([*easy, *hard], free).dense["code words"] == 0.0
    joined = [row._replace(table="") for row in (*easy, *hard)]
    assert fit_order(joined, free).dense["code words"] > 0.5


def test_a_route_begins_with_the_prompts_that_are_named():
    started = fit(rows(100, 3), SHIPPED, {}, [Prompt("tree"), Prompt("Prove the theorem")])
    scorer = PromptScorer(started)
    ends = [scorer.score(Prompt(text)) for text in ("tree", "Prove the theorem")]
    assert [started.percentiles[0], started.percentiles[-1]] == pytest.approx(ends)


def test_the_shipped_spread_is_one_of_those_compared():
    assert SHIPPED.spread in SPREADS
    assert again(shipped()).spread == 0.03
