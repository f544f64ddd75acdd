"""Checks of answers without another model."""

import json

import pytest

from gateway.routing.cascade import arithmetic
from gateway.routing.cascade.answer_checks import (
    is_complete,
    is_empty,
    is_refusal,
    mean_logprob,
)
from gateway.routing.cascade.arithmetic import check, number
from gateway.wire.json.schema_check import fits as has_shape


@pytest.mark.parametrize(
    ("text", "checked", "wrong"),
    [
        ("3 * (4 + 2) = 18", 1, 0),
        ("so 2 + 2 = 5, sadly", 1, 1),
        ("$10 + ($28 - $17) = $10 + $11 = $21", 2, 0),
        ("10 / 3 = 3.33 and 10 / 3 = 3.34", 2, 1),
        ("1,350 + 6 * 350 = 3,450", 1, 0),
        ("<<2*27-5=52>>52", 1, 1),
        ("-3 + 5 = 2, 7 - -2 = 9, 8 ÷ 2 × 3 = 12, 2 x 3 = 6", 4, 0),
        ("Step 1\n2 + 2 = 4", 1, 0),
        ("x = 3, 5 = 5, 1 / 0 = 3, (1 + 2 = 3, 1 + = 2", 0, 0),
        ("30 / 100 = 30%", 0, 0),
        ("(" * 60 + "1" + ")" * 60 + " + 1 = 2", 0, 0),
        ("9" * 5000 + " + 1 = 2", 0, 0),
        ("1 + " * 60 + "1 = 5", 0, 0),  # too long; its end is no equation of its own
        ("1 + 1 = " + "1 + " * 60 + "1", 0, 0),
        ("1 + " * 60 + "1 apples, 2 + 2 = 5", 1, 1),
    ],
)
def test_sums_are_recomputed(text, checked, wrong):
    assert check(text) == (checked, wrong)


@pytest.mark.parametrize("text", ["1+1=2;" * 3000, "1+1=3 a " * 3000, ("1*" * 90 + "1=1;") * 100])
def test_an_answer_full_of_sums_is_bounded(text, monkeypatch):
    seen = []
    monkeypatch.setattr(arithmetic, "number", lambda digits: seen.append(digits) or number(digits))
    assert check(text).checked
    assert len(seen) <= arithmetic.MAX_TOKENS


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I’m unable to do this.", True),
        ("죄송하지만 도와드릴 수 없습니다.", True),
        ("As an AI, I have no opinion.", True),
        ("The word sorry comes from Old English.", False),
        ("I can do that.", False),
    ],
)
def test_refusals_are_recognised_by_their_start(text, refused):
    assert is_refusal(text) is refused


def test_small_checks():
    assert [is_complete(one) for one in ("stop", "tool_calls", "length", "content_filter", None)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert [is_empty(one) for one in (None, " \n", "x")] == [True, True, False]
    assert mean_logprob([-1.0, -3.0, float("-inf")]) == -2.0
    assert mean_logprob([]) is None


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "size": {"anyOf": [{"type": "number"}, {"const": "big"}]},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"name": "Tom"}', True),
        ('{"name": "Tom", "age": 3, "kind": "cat", "tags": ["a"], "size": "big"}', True),
        ('{"name": "Tom", "age": null, "size": 1.5}', True),
        ('{"name": "Tom", "age": 3.0}', True),
        ('{"name": "Tom", "age": 3.5}', False),
        ('{"name": "Tom", "age": true}', False),
        ('{"age": 3}', False),
        ('{"name": 1}', False),
        ('{"name": "Tom", "more": 1}', False),
        ('{"name": "Tom", "kind": "cow"}', False),
        ('{"name": "Tom", "tags": [1]}', False),
        ('{"name": "Tom", "size": "small"}', False),
        ('["Tom"]', False),
    ],
)
def test_an_answer_matches_the_requested_schema(text, fits):
    assert has_shape(json.loads(text), SCHEMA) is fits


def test_recursive_schemas_terminate():
    assert has_shape({"a": 1}, {"$ref": "#"})
    assert has_shape(1, {"$ref": "#/nowhere"})
    assert not has_shape(1, False)
    assert not has_shape(1, {"const": 2})
