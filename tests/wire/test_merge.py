"""Which requests may share an upstream call, and the call that they share."""

import json
from typing import Any

import pytest

from gateway.wire.openai.chat import BATCH_CHAT, CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.merge import Mergeable, build, parse
from gateway.wire.openai.models import MODELS

TURNS = [{"role": "user", "content": "hi"}]
CHAT_BODY: dict[str, Any] = {"model": "m", "messages": TURNS, "max_tokens": 4}


def read(body: dict[str, Any] | bytes, endpoint: str = EMBEDDINGS) -> Mergeable | None:
    """With at most 64 tokens of answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse(text, endpoint, 64)


def mergeable(body: dict[str, Any] | bytes, endpoint: str = EMBEDDINGS) -> Mergeable:
    """That of a body that merges."""
    parsed = read(body, endpoint)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("payload", "items", "weights"),
    [
        (b'"a b"', (b'"a b"',), (1,)),
        (b'""', (b'""',), (1,)),
        (b'[ "\\u00e9" , "x\\"]" ]', (b'"\\u00e9"', b'"x\\"]"'), (1, 1)),
        (b"[ 1, 22 ]", (b"[ 1, 22 ]",), (2,)),
        (b"[[1], [2,3 ,4]]", (b"[1]", b"[2,3 ,4]"), (1, 3)),
        (b'"' + b"x" * 398 + b'"', (b'"' + b"x" * 398 + b'"',), (100,)),
        ('"' + "\u6771" * 30 + '"', ('"' + "\u6771" * 30 + '"',), (30,)),
        (b'"' + b"\\u6771" * 30 + b'"', (b'"' + b"\\u6771" * 30 + b'"',), (30,)),
    ],
)
def test_the_items_of_a_list_are_the_clients_own_bytes(payload: Any, items: Any, weights: tuple[int, ...]):
    if isinstance(payload, str):
        payload, items = payload.encode(), tuple(item.encode() for item in items)
    parsed = mergeable(b'{"model":"m","input":%b}' % payload)
    assert parsed.items == items
    assert parsed.weights == weights
    assert parsed.output == 0


@pytest.mark.parametrize(
    "payload",
    [
        *(b"[]", b"[[]]", b"{}", b"null", b"7", b"true", b"[null]", b'["a",1]', b'["a",[1]]', b'[1,"a"]'),
        *(b"[1.5]", b"[-1]", b"[1,[2]]", b"[[1],[[2]]]", b"[[1],[]]", b'[{"text":"a"}]', b"[ ]"),
    ],
)
def test_an_unreadable_payload_is_not_merged(payload: bytes):
    assert read(b'{"model":"m","input":%b}' % payload) is None
    assert read(b'{"model":"m","prompt":%b}' % payload, COMPLETIONS) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model":"m"',
        b'{"model":"m"}',
        b'{"model":"m","messages":[{}],"input":"a"}',
        b'{"model":"m","input":"a","input":"b"}',
        b'{"model":"m","input":"a","\\u0069nput":"b"}',
        b'{"model":"m","input":"a","user":"x","user":"x"}',
        b'{"model":"m","input":"a","us\\u0065r":"x"}',
        b'{"model":"m","input":"a","stream":true}',
        b'{"model":"m","input":"a","stream":"no"}',
        b'{"model":"m","input":"\\ud800"}',
        b'\xef\xbb\xbf{"model":"m","input":"a"}',
        b'{"model":"m","input":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_parsers_may_read_differently_is_not_merged(body: bytes):
    assert read(body) is None


def test_spelling_and_order_do_not_prevent_a_merge():
    one = mergeable(b'{"model":"m","input":"a","user":"u","stop":["x", {"b":1}],"stream":false}')
    other = mergeable(b' {"stream" : null, "stop" : [ "x",{ "b":1} ],\n"user":"u","input":["c","d"],"model":"n"}')
    assert one.key == other.key


def test_batch_06_whatever_differs_keeps_calls_apart():
    bodies = [
        {"input": "a"},
        {"input": [1, 2]},
        {"input": "a", "dimensions": 256},
        {"input": "a", "dimensions": 512},
        {"input": "a", "dimensions": 256.0},
        {"input": "a", "dimensions": "256"},
        {"input": "a", "dimensions": None},
        {"input": "a", "input_type": "query"},
        {"input": "a", "user": "one"},
        {"input": "a", "user": "two"},
        {"input": "a", "metadata": {"a": 1, "b": 2}},
        {"input": "a", "metadata": {"b": 2, "a": 1}},
    ]
    keys = {mergeable({"model": "m", **body}).key for body in bodies}
    assert len(keys) == len(bodies)


def test_batch_04_and_05_formats_are_never_mixed_also_unknown_ones():
    formats = [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"encoding_format": "int8"}]
    assert len({mergeable({"model": "m", "input": "a", **one}).key for one in formats}) == 4


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({}, 4),
        ({"n": 1, "best_of": None, "stream": False, "tools": None, "stream_options": None}, 4),
        ({"use_beam_search": False, "echo": False, "temperature": 0.5, "logprobs": True, "seed": 3}, 4),
        ({"max_tokens": 64}, 64),
        ({"max_tokens": None, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 3, "max_completion_tokens": 9}, 9),
        ({"response_format": {"type": "json_object"}}, 4),
    ],
)
def test_short_plain_chats_merge(more: dict[str, Any], output: int):
    assert mergeable({**CHAT_BODY, **more}, CHAT).output == output


@pytest.mark.parametrize(
    "more",
    [
        *({"stream": True}, {"n": 2}, {"n": "1"}, {"best_of": 2}, {"tools": []}, {"tools": [{}]}),
        *({"functions": [{}]}, {"tool_choice": "none"}, {"use_beam_search": True}, {"echo": True}),
        *({"stream_options": {}}, {"request_id": "x"}, {"prompt_logprobs": 1}, {"return_token_ids": True}),
        *({"max_tokens": 65}, {"max_tokens": None}, {"max_tokens": 0}, {"max_tokens": -1}),
        *({"max_tokens": 4.0}, {"max_tokens": "4"}, {"max_tokens": 10**30}),
        *({"max_completion_tokens": 65}, {"max_completion_tokens": "x"}),
        *({"messages": []}, {"messages": "hi"}, {"messages": [TURNS]}, {"messages": [1]}, {"messages": {}}),
    ],
)
def test_other_chats_are_not_merged(more: dict[str, Any]):
    assert read({**CHAT_BODY, **more}, CHAT) is None


def test_a_chat_without_an_output_limit_is_not_merged():
    assert read({"model": "m", "messages": TURNS}, CHAT) is None


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({}, 16),
        ({"max_tokens": 1}, 1),
        ({"max_completion_tokens": 20}, 20),
        ({"max_tokens": None}, None),
        ({"max_tokens": 65}, None),
        ({"n": 2}, None),
        ({"echo": True, "max_tokens": 1}, None),
        ({"prompt_embeds": "x"}, None),
    ],
)
def test_completions_have_an_output_limit_by_default(more: dict[str, Any], output: int | None):
    parsed = read({"model": "m", "prompt": "a", **more}, COMPLETIONS)
    assert (parsed.output if parsed is not None else None) == output


def test_no_other_endpoint_merges():
    assert read(CHAT_BODY, MODELS) is None


def test_one_call_carries_all_inputs_and_what_they_share():
    one = mergeable(b'{"model":"m","input":"\\u00e9 ","stream":false,"x":{"b" : 1.0, "a":1e2},"dimensions":8}')
    other = mergeable(b'{"dimensions":8,"input":["b", "c"],"model":"m","x":{"b":1.0,"a":1e2}}')
    assert one.key == other.key
    assert build(EMBEDDINGS, one, b'"up"', [*one.items, *other.items]) == (
        EMBEDDINGS,
        b'{"model":"up","dimensions":8,"x":{"b":1.0,"a":1e2},"input":["\\u00e9 ","b","c"]}',
    )


def test_one_call_needs_nothing_but_the_inputs():
    one = mergeable(b'{"input":[1, 2],"model":"m"}')
    assert build(EMBEDDINGS, one, b'"up"', one.items) == (EMBEDDINGS, b'{"model":"up","input":[[1, 2]]}')


def test_prompts_share_a_list():
    one = mergeable(b'{"model":"m","prompt":"a","max_tokens":1}', COMPLETIONS)
    path, body = build(COMPLETIONS, one, b'"up"', [b'"a"', b'"b"'])
    assert (path, body) == (COMPLETIONS, b'{"model":"up","max_tokens":1,"prompt":["a","b"]}')


def test_batch_15_conversations_stay_whole_and_apart():
    one = mergeable(b'{"model":"m","messages":[{"role":"user", "content":"a"}],"max_tokens":4}', CHAT)
    two = mergeable(b'{"max_tokens":4,"messages":[{"role":"system","content":"s"},{"content":"b"}]}', CHAT)
    assert one.key == two.key
    assert build(CHAT, one, b'"up"', [*one.items, *two.items]) == (
        BATCH_CHAT,
        b'{"model":"up","max_tokens":4,"messages":[[{"role":"user", "content":"a"}],'
        b'[{"role":"system","content":"s"},{"content":"b"}]]}',
    )


def test_batch_16_numbers_and_flags_keep_their_type():
    one = mergeable(b'{"model":"m","prompt":"a","max_tokens":1,"logprobs":5,"echo":false,"n":1}', COMPLETIONS)
    body = build(COMPLETIONS, one, b'"up"', one.items)[1]
    assert body == b'{"model":"up","echo":false,"logprobs":5,"max_tokens":1,"n":1,"prompt":["a"]}'
    asked = b'{"model":"m","prompt":"The capital of","max_tokens":1,"echo":true,"logprobs":5,"n":2}'
    assert read(asked, COMPLETIONS) is None
