"""Putting another model name into a body changes that name and not one byte beside it."""

import json
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import KEYS, SPACE, TEXTS, examples, member, string, values

from gateway.wire.json.splice import model_spans, parts, replace

NAME = b'"org/new \\u00e9"'
MARK = "\x00name\x00"  # no text of JSON holds this, so its place can be found again


class Case(NamedTuple):
    """A body, and the same body with the other name."""

    before: bytes
    after: bytes


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """An object with `model` at least once at the top, maybe twice, among other things."""
    named = draw(st.lists(TEXTS, min_size=1, max_size=2))
    names = [draw(string(name)) for name in named]
    members = [draw(member("model", MARK)) for _ in names]
    others = draw(st.lists(st.tuples(KEYS.filter(lambda key: key != "model"), values()), max_size=4))
    members += [draw(member(key, value)) for key, value in others]
    if draw(st.booleans()):
        members.append(draw(member("model", draw(st.sampled_from(["null", "7", "[]", '{"model":"x"}'])))))
    before, after = draw(SPACE), draw(SPACE)
    text = f"{before}{{{','.join(draw(st.permutations(members)))}}}{after}"
    original = text
    for name in names:
        original = original.replace(MARK, name, 1)
    return Case(original.encode(), text.encode().replace(MARK.encode(), NAME))


@examples(150)
@given(cases())
def test_every_byte_but_the_names_is_left_alone(case: Case):
    assert replace(case.before, model_spans(case.before), NAME) == case.after


@examples(50)
@given(cases())
def test_it_equals_decoding_replacing_and_encoding(case: Case):
    def renamed(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return [
            (key, "org/new é") if key == "model" and isinstance(value, str) else (key, value) for key, value in pairs
        ]

    spliced = replace(case.before, model_spans(case.before), NAME)
    assert _top_pairs(spliced) == renamed(_top_pairs(case.before))


@examples(50)
@given(cases())
def test_parts_are_the_same_bytes_unjoined(case: Case):
    spans = model_spans(case.before)
    assert b"".join(parts(case.before, spans, NAME)) == replace(case.before, spans, NAME)


def _top_pairs(text: bytes) -> list[tuple[str, Any]]:
    pairs: Any = json.loads(text, object_pairs_hook=list)
    return list(map(tuple, pairs))
