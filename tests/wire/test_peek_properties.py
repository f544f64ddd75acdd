"""The peek into a request never fails, and sees what a full decoding sees."""

import json

from hypothesis import given
from hypothesis import strategies as st
from kit.heads import Head, head_of
from kit.pieces import TEXTS, cut, examples, member, string, values

from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire.openai import peek as openai

FRAGMENTS = st.lists(
    st.sampled_from([b'{"model":"m"', b'"stream":', b"true", b"}", b"[", b'"', b"\\u", b"\xff", b"1e999"])
    | st.binary(max_size=4),
    max_size=10,
).map(b"".join)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """The text of a JSON object in which `model` and `stream` may be anything, or stand twice."""
    keys = draw(st.lists(st.sampled_from(["model", "model", "stream", "stream", "messages"]), max_size=5))
    members = []
    for key in keys:
        usual = string(draw(TEXTS)) if key == "model" else st.sampled_from(["true", "false", "null"])
        members.append(draw(member(key, draw(usual | usual | values(1)))))
    return ("{" + ",".join(members) + "}").encode()


@examples(100)
@given(st.binary(max_size=40) | FRAGMENTS)
def test_arbitrary_bytes_are_a_peek_or_a_refusal(body: bytes):
    seen = head_of(body)
    assert isinstance(seen, Head) or seen.kind in (INVALID_JSON, INVALID_VALUE)


@examples(100)
@given(st.binary(max_size=40) | FRAGMENTS)
def test_arbitrary_bytes_from_an_upstream_are_read_or_not(body: bytes):
    answer, error = openai.peek_answer(body), openai.read_error(body)
    assert answer is None or openai.is_error(answer) in (True, False)
    assert error is None or isinstance(error.message, str)


@examples(100)
@given(bodies())
def test_it_sees_what_a_full_decoding_sees(body: bytes):
    whole = json.loads(body)
    model, stream = whole.get("model"), whole.get("stream")
    seen = head_of(body)
    if not isinstance(model, str) or model == "":
        assert isinstance(seen, Rejection)
        assert (seen.kind, seen.param) == (INVALID_VALUE, "model")
    elif stream is not None and not isinstance(stream, bool):
        assert isinstance(seen, Rejection)
        assert (seen.kind, seen.param) == (INVALID_VALUE, "stream")
    elif body.count(b'"model"') > 1:  # the upstream may obey another one than we
        assert isinstance(seen, Rejection)
        assert (seen.kind, seen.param) == (INVALID_VALUE, "model")
    else:
        assert seen == Head(model, bool(stream))


@examples(100)
@given(bodies().flatmap(cut))
def test_a_body_that_was_cut_off_is_not_json(pieces: list[bytes]):
    body = b"".join(pieces[:-1])
    seen = head_of(body)
    if body != b"".join(pieces):
        assert isinstance(seen, Rejection)
        assert seen.kind == INVALID_JSON
