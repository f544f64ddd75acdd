"""What Python's JSON reader takes and ours does not becomes readable, in place, and nothing else does."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.wire.json.lenient import readable
from gateway.wire.json.members import members
from gateway.wire.openai.peek import peek_answer, read_error

UNITS = st.text(st.characters(exclude_categories=()) | st.sampled_from(list('"\\ud83d\\ude00NaN\\\\ud')), max_size=12)
VALUES: Any = st.recursive(
    UNITS | st.floats() | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(UNITS, inner, max_size=4),
    max_leaves=12,
)


@examples(200)
@given(st.lists(VALUES, max_size=4), st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_whatever_python_writes_can_be_read_at_the_same_positions(values: list[Any], mark: bytes):
    text = mark + json.dumps({"a": values, "model": "m"}).encode()
    copy = readable(text)
    assert copy is None or len(copy) == len(text)
    read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode(text if copy is None else copy)
    assert bytes(read["model"]) == b'"m"'
    assert [text[each.start : each.value] for each in members(text)] == [b'"a": ', b'"model": ']


@examples(200)
@given(UNITS)
def test_only_halves_of_characters_are_replaced(text: str):
    written = json.dumps(text).encode()
    whole = json.loads(written)
    copy = readable(written)
    assert (copy is None) == (re.search("[\ud800-\udfff]", whole) is None)
    assert json.loads(copy or written) == re.sub("[\ud800-\udfff]", "\ufffd", whole)


@pytest.mark.parametrize(
    "text",
    [b'{"a":1NaN}', b'{"a":NaN1}', b'{"a":-NaN}', b'{"a":+Infinity}', b'{"a":"\\ud8"}', b'{"a":nan}', b'{"a":.NaN}'],
)
def test_what_python_refuses_stays_unreadable(text: bytes):
    with pytest.raises(ValueError, match=r"."):
        json.loads(text)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(readable(text) or text)


def test_a_request_keeps_its_numbers_and_marks():
    assert readable(b'{"temperature":NaN}', numbers=False) is None
    assert readable(b"\xef\xbb\xbf{}", numbers=False) is None


def test_a_text_of_too_many_escapes_is_not_worth_it():
    assert readable(b'"' + rb"\ud83d" * 500_001 + b'"') is None


def test_errors_and_answers_are_read_through_it():
    error = read_error(rb'{"error":{"message":"no \ud83d","x":NaN}}')
    assert error is not None
    assert error.message == "no �"
    answer = peek_answer(b'\xef\xbb\xbf{"model":"m","x":[-Infinity]}')
    assert answer is not None
    assert answer.model == "m"
