"""Estimates of input by language, before and after learning; expected output; what absurd reports do."""

import json
import math
import random

import pytest
from kit.weights import measure, weigh
from msgspec.structs import replace

from benchmarks.estimates import SAMPLES, body
from gateway.core.call import TokenEstimate, TokenUsage
from gateway.core.endpoint import Endpoint
from gateway.usage.estimator import (
    FIRST_GUESS,
    FITTED,
    MAX_FACTOR,
    MIN_FACTOR,
    Estimator,
    ExpectedOutput,
    TokenFactors,
)
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS

# Counted with quicktok-v1 0.4.0, the texts alone.
TRUE = {
    "o200k": {"english": 111, "korean": 178, "chinese": 155, "japanese": 196, "code": 190, "json": 338},
    "cl100k": {"english": 112, "korean": 291, "chinese": 230, "japanese": 272, "code": 189, "json": 338},
    "qwen3": {"english": 112, "korean": 204, "chinese": 135, "japanese": 167, "code": 190, "json": 382},
    "llama3": {"english": 111, "korean": 185, "chinese": 159, "japanese": 171, "code": 189, "json": 338},
}
# What the chat templates add to one message of a user, its role counted.
AROUND = {"o200k": 7, "cl100k": 7, "qwen3": 8, "llama3": 10}
FITTED_ON = ("o200k", "qwen3")
CASES = [(vocabulary, language) for vocabulary in TRUE for language in SAMPLES]


def true(vocabulary: str, language: str) -> int:
    return TRUE[vocabulary][language] + AROUND[vocabulary]


def estimate(estimator: Estimator, whole: bytes, endpoint: Endpoint = CHAT, key: str = "key") -> TokenEstimate:
    weight, caps = measure(whole, endpoint)
    return estimator.estimate(weight, caps, "model", key)


def fields(made: TokenEstimate) -> tuple[int, int, bool, int]:
    return made.input, made.output, made.capped, made.choices


def teach(vocabulary: str) -> Estimator:
    """An estimator that has seen mixed calls of all languages, twenty of each, in one shuffled order."""
    estimator = Estimator()
    lessons = [language for language in SAMPLES for _ in range(20)]
    random.Random(3).shuffle(lessons)
    for language in lessons:
        made = estimate(estimator, body(SAMPLES[language]))
        estimator.learn(made, "model", "key", TokenUsage(true(vocabulary, language), 5))
    return estimator


def chat(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}], **fields}).encode()


@pytest.mark.parametrize(("vocabulary", "language"), [one for one in CASES if one[0] in FITTED_ON])
@pytest.mark.parametrize("escaped", [False, True])
def test_the_first_estimate_is_within_a_fifth(vocabulary, language, escaped):
    made = estimate(Estimator(), body(SAMPLES[language], escaped=escaped))
    assert made.input == pytest.approx(true(vocabulary, language), rel=0.2)


@pytest.mark.parametrize(("vocabulary", "language"), [one for one in CASES if one[0] not in FITTED_ON])
def test_with_another_tokenizer_the_first_estimate_is_within_two_fifths(vocabulary, language):
    made = estimate(Estimator(), body(SAMPLES[language]))
    assert made.input == pytest.approx(true(vocabulary, language), rel=0.4)


@pytest.mark.parametrize("vocabulary", TRUE)
def test_after_mixed_traffic_every_language_is_within_an_eighth(vocabulary):
    taught = teach(vocabulary)
    for language, text in SAMPLES.items():
        made = estimate(taught, body(text))
        assert made.input == pytest.approx(true(vocabulary, language), rel=0.125), language


def test_models_are_learned_separately():
    taught = teach("cl100k")
    weight, caps = measure(body(SAMPLES["korean"]), CHAT)
    fresh = Estimator().estimate(weight, caps, "model", "key")
    assert taught.estimate(weight, caps, "other", "key") == fresh
    assert taught.estimate(weight, caps, "model", "key").input > fresh.input * 1.3


def test_korean_text_does_not_change_the_english_factors():
    estimator = Estimator()
    before = estimate(estimator, body(SAMPLES["english"])).input
    for _ in range(50):
        made = estimate(estimator, body(SAMPLES["korean"] * 5))
        estimator.learn(made, "model", "key", TokenUsage(291 * 5, 1))
    assert estimate(estimator, body(SAMPLES["english"])).input == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize("absurd", [-5, 0, 10**9, 10**30])
