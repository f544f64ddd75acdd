"""Trimming over made-up conversations: valid JSON, what stays byte for byte, tools never parted, shorter."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.context_window.trim import GAP, drop_oldest, middle_out

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CONTENTS = TEXTS | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=3)
IDS = st.sampled_from("abcd")


def _message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


PLAIN = st.builds(_message, st.sampled_from(["system", "developer", "user", "user", "assistant"]), CONTENTS)
ASKING = st.builds(
    lambda ids: {"role": "assistant", "content": None, "tool_calls": [{"id": one} for one in ids]},
    st.lists(IDS, min_size=1, max_size=2),
)
ANSWERING = st.builds(lambda one, text: {**_message("tool", text), "tool_call_id": one}, IDS, TEXTS)
MESSAGES = st.lists(PLAIN | ASKING | ANSWERING, max_size=12)


def pieces(messages: list[Any], ascii_only: bool, indent: int | None) -> list[bytes]:
    """Each message as it stands in the body; a number makes it the only one of its kind."""
    return [
        json.dumps({**one, "n": at}, ensure_ascii=ascii_only, indent=indent).encode() for at, one in enumerate(messages)
    ]


def weigh(piece: bytes) -> float:
    return len(piece)


@given(MESSAGES, st.booleans(), st.sampled_from([None, 2]), st.floats(0.01, 1.0))
def test_oldest_dropped(messages: list[Any], ascii_only: bool, indent: int | None, share: float):
    written = pieces(messages, ascii_only, indent)
    body = b'{"model": "m", "messages": [ ' + b" , ".join(written) + b' ], "messages_": []}'
    surplus = share * sum(map(len, written))
    trimmed = drop_oldest(body, surplus, weigh)
    last = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=len(messages) - 1)
    if trimmed is None:
        return
    kept = [one["n"] for one in json.loads(trimmed.body)["messages"]]
    assert trimmed.body == (
        b'{"model": "m", "messages": [' + b",".join(written[at] for at in kept) + b'], "messages_": []}'
    )
    assert kept == sorted(kept)
    assert trimmed.messages == len(messages) - len(kept) > 0
    assert trimmed.weight == sum(len(one) for at, one in enumerate(written) if at not in kept) >= surplus
    must = {at for at, one in enumerate(messages) if one["role"] in ("system", "developer") or at >= last}
    assert must <= set(kept)
    asked: dict[str, int] = {}
    for at, one in enumerate(messages):
        asked |= {call["id"]: at for call in one.get("tool_calls", ())}
        if one["role"] == "tool" and one["tool_call_id"] in asked:
            assert (at in kept) == (asked[one["tool_call_id"]] in kept)


@given(MESSAGES, st.floats(0.0, 1.0))
def test_a_smaller_surplus_can_be_dropped_wherever_a_larger_one_can(messages: list[Any], share: float):
    """With less to take away it never gives up where it does not with more."""
    written = pieces(messages, True, None)
    body = b'{"messages":[' + b",".join(written) + b"]}"
    much = sum(map(len, written)) * share
    if drop_oldest(body, much, weigh) is not None:
        assert drop_oldest(body, much / 2, weigh) is not None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400), st.booleans(), st.floats(1, 300))
def test_the_middle_cut_out(text: str, ascii_only: bool, surplus: float):
    before = json.dumps(_message("user", "first"), ensure_ascii=ascii_only).encode()
    value = json.dumps(text, ensure_ascii=ascii_only).encode()
    body = b'{"messages":[%b,{"role":"user","content":%b,"x":0.10}],"seed":1}' % (before, value)
    trimmed = middle_out(body, surplus, weigh)
    if trimmed is None:
        return
    assert trimmed.body.startswith(b'{"messages":[%b,{"role":"user","content":"' % before)
    assert trimmed.body.endswith(b'","x":0.10}],"seed":1}')
    content = json.loads(trimmed.body)["messages"][1]["content"]
    assert any(
        content[at : at + len(GAP)] == GAP and text.startswith(content[:at]) and text.endswith(content[at + len(GAP) :])
        for at in range(len(content))
    )
    assert len(content) < len(text)
    assert trimmed.weight >= surplus
