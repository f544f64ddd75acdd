"""The cache's keys: every field of OpenAI's and vLLM's requests counts, their spelling does not."""

import copy
import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from gateway.cache.key import IRRELEVANT, RequestDigests, digest_of, item_keys, key, scope

CHAT = set(get_type_hints(chat_create_params.CompletionCreateParamsBase))
COMPLETIONS = set(get_type_hints(completion_create_params.CompletionCreateParamsBase))
EMBEDDINGS = set(get_type_hints(embedding_create_params.EmbeddingCreateParams))
# What vLLM 0.2x reads of chat, completions and embeddings requests beyond OpenAI's.
VLLM = {
    "add_generation_prompt",
    "add_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "cache_salt",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "early_stopping",
    "ec_transfer_params",
    "echo",
    "embed_dtype",
    "embedding_types",
    "encoding_format",
    "endianness",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "images",
    "include_reasoning",
    "include_stop_str_in_output",
    "input_type",
    "inputs",
    "kv_transfer_params",
    "length_penalty",
    "logprob_token_ids",
    "media_io_kwargs",
    "messages",
    "min_p",
    "min_tokens",
    "mm_payload",
    "mm_processor_kwargs",
    "output_dimension",
    "padding",
    "priority",
    "prompt_embeds",
    "prompt_logprobs",
    "repetition_detection",
    "repetition_penalty",
    "request_id",
    "return_mm_kwargs",
    "return_prompt_text",
    "return_token_ids",
    "return_token_offsets",
    "return_tokens_as_token_ids",
    "routed_experts_prompt_start",
    "session_id",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "stream_interval",
    "structured_outputs",
    "texts",
    "thinking_token_budget",
    "top_k",
    "truncate",
    "truncate_prompt_tokens",
    "truncation_side",
    "use_activation",
    "use_beam_search",
    "vllm_xargs",
    "watermarking",
}
FIELDS = sorted(CHAT | COMPLETIONS | EMBEDDINGS | VLLM | {"x_foo", "stream"})
VALUES: list[Any] = [None, True, False, 0, 1, 2, 0.5, -1, "", "0", "a", "b", [], [0], [1], ["a"], ["a", "b"]]
VALUES += [["b", "a"], {}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"b": [1, {"c": None}]}}, {"a": None}]


