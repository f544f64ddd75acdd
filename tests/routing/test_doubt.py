"""Checks of cheap answers, and the shape of JSON against a real validator."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.wire.json.schema_check import fits
from gateway.wire.openai.chat_answer import read_choices, read_format
from gateway.wire.request_body import read_fields

ALL = CheckPolicy(("finish", "empty", "rejection", "json", "arithmetic", "logprob"), -1.0)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "role": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "boss": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"place": {"type": ["object", "null"], "required": ["city"]}},
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "x", "age": 3},
        {"name": "x", "age": 3.0, "role": "b", "tags": ["t"], "boss": {"name": "y", "age": 1}},
        {"name": "x", "age": 3, "home": {"city": "z"}},
        {"name": "x", "age": 3, "home": None},
    ],
)
def test_matching_values(value: Any) -> None:
    jsonschema.validate(value, PERSON)
    assert fits(value, PERSON)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"name": "x"},
        {"name": 1, "age": 3},
        {"name": "x", "age": 3.5},
        {"name": "x", "age": True},
        {"name": "x", "age": 3, "role": "c"},
        {"name": "x", "age": 3, "tags": ["t", 1]},
        {"name": "x", "age": 3, "boss": {"name": "y"}},
        {"name": "x", "age": 3, "home": {}},
        {"name": "x", "age": 3, "more": 1},
    ],
)
def test_mismatching_values(value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, PERSON)
    assert not fits(value, PERSON)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 2.0, "a", "name"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
            "additionalProperties": st.booleans(),
            "minimum": st.just(0),
        },
    ),
    max_leaves=6,
)


@given(VALUES, SCHEMAS)
def test_whatever_a_real_validator_accepts_passes(value: Any, schema: Any) -> None:
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert fits(value, schema)


@given(VALUES, VALUES)
def test_any_schema_is_handled(value: Any, schema: Any) -> None:
    fits(value, {"type": schema, "items": schema, "anyOf": schema, "required": schema, "$ref": schema})


def test_a_circular_schema_is_not_checked() -> None:
    assert fits(1, {"$ref": "#"})
    assert fits(1, {"$ref": "#/nowhere"})
    assert fits(1, {"$ref": "https://example.com/x"})


def test_a_schema_with_many_branches_is_bounded() -> None:
    ways = {f"a{at}": {"anyOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(28)}
    assert fits(1, {"$ref": "#/$defs/a0", "$defs": {**ways, "a28": {"type": "string"}}})


def test_every_step_is_counted() -> None:
    either = {"anyOf": [{"enum": [*range(10)]}] * 3_000 + [{"type": "integer"}]}
    assert fits("x", either)
    assert not fits("x", {"anyOf": [{"enum": [*range(10)]}] * 300 + [{"type": "integer"}]})
    names = [f"n{at}" for at in range(10)]
    assert fits({}, {"anyOf": [{"required": names}] * 3_000})
    assert fits(dict.fromkeys(names), {"anyOf": [{"additionalProperties": False}] * 3_000})


def answer(*texts: str, **choice: Any) -> bytes:
    made = [{"message": {"content": text}, "finish_reason": "stop", **choice} for text in texts]
    return json.dumps({"choices": made}).encode()


def test_the_first_eight_choices_are_checked() -> None:
    assert doubt(read_fields(b"{}"), answer("fine", "1 + 1 = 2"), ALL) == ""
    assert doubt(read_fields(b"{}"), answer(*["fine"] * 7, "1 + 1 = 3"), ALL) == "arithmetic"
    assert doubt(read_fields(b"{}"), answer(*["fine"] * 8, "1 + 1 = 3"), ALL) == ""


def test_only_configured_checks_run() -> None:
    assert doubt(read_fields(b"{}"), answer("1 + 1 = 3"), CheckPolicy(("finish",))) == ""
    with_none = answer("x", logprobs={"content": [{"logprob": -9.0}]})
    assert doubt(read_fields(b"{}"), with_none, CheckPolicy(("logprob",), None)) == ""
    assert doubt(read_fields(b"{}"), with_none, ALL) == "logprob"


@given(st.binary(max_size=60))
def test_any_bytes_are_handled(data: bytes) -> None:
    assert isinstance(read_choices(data), list)
    assert read_format(read_fields(data)).schema is None
    assert isinstance(doubt(read_fields(data), data, ALL), str)


@pytest.mark.parametrize("depth", [100_000])
def test_deep_nesting_is_handled(depth: int) -> None:
    wanted = b'{"response_format": {"type": "json_object"}}'
    assert doubt(read_fields(wanted), answer("[" * depth), ALL) == "json"


@pytest.mark.parametrize(("text", "failed"), [('"x"', "json"), ("[]", "json"), ("{}", "")])
def test_a_json_object_is_an_object(text: str, failed: str) -> None:
    assert doubt(read_fields(b'{"response_format": {"type": "json_object"}}'), answer(text), ALL) == failed


def test_a_horizontal_rule_before_a_sum_is_handled() -> None:
    assert doubt(read_fields(b"{}"), answer("-" * 3000 + "1 + 1 = 3"), ALL) == "arithmetic"
