"""Scores, what they are made of, and the file that they come from."""

import json

import msgspec
import pytest

from gateway.routing.complexity.features import NAMES, Prompt, read
from gateway.routing.complexity.lexicon import HARD
from gateway.routing.complexity.scorer import MAX_WORD_EFFECT, PromptScorer
from gateway.routing.complexity.weights import BadWeights, Weights, dump, parse, shipped


def weights(dense: dict[str, float], grams: dict[str, tuple[float, float]] | None = None) -> Weights:
    """Weights with these numbers, means of 0 and a bias of 0.1."""
    zero = dict.fromkeys(NAMES, 0.0)
    percentiles = [at / 100 for at in range(101)]
    return Weights({}, 0.1, zero | dense, zero, grams or {}, [(0.0, 0.05), (0.5, 0.4)], percentiles)


def test_a_score_is_the_sum_of_its_features():
    scorer = PromptScorer(weights({"tools": 0.5, "schema": 0.25}))
    assert scorer.score(Prompt("x", tools=1, schema=True)) == pytest.approx(0.1 + 0.5 * 0.693147 + 0.25)


def test_words_count_as_a_vector_of_length_one_and_together_within_bounds():
    scorer = PromptScorer(weights({}, {"red": (0.3, 4.0), "red tree": (0.1, 5.0), "증명": (-9.0, 1.0)}))
    assert scorer.score(Prompt("Red tree")) == pytest.approx(0.1 + (0.3 + 0.1) / 3)
    assert scorer.score(Prompt("증명하라")) == pytest.approx(0.1 - MAX_WORD_EFFECT)
    assert scorer.score(Prompt("blue")) == pytest.approx(0.1)


def test_reasons_add_up_to_the_score():
    scorer = PromptScorer(weights({"length": 0.2, "numbers": -0.1}, {"red": (0.3, 4.0), "tree": (0.2, 4.0)}))
    prompt = Prompt("red tree 12")
    reasons = scorer.reasons(prompt)
    assert reasons[0].name == "length"
    assert {'"red"', '"tree"', "numbers"} <= {reason.name for reason in reasons}
    assert 0.1 + sum(reason.added for reason in reasons) == pytest.approx(scorer.score(prompt))


def test_the_header_names_what_moved_the_score_its_way():
    scorer = PromptScorer(weights({"length": 0.2, "numbers": -0.1, "tools": 0.3}))
    reading = read(Prompt("red tree 12", tools=1))
    assert scorer.names(reading, up=True) == ["length", "tools"]
    assert scorer.names(reading, up=False) == ["numbers"]


def test_gain_and_percentile_come_from_the_tables():
    scorer = PromptScorer(weights({}))
    assert [scorer.gain(score) for score in (-1.0, 0.2, 0.7)] == [0.05, 0.05, 0.4]
    assert [scorer.percentile(score) for score in (-1.0, 0.495, 9.0)] == [0, 50, 100]


def test_the_shipped_weights_say_where_they_come_from_and_what_they_reach():
    provenance = shipped().provenance
    assert "Apache-2.0" in str(provenance["source"])
    assert "MIT" in str(provenance["source"])
    hashes = [value for name, value in provenance.items() if name.startswith("sha256 of ")]
    assert [len(str(value)) for value in hashes] == [64] * 5
    reached = {name.removeprefix("apgr without "): value for name, value in provenance.items() if "apgr" in name}
    assert float(reached["MMLU"]) >= 0.575
    assert float(reached["GSM8K"]) >= 0.585
    assert min(float(value) for name, value in reached.items() if "Fusion" in name) >= 0.6


def test_marks_of_hard_prompts_never_lower_a_shipped_score():
    weights = shipped().dense
    assert all(weights[name] > 0 for name in (*HARD, "length", "mathematical marks", "code marks"))
    assert weights["simple-task words"] < 0 > weights["fact questions"]


def test_a_file_is_read_as_it_was_written():
    written = weights({"tools": 0.5}, {"red": (0.3, 4.0)})
    again = parse(dump(written))
    assert msgspec.structs.replace(again, sha256="") == written
    assert dump(again) == dump(written)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bias": 0.2}, "hash"),
        ({"format": 2}, "another version"),
        ({"dense": {"length": 1.0}}, "another version"),
        ({"more": 1}, "not a weights file"),
        ({"percentiles": []}, "hash"),
    ],
)
def test_a_changed_file_is_refused(change, said):
    data = json.loads(dump(weights({}))) | change
    with pytest.raises(BadWeights, match=said):
        parse(json.dumps(data).encode())


def test_a_file_without_its_tables_is_refused():
    with pytest.raises(BadWeights, match="incomplete"):
        parse(dump(msgspec.structs.replace(weights({}), percentiles=[0.0])))