def digest(body: Any) -> bytes:
    """Of a body, however it is written."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    request_digest = digest_of(text)
    assert request_digest is not None, text
    return request_digest.digest


def test_no_two_requests_that_differ_in_a_field_have_the_same_digest() -> None:
    base = {"messages": [{"role": "user", "content": "ping"}], "temperature": 0}
    seen = {digest(base): "base"}
    for field in FIELDS:
        for value in VALUES:
            if field in base and base[field] == value and type(value) is type(base[field]):
                continue
            found = digest({**base, field: value})
            if field in IRRELEVANT:
                assert found == digest(base), field
            else:
                assert seen.setdefault(found, f"{field}={value!r}") == f"{field}={value!r}"
    assert len(seen) == len([field for field in FIELDS if field not in IRRELEVANT]) * len(VALUES)


RICH: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "strict": True,
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}},
    },
    "logit_bias": {"50256": -100},
    "stop": ["\n", "END"],
    "chat_template_kwargs": {"enable_thinking": False},
    "structured_outputs": {"regex": "[a-z]+"},
    "vllm_xargs": {"a": 1},
    "temperature": 0,
    "top_p": 0.1,
    "seed": 7,
}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield (*at, name)
        yield from places(inner, (*at, name))


def changed(body: Any, at: tuple[Any, ...], how: str) -> Any:
    """A copy that differs in one place."""
    out = copy.deepcopy(body)
    holder = out
    for step in at[:-1]:
        holder = holder[step]
    last = at[-1]
    if how == "gone":
        del holder[last]
    elif how == "more":
        holder[last] = [holder[last]]
    elif isinstance(holder[last], str):
        holder[last] += "!"
    elif isinstance(holder[last], bool) or holder[last] is None:
        holder[last] = not holder[last]
    elif isinstance(holder[last], int | float):
        holder[last] += 1
    elif isinstance(holder[last], list):
        holder[last].append("new")
    else:
        holder[last]["new"] = 1
    return out


def test_every_nested_value_counts() -> None:
    seen = {digest(RICH)}
    bodies = [RICH]
    for at in places(RICH):
        for how in ("gone", "more", "other"):
            body = changed(RICH, at, how)
            if body not in bodies:
                bodies.append(body)
                seen.add(digest(body))
    assert len(seen) == len(bodies) > 150


def test_list_order_counts() -> None:
    body = {**RICH, "messages": list(reversed(RICH["messages"]))}
    assert digest(body) != digest(RICH)
    assert digest({**RICH, "stop": ["END", "\n"]}) != digest(RICH)


def shuffled(value: Any) -> Any:
    """The same with the members of every object the other way round, and whole numbers as fractions."""
    if isinstance(value, dict):
        return {name: shuffled(one) for name, one in reversed(value.items())}
    if isinstance(value, list):
        return [shuffled(one) for one in value]
    return float(value) if type(value) is int else value


def test_how_a_body_is_written_does_not_count() -> None:
    same = [
        json.dumps(shuffled(RICH), indent=3).encode(),
        json.dumps({**RICH, "user": "u", "metadata": {"a": "b"}}, separators=(",", ":")).encode(),
        json.dumps({**RICH, "messages": RICH["messages"]}).replace("What", "\\u0057hat").encode(),
    ]
    assert {digest(one) for one in same} == {digest(RICH)}


@pytest.mark.parametrize(
    "body",
    [
        b'{"temperature":0,"temperature":1}',
        b'{"temperature" :0,"temperature":1}',
        b'{"temperature":1,"temperatur\\u0065":0}',
        b'{"user":"a","user":"a"}',
        b'{"x":[{"a":1,"a":1}]}',
        b'{"metadata":{"a":1,"a":2}}',
        b'{"x":"\\u0022","y":1,"y":2}',
        b'{"x":1e400}',
        b'{"x":"\\ud800"}',
        b'{"x":',
    ],
)
def test_an_ambiguous_body_has_no_digest(body: bytes) -> None:
    assert digest_of(body) is None


@pytest.mark.parametrize(
    ("value", "exact"), [("0", True), ("0.0", True), ("-0.0", True), ("0.1", False), ("false", False)]
)
def test_exact_means_that_the_client_set_temperature_to_zero(value: str, exact: bool) -> None:
    request_digest = digest_of(b'{"temperature":%b}' % value.encode())
    assert request_digest is not None
    assert request_digest.exact is exact
    assert digest_of(b"{}") is not None
    assert not digest_of(b"{}").exact  # type: ignore[union-attr]


def test_stream_forms_differ_and_share_their_key() -> None:
    bodies = [
        b'{"a":1}',
        b'{"a":1,"stream":false}',
        b'{"a":1,"stream":true}',
        b'{"a":1,"stream":true,"stream_options":{"include_usage":true}}',
        b'{"a":1,"stream":true,"stream_options":{"include_usage":false}}',
    ]
    digests = [digest_of(body) for body in bodies]
    assert len({one.digest for one in digests if one is not None}) == 1
    assert len({one.form for one in digests if one is not None}) == 4
    assert [one.usage for one in digests if one is not None] == [False, False, False, True, False]


def test_scopes_share_nothing() -> None:
    scopes = [
        scope("a", "/v1/x", "m", b"s"),
        scope(None, "/v1/x", "m", b"s"),
        scope("", "/v1/x", "m", b"s"),
        scope("b", "/v1/x", "m", b"s"),
        scope("a", "/v1/y", "m", b"s"),
        scope("a", "/v1/x", "n", b"s"),
        scope("a", "/v1/x", "m", b"t"),
        scope("a", "/v1/x", "m", b"s", ["h"]),
        scope("a", "/v1/x", "m", b"s", ["", "h"]),
        scope("a", "/v1/xm", "", b"s"),
    ]
    assert len({key(one, b"digest") for one in scopes}) == len(scopes)


def test_item_keys_depend_on_the_item_and_on_all_relevant_members() -> None:
    one = scope("a", "/v1/embeddings", "m", b"s")
    keys = item_keys(one, b'"dimensions":2', [b'"a"', b'"\\u0061"', b"[1]", b"[1.0]", b'"1"', b'"b"'])
    assert keys is not None
    assert (keys[0], keys[2]) == (keys[1], keys[3])
    assert len(set(keys)) == 4
    assert item_keys(one, b'"user":"u","dimensions":2.0', [b'"a"']) == keys[:1]
    for other in (b"", b'"dimensions":3', b'"dimensions":2,"encoding_format":"base64"'):
        assert item_keys(one, other, [b'"a"']) != keys[:1]
    assert item_keys(one, b'"dimensions":2,"dimensions":3', [b'"a"']) is None


def test_a_repeated_body_is_digested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[bytes] = []

    def counted(body: bytes, fields: object = None) -> Any:
        digested.append(body)
        return digest_of(body)

    monkeypatch.setattr("gateway.cache.key.digest_of", counted)
    digests = RequestDigests(max_entries=2)
    for body in (b'{"a":1}', b'{"a":2}', b'{"a":1}', b'{"a":3}', b'{"a":1}', b'{"a":2}', b"{", b"{"):
        assert digests.of(body) == digest_of(body)
    assert digested == [b'{"a":1}', b'{"a":2}', b'{"a":3}', b'{"a":2}', b"{"]
