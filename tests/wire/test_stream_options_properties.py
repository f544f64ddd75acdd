"""Asking for usage changes what a request says about usage, and nothing beside it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import KEYS, SPACE, examples, member, values

from gateway.wire.json.members import cuts, edited, members
from gateway.wire.openai.stream_options import usage_edits
from gateway.wire.request_body import read_fields

NAME = "stream_options"
OPTIONS = [
    "null",
    "{}",
    '{ "include_usage" : true}',
    '{"x":[1],"include_usage":false}',
    '{"y":"include_usage"}',
]


@st.composite
def bodies(draw: st.DrawFn, name: str = NAME) -> bytes:
    """An object with the member up to two times among others, every name and blank in any spelling."""
    texts = [draw(member(name, draw(st.sampled_from(OPTIONS)))) for _ in range(draw(st.integers(0, 2)))]
    others = draw(st.lists(st.tuples(KEYS, values()), min_size=1, max_size=4))
    texts += [draw(member(key, value)) for key, value in others]
    before, after = draw(SPACE), draw(SPACE)
    return f"{before}{{{','.join(draw(st.permutations(texts)))}}}{after}".encode()


def _pairs(text: bytes) -> Any:
    return json.loads(text, object_pairs_hook=lambda found: [list(pair) for pair in found])


@examples(200)
@given(bodies())
def test_the_last_wish_asks_and_the_rest_is_as_it_was(body: bytes):
    sent = b"".join(edited(body, usage_edits(read_fields(body), body)))
    assert json.loads(sent)[NAME]["include_usage"] is True
    assert [pair for pair in _pairs(sent) if pair[0] != NAME] == [pair for pair in _pairs(body) if pair[0] != NAME]
    was, now = json.loads(body).get(NAME) or {}, json.loads(sent)[NAME]
    assert {**was, "include_usage": True} == now
    assert usage_edits(read_fields(sent), sent) == []


@examples(200)
@given(bodies())
def test_members_are_found_where_they_stand(body: bytes):
    found = [[json.loads(one.name), _pairs(body[one.value : one.end])] for one in members(body)]
    assert found == _pairs(body)


@examples(200)
@given(bodies("usage"))
def test_a_member_is_cut_out_with_one_comma(body: bytes):
    left = b"".join(edited(body, cuts(body, "usage")))
    assert _pairs(left) == [pair for pair in _pairs(body) if pair[0] != "usage"]
