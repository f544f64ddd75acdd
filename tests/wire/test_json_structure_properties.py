"""The structure of a JSON text equals that found by a character-by-character parser, however it is cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json import limits as json_limits

TEXT = st.text(st.sampled_from('"\\[]{}:,ab\n\u00e9\ud55c'), max_size=12)
VALUES = st.recursive(
    TEXT | st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=30,
)


def walked(text: str) -> str:
    """Brackets, braces and colons outside of strings."""
    found, within, escaped = "", False, False
    for character in text:
        if escaped:
            escaped = False
        elif within:
            escaped = character == "\\"
            within = character != '"'
        elif character == '"':
            within = True
        elif character in "[]{}:":
            found += character
    return found


@given(value=VALUES, piece=st.integers(1, 40), plain=st.booleans(), indent=st.sampled_from([None, 1]))
def test_it_is_what_a_walk_through_the_text_finds(value: Any, piece: int, plain: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_limits, "_PIECE", piece)
        assert json_limits._structure(text.encode()).decode() == walked(text)