def test_implausible_reports_are_ignored(absurd):
    estimator = Estimator()
    before = estimate(estimator, body(SAMPLES["korean"]))
    for _ in range(100):
        estimator.learn(before, "model", "key", TokenUsage(absurd, 0))
    assert estimate(estimator, body(SAMPLES["korean"])) == before


def test_one_false_report_among_many_moves_little():
    taught = teach("qwen3")
    made = estimate(taught, body(SAMPLES["korean"]))
    taught.learn(made, "model", "key", TokenUsage(made.input * 10, 1))
    assert estimate(taught, body(SAMPLES["korean"])).input == pytest.approx(made.input, rel=0.05)


@pytest.mark.parametrize("times", [0.1, 10.0])
def test_factors_stay_within_their_bounds(times):
    factors = TokenFactors()
    counts = [1] * len(FITTED)
    for _ in range(500):
        factors.learn(counts, math.ceil(factors.tokens(counts) * times))
    for weight, first in zip(factors.weights, FITTED, strict=True):
        assert first * MIN_FACTOR <= weight <= first * MAX_FACTOR
    assert factors.weights != list(FITTED)


def test_token_ids_are_counted_exactly_whatever_was_learned():
    taught = teach("cl100k")
    ids = json.dumps({"model": "m", "prompt": [[15339, 1917], [1, 2, 3]], "max_tokens": 4}).encode()
    assert fields(estimate(taught, ids, COMPLETIONS)) == (5, 8, True, 2)


def test_a_cap_is_the_output():
    made = estimate(Estimator(), chat(max_tokens=1, max_completion_tokens=1000, n=2))
    assert fields(made)[1:] == (2000, True, 2)
    assert fields(estimate(Estimator(), b'{"model":"m","input":"Hello"}', EMBEDDINGS))[1:] == (0, True, 1)


def test_without_a_cap_the_first_guess_is_made_for_every_choice():
    assert fields(estimate(Estimator(), chat()))[1:] == (FIRST_GUESS, False, 1)
    assert fields(estimate(Estimator(), chat(n=3)))[1:] == (3 * FIRST_GUESS, False, 3)


def test_output_is_learned_per_key_and_per_choice_from_answers_without_a_cap():
    estimator = Estimator()
    open_ended = estimate(estimator, chat(n=2))
    estimator.learn(estimate(estimator, chat(max_tokens=9)), "model", "key", TokenUsage(10, 9))
    assert estimate(estimator, chat()).output == FIRST_GUESS
    estimator.learn(open_ended, "model", "key", TokenUsage(10, 80))
    assert estimate(estimator, chat()).output == 40
    assert estimate(estimator, chat(), key="other").output == FIRST_GUESS


def test_nine_answers_in_ten_are_no_longer_than_expected():
    draw = random.Random(5)
    lengths = [math.exp(draw.gauss(5.0, 0.8)) for _ in range(3000)]
    expected = ExpectedOutput()
    within = 0
    for length in lengths:
        within += length <= expected.tokens
        expected.learn(length)
    assert 0.85 <= within / len(lengths) <= 0.94


def test_expected_output_follows_a_change_and_stays_bounded():
    expected = ExpectedOutput()
    for _ in range(100):
        expected.learn(20)
    for _ in range(60):
        expected.learn(2000)
    assert 1800 <= expected.tokens <= 2400
    for _ in range(500):
        expected.learn(10**18)
    assert expected.tokens <= 10**6


def test_an_exact_count_is_used_if_available():
    asked = []

    def count(whole: bytes, model: str) -> int | None:
        asked.append((whole, model))
        return 77 if len(asked) == 1 else None

    estimator = Estimator(count)
    weight, caps = measure(chat(), CHAT)
    assert estimator.estimate(weight, caps, "model", "key", chat()).input == 77
    assert estimator.estimate(weight, caps, "model", "key", chat()) == estimate(Estimator(), chat())
    assert asked == [(chat(), "model")] * 2


def test_the_estimate_carries_its_weight_and_choices():
    made = estimate(Estimator(), chat())
    assert made.weight == weigh(chat())
    Estimator().learn(replace(made, weight=()), "model", "key", TokenUsage(10, 1))  # one that was made elsewhere
