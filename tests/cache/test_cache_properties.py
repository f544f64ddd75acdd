"""Keys of the cache, and answers as streams and streams as answers, for whatever is in them."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.cache.key import read
from gateway.cache.replay import AnswerAssembler, chunks
from gateway.core.call import CHAT


def digest(body: Any) -> bytes:
    """Of a body, however it is written."""
    reading = read(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert reading is not None
    return reading.digest


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\é:{,'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('ab":', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def plain(value: Any) -> Any:
    """With types told apart: for Python true is 1, and 1.0 is 1 as it is here."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return (isinstance(value, bool), value)


@examples(500)
@given(JSON, JSON)
def test_two_values_have_the_same_digest_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    alike = plain(one) == plain(other)
    assert (digest({"x": one}) == digest({"x": other})) is alike


@examples(300)
@given(JSON, st.booleans())
def test_a_body_is_read_however_it_is_spaced(value: Any, escaped: bool) -> None:
    body = {"x": value, "user": "u", "temperature": 0}
    written = json.dumps(body, indent=1, ensure_ascii=escaped).encode()
    packed = json.dumps(body, separators=(",", ":")).encode()
    assert digest(written) == digest(packed)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CALL = st.builds(
    lambda id, name, arguments: {
        "id": "i" + id,
        "type": "function",
        "function": {"name": "f" + name, "arguments": "a" + arguments},
    },
    TEXT,
    TEXT,
    TEXT,
)


@examples(200)
@given(
    st.lists(
        st.tuples(TEXT, st.none() | TEXT.filter(bool), st.lists(CALL, max_size=2)), min_size=1, max_size=3
    ),
    st.booleans(),
)
def test_an_answer_told_and_put_together_is_itself(choices: Any, escaped: bool) -> None:
    def message(text: str, reasoning: str | None, calls: Any) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": None if calls and not text else text}
        if reasoning is not None:
            said["reasoning_content"] = reasoning
        return {**said, **({"tool_calls": calls} if calls else {})}

    answer = {
        "id": "x",
        "object": "chat.completion",
        "created": 1.50,
        "model": "m",
        "choices": [
            {"index": at, "message": message(*one), "logprobs": None, "finish_reason": "stop"}
            for at, one in enumerate(choices)
        ],
        "usage": {"prompt_tokens": 10**25},
    }
    body = json.dumps(answer, ensure_ascii=escaped).encode()
    events = chunks(body, CHAT, usage=True)
    assembler = AnswerAssembler(CHAT, 10**6)
    for one in events.split(b"\n\n"):
        assembler.feed(one + b"\n\n")
    whole = assembler.whole(None)
    assert whole is not None
    assert json.loads(whole) == answer
