"""Prompts made shorter: what goes, what stays, and that what stays is not touched."""

import json
from typing import Any

import pytest

from gateway.context_window.trim import GAP, REQUIRED, decode, drop_oldest, middle_out, turns


def weigh(piece: bytes) -> float:
    return len(piece)


def chat(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def said(role: str, content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calls(*ids: str) -> dict[str, Any]:
    return said("assistant", None, tool_calls=[{"id": one, "type": "function"} for one in ids])


def answer(call: str) -> dict[str, Any]:
    return said("tool", "42", tool_call_id=call)


def turns_of(*messages: Any) -> list[int]:
    return turns(decode(json.dumps(messages).encode()))


def test_a_turn_is_a_user_message_and_what_follows_it():
    assert turns_of(
        said("assistant"),
        said("system"),
        said("user"),
        said("assistant"),
        said("developer"),
        said("assistant"),
        said("user"),
        said("user"),
        said("assistant"),
    ) == [1, REQUIRED, 2, 2, REQUIRED, 2, 3, REQUIRED, REQUIRED]


def test_without_a_user_message_the_last_message_is_required():
    assert turns_of(said("system"), said("assistant"), said("assistant")) == [REQUIRED, 1, REQUIRED]
    assert turns_of() == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((said("user"), calls("a"), answer("a"), said("user")), [2, 2, 2, REQUIRED]),
        ((said("user"), calls("a", "b"), said("user"), answer("b"), said("user")), [3, 3, 3, 3, REQUIRED]),
        (
            (said("user"), calls("a"), said("user"), said("user"), answer("a")),
            [REQUIRED, REQUIRED, 3, REQUIRED, REQUIRED],
        ),
        ((said("user"), calls("a"), said("user"), answer("?"), said("user")), [3, 3, 3, 3, REQUIRED]),
        ((said("user"), answer("nobody"), said("user")), [2, 2, REQUIRED]),
        (
            (
                said("user"),
                said("assistant", None, function_call={"name": "f"}),
                said("user"),
                said("function", "1", name="f"),
                said("user"),
            ),
            [3, 3, 3, 3, REQUIRED],
        ),
    ],
    ids=["one turn", "two turns", "behind the last", "an unknown id", "an orphan", "the old function call"],
)
def test_a_tool_call_and_its_result_stay_together(messages: Any, expected: list[int]):
    assert turns_of(*messages) == expected


TALK = (
    said("system", "rules"),
    said("user", "one " * 20),
    said("assistant", "answer one"),
    said("user", "two " * 20),
    calls("a"),
    answer("a"),
    said("assistant", "answer two"),
    said("user", "now"),
)


def left(body: bytes | None) -> list[Any]:
    assert body is not None
    return json.loads(body)["messages"]  # type: ignore[no-any-return]


def test_only_as_many_of_the_oldest_turns_as_necessary_are_dropped():
    first = drop_oldest(chat(*TALK), 1.0, weigh)
    assert first is not None
    assert (left(first.body), first.messages) == ([TALK[0], *TALK[3:]], 2)
    assert first.weight == sum(len(json.dumps(one)) for one in TALK[1:3])
    more = drop_oldest(chat(*TALK), first.weight + 1, weigh)
    assert more is not None
    assert (left(more.body), more.messages) == ([TALK[0], TALK[7]], 6)


def test_required_messages_are_not_dropped():
    body = chat(*TALK)
    assert drop_oldest(body, len(body) / 2 + 1000, weigh) is None
    assert drop_oldest(chat(said("system", "x" * 99), said("user", "x" * 99)), 1.0, weigh) is None
    assert drop_oldest(chat(said("user"), calls("a"), answer("a"), calls("b"), answer("b")), 1.0, weigh) is None


def test_every_other_byte_is_unchanged():
    kept = rb'{ "content" : "h\u00e9\"}, {",  "role":"user", "n": 1.0e+0}'
    tail = rb' , "temperature" : 0.10, "x": {"messages": [1]} , "model" :"m" }'
    body = b'{ "stream":true, "m\\u0065ssages" : [ {"role":"user","content":"] ["} ,\n' + kept + b" ]" + tail
    trimmed = drop_oldest(body, 1.0, weigh)
    assert trimmed is not None
    assert trimmed.body == b'{ "stream":true, "m\\u0065ssages" : [' + kept + b"]" + tail


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m"}',
        b'{"messages":"text"}',
        b'{"messages":[]}',
        b'{"messages":[1,{"role":"user"}]}',
        b'{"messages":[{"role":"user","tool_calls":7},{"role":"user"}]}',
        b'{"messages":[{"role":"user"},{"role":"user"}],"messages":[{"role":"user"},{"role":"user"}]}',
        b'{"prompt":"text"}',
    ],
)
def test_bodies_without_a_conversation_are_not_trimmed(body: bytes):
    assert drop_oldest(body, 1.0, weigh) is None


def test_half_a_character_in_a_name_is_no_obstacle():
    trimmed = drop_oldest(b'{"\\ud800":1,"messages":[{"role":"user"},{"role":"user"}]}', 1.0, weigh)
    assert trimmed is not None
    assert trimmed.body == b'{"\\ud800":1,"messages":[{"role":"user"}]}'


def test_the_middle_of_a_long_last_message_is_cut():
    text = "".join(f"{number} " for number in range(1000))
    body = chat(said("user", "first"), said("user", text), said("assistant", "so"), seed=7)
    trimmed = middle_out(body, 3000.0, weigh)
    assert trimmed is not None
    first, last, after = left(trimmed.body)
    assert (first, after) == (said("user", "first"), said("assistant", "so"))
    head, gap, tail = last["content"].partition(GAP)
    assert (gap, text.startswith(head), text.endswith(tail)) == (GAP, True, True)
    assert 0 <= len(head) - len(tail) <= 1
    assert len(body) - len(trimmed.body) >= 3000
    assert (trimmed.messages, trimmed.weight >= 3000) == (0, True)
    assert len(trimmed.body) > len(body) * 0.15  # and not much more than must


def test_the_longest_text_part_is_cut_and_images_stay():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2000}}
    parts = [{"type": "text", "text": "look"}, image, {"type": "text", "text": "word " * 200}]
    trimmed = middle_out(chat(said("user", parts)), 500.0, weigh)
    assert trimmed is not None
    one, two, three = left(trimmed.body)[0]["content"]
    assert [one, two] == parts[:2]
    assert GAP in three["text"]


def test_the_middle_of_a_prompt_is_cut():
    body = json.dumps({"model": "m", "prompt": "가나다 " * 300, "max_tokens": 5}).encode()
    trimmed = middle_out(body, 900.0, weigh)
    assert trimmed is not None
    shorter = json.loads(trimmed.body)
    assert shorter["prompt"].startswith("가나다 가나다")
    assert {**shorter, "prompt": ""} == {"model": "m", "prompt": "", "max_tokens": 5}


@pytest.mark.parametrize(
    "body",
    [
        chat(said("user", "short")),
        chat(said("system", "x" * 5000)),
        chat(said("user", None)),
        chat(said("user", [{"type": "image_url"}])),
        chat(said("user", [])),
        b'{"prompt":["' + b"x" * 5000 + b'"]}',
        b'{"prompt":[1,2,3]}',
        b'{"prompt":"\\ud800' + b"x" * 5000 + b'"}',
        b'{"messages":7}',
    ],
)
def test_nothing_is_cut_if_no_text_is_long_enough(body: bytes):
    assert middle_out(body, 1000.0, weigh) is None
