"""Properties of cache keys, and of answers that go through a stream and back."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.cache.key import digest_of
from gateway.cache.replay import chunks
from gateway.cache.stream_assembly import AnswerAssembler
from gateway.wire.openai.chat import CHAT
from gateway.wire.request_body import read_fields


def digest(body: Any) -> bytes:
    """The digest of a body."""
    request_digest = digest_of(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert request_digest is not None
    return request_digest.digest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('ab"\\é:{,'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab":', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def typed(value: Any) -> Any:
    """The value with booleans marked: for Python True equals 1."""
    if isinstance(value, dict):
        return {name: typed(member) for name, member in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (isinstance(value, bool), value)


@examples(500)
@given(JSON, JSON)
def test_two_values_share_a_digest_if_and_only_if_they_are_equal(first: Any, second: Any) -> None:
    equal = typed(first) == typed(second)
    assert (digest({"x": first}) == digest({"x": second})) is equal


@examples(300)
@given(JSON, st.booleans())
def test_whitespace_and_escapes_do_not_change_the_digest(value: Any, escaped: bool) -> None:
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
    st.lists(st.tuples(TEXT, st.none() | TEXT.filter(bool), st.lists(CALL, max_size=2)), min_size=1, max_size=3),
    st.booleans(),
)
def test_a_replayed_and_assembled_answer_is_unchanged(choices: Any, escaped: bool) -> None:
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
    for part in events.split(b"\n\n"):
        assembler.feed(part + b"\n\n")
    assembled = assembler.answer(None)
    assert assembled is not None
    assert json.loads(assembled) == answer


PADDING = "long " * 2000


@examples(300)
@given(
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "x"]), JSON, max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["temperature", "seed", "note", "messages2"]), JSON, max_size=3),
    st.sampled_from(["", '"messages":[{}],', '"n\\u006fte":1,', '"note":{"messages":0},']),
    st.booleans(),
)
def test_long_messages_are_digested_alike_with_and_without_their_fields(
    turns: list[Any], others: dict[str, Any], first: str, escaped: bool
) -> None:
    whole = {"messages": [*turns, {"role": "user", "content": PADDING}], **others}
    text = json.dumps(whole, ensure_ascii=escaped, separators=(", ", ":\n"))
    body = ("{" + first + text[1:]).encode()
    assert digest_of(body, read_fields(body)) == digest_of(body)


def test_messages_inside_another_member_are_not_mistaken_for_them() -> None:
    messages = json.dumps([{"role": "user", "content": PADDING}])
    bodies = [f'{{"x":{{"messages":{inner}}},"messages":{messages}}}'.encode() for inner in (messages, "0", "[]")]
    assert len({digest_of(body, read_fields(body)) for body in bodies}) == 3
