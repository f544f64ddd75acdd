"""Finding the prompt in a request's body."""

import json

import pytest

from gateway.routing.complexity.prompt import PeekedPrompt, peek
from gateway.wire.request_body import read_fields


def peek_body(body: bytes) -> PeekedPrompt | None:
    return peek(read_fields(body))


def said(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


def chat(*messages: dict[str, object], **fields: object) -> bytes:
    return json.dumps({"model": "auto", "messages": messages, **fields}, ensure_ascii=False).encode()


def test_the_last_user_turn_decides():
    body = chat(said("system", "s" * 100), said("user", "one"), said("assistant", "two"), said("user", "셋"))
    seen = peek_body(body)
    assert seen is not None
    assert (seen.prompt.text, seen.prompt.turns) == ("셋", 2)
    assert seen.prompt.context == len('"one"') + len('"two"') + 102


def test_text_parts_are_read_and_other_parts_ignored():
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"text": "here"},
    ]
    seen = peek_body(chat(said("user", parts)))
    assert seen is not None
    assert seen.prompt.text == "look\nhere"


def test_tools_caps_and_schema_are_read():
    form = {"type": "json_schema", "json_schema": {}}
    seen = peek_body(
        chat(said("user", "x"), tools=[{}, {}], max_tokens=5, max_completion_tokens=9, response_format=form)
    )
    assert seen is not None
    assert (seen.prompt.tools, seen.prompt.max_output, seen.prompt.schema) == (2, 9, True)


@pytest.mark.parametrize("field", [b'"tools": null', b'"user": "\\ud83d"', b'"user": "\\udE00 \\ud83d\\ude00"'])
def test_malformed_fields_that_upstreams_accept_hide_no_prompt(field):
    easy = peek_body(chat(said("user", "x")))
    seen = peek_body(chat(said("user", "x"))[:-1] + b", " + field + b"}")
    assert easy is not None
    assert seen == easy


def test_a_lone_surrogate_changes_nothing_else():
    seen = peek_body(b'{"messages": [{"role": "user", "content": "a \\ud83d\\ude00 b \\ud83d"}]}')
    assert seen is not None
    assert seen.prompt.text == "a \U0001f600 b \ufffd"


@pytest.mark.parametrize("prompt", ["count", ["count"]])
def test_the_prompt_of_a_completions_call_is_read(prompt):
    seen = peek_body(json.dumps({"prompt": prompt, "max_tokens": 3}).encode())
    assert seen is not None
    assert (seen.prompt.text, seen.prompt.max_output) == ("count", 3)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"messages": 1}',
        b'{"messages": [1]}',
        b'{"prompt": [1, 2]}',
        b'{"prompt": ["a", "b"]}',
        b'{"messages": [{"role": "system", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": 1}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
    ],
)
def test_other_shapes_have_no_prompt(body):
    assert peek_body(body) is None


@pytest.mark.parametrize("content", [None, 7, {}, [1, {"text": 2}]])
def test_a_turn_without_text_is_an_empty_prompt(content):
    seen = peek_body(chat(said("user", content)))
    assert seen is not None
    assert seen.prompt.text == ""


def test_the_turns_of_a_conversation_share_their_opening():
    system, first = said("system", "be brief"), said("user", "hello" * 2000)
    opening = {
        peek_body(chat(system, first)),
        peek_body(chat(system, first, said("assistant", "a"), said("user", "b"))),
    }
    assert len({seen.opening for seen in opening if seen}) == 1
    others = [chat(said("system", "be long"), first), chat(system, said("user", "hello" * 2001)), chat(first)]
    assert len({seen.opening for body in [chat(system, first), *others] if (seen := peek_body(body))}) == 4
