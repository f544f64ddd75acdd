"""Bounds of what a request may ask for: refused one step beyond them, by name, before any upstream."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, COMPLETIONS, E0, EMBEDDINGS, ask
from kit.heads import Head, head_of

from gateway.auth import engine_fields as steering
from gateway.config.load import load
from gateway.config.model import EngineField
from gateway.core.caller import Caller
from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire.json import limits as json_limits
from gateway.wire.openai.request_limits import ENGINE_FIELDS, MOST_CHOICES, MOST_ENDS, MOST_LOGPROBS

BEYOND = {
    "n": [0, -1, MOST_CHOICES + 1, 10**6, 1e9, str(MOST_CHOICES + 1), "1" + "0" * 60, 128.5],
    "best_of": [-1, MOST_CHOICES + 1, " 1000 "],
    "logprobs": [-1, MOST_LOGPROBS + 1],
    "top_logprobs": [-1, MOST_LOGPROBS + 1],
    "prompt_logprobs": [-1, MOST_LOGPROBS + 1],
    "stop": [["x"] * (MOST_ENDS + 1)],
    "stop_token_ids": [[1] * (MOST_ENDS + 1)],
    "bad_words": [["x"] * (MOST_ENDS + 1)],
}
WITHIN = {
    "n": [None, 1, MOST_CHOICES, 1.0, "1", [], {}],
    "best_of": [None, 0, MOST_CHOICES],
    "logprobs": [None, True, False, 0, MOST_LOGPROBS],
    "top_logprobs": [None, 0, MOST_LOGPROBS],
    "prompt_logprobs": [None, 0, MOST_LOGPROBS],
    "stop": [None, "x", ["x"] * MOST_ENDS],
    "stop_token_ids": [None, [1] * MOST_ENDS],
    "bad_words": [None, ["x"] * MOST_ENDS],
    "temperature": [None, 0, 0.7, -1, 1e308, "0.7", "1_0", 5e-324],
    "max_tokens": [None, -1, 0, 2**31, 2**63 - 1],
    "seed": [None, -(2**63), 10**30, 7],
    "logit_bias": [None, {"5": -100, "6": 1.5}, {}],
}
NO_NUMBERS = [
    b"1e999",
    b"-1e999",
    b"1E+400",
    b"9" * 5000,
    b'"NaN"',
    b'"nan"',
    b'"-Infinity"',
    b'"inf"',
    b'"1e999"',
    b'"' + b"9" * 400 + b'"',
    b'"\\u004eaN"',
    b"[1e999]",
]
NUMBER_FIELDS = [
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "frequency_penalty",
    "min_p",
    "n",
    "dimensions",
]


def body_with(field: str, value: Any) -> bytes:
    return json.dumps({**C0, field: value}).encode()


def refused(body: bytes, kind: object = INVALID_VALUE) -> Rejection:
    seen = head_of(body)
    assert isinstance(seen, Rejection)
    assert seen.kind is kind
    return seen


@pytest.mark.parametrize("field", BEYOND)
def test_a_field_beyond_its_bound_is_refused_by_name_and_bound(field: str) -> None:
    for value in BEYOND[field]:
        refusal = refused(body_with(field, value))
        assert refusal.param == field
        assert f"`{field}`" in refusal.message
        assert any(str(bound) in refusal.message for bound in (MOST_CHOICES, MOST_LOGPROBS, MOST_ENDS))


@pytest.mark.parametrize("field", WITHIN)
def test_a_field_within_its_bound_is_the_upstreams_business(field: str) -> None:
    for value in WITHIN[field]:
        assert head_of(body_with(field, value)) == Head("m-small", False)


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("field", NUMBER_FIELDS)
def test_a_number_that_no_engine_can_compute_with_is_refused_by_name(field: str, text: bytes) -> None:
    refusal = refused(b'{"model":"m","%s":%s}' % (field.encode(), text))
    assert refusal.param == field


@pytest.mark.parametrize("text", [b"9223372036854775808", b"-9223372036854775809", b"1" + b"0" * 400])
@pytest.mark.parametrize("field", ["temperature", "repetition_penalty"])
def test_a_whole_number_that_is_no_float_is_refused_where_a_float_belongs(field: str, text: bytes) -> None:
    assert refused(b'{"model":"m","%s":%s}' % (field.encode(), text)).param == field


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b"nan", b"0x10", b"01", b"1.", b"+1"])
@pytest.mark.parametrize("field", ["temperature", "unknown", "top_k"])
def test_what_is_no_json_number_is_no_json(field: str, text: bytes) -> None:
    refused(b'{"model":"m","%s":%s}' % (field.encode(), text), INVALID_JSON)


def test_a_bias_that_is_infinite_is_found_within_its_object() -> None:
    assert refused(b'{"model":"m","logit_bias":{"5":1e999}}').param == "logit_bias"


@pytest.mark.parametrize("field", ENGINE_FIELDS)
def test_a_field_that_steers_the_engine_is_seen_in_any_spelling_and_only_at_the_top(field: str) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in field)
    for name in (field, escaped, field[0] + escaped[6:]):
        assert head_of(b'{"model":"m","%s":1}' % name.encode()) == Head("m", False, (field,))
    elsewhere = {"model": "m", "messages": [{"content": f'"{field}": 1', field: 1}], "metadata": {field: 1}}
    for body in ({**elsewhere, "user": field}, {**elsewhere, field: None}, {**elsewhere, f"x_{field}": 1}):
        assert head_of(json.dumps(body).encode()) == Head("m", False)


def test_the_config_knows_the_same_fields() -> None:
    assert get_args(EngineField) == ("*", *ENGINE_FIELDS)


def test_a_key_may_send_what_it_is_allowed_and_nothing_else() -> None:
    some = Caller("a", None, engine_fields=("priority", "cache_salt"))
    assert steering.reject(("cache_salt", "priority"), some) is None
    assert steering.reject(ENGINE_FIELDS, Caller("a", None, engine_fields=("*",))) is None
    for caller in (some, Caller("b", None)):
        refusal = steering.reject(("request_id",), caller)
        assert refusal is not None
        assert (refusal.kind, refusal.param) == (INVALID_VALUE, "request_id")
        assert "engine_fields: [request_id]" in refusal.message


def nested(depth: int) -> bytes:
    """A body whose innermost value stands in so many lists and objects."""
    lists = depth // 2
    objects = depth - 1 - lists
    return b'{"model":"m","x":' + b"[" * lists + b'{"a":' * objects + b"1" + b"}" * objects + b"]" * lists + b"}"


def padded(body: bytes) -> bytes:
    """The same, so large that it is looked at in another way."""
    return b'{"pad":"' + b"x" * 100_000 + b'",' + body[1:]


@pytest.mark.parametrize("depth", [2, 10, json_limits.MAX_DEPTH])
def test_a_body_may_be_nested(depth: int) -> None:
    for body in (nested(depth), padded(nested(depth))):
        assert head_of(body) == Head("m", False)


@pytest.mark.parametrize("depth", [json_limits.MAX_DEPTH + 1, 200, 900, 100_000])
def test_a_body_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    for body in (nested(depth), padded(nested(depth))):
        assert "nested too deeply" in refused(body, INVALID_JSON).message


@pytest.mark.parametrize("wide", [b"[]", b"{}", b'"[[["', b'"\\"{{{"', b'{"a":[1,{"b":"]"}]}'])
def test_width_is_no_depth(wide: bytes) -> None:
    body = b'{"model":"m","x":[' + b",".join([wide] * 5000) + b"]}"
    assert head_of(body) == Head("m", False)
    assert head_of(padded(body)) == Head("m", False)


def test_keys_lists_and_objects_are_counted() -> None:
    most = json_limits.MAX_KEYS
    keys = b'{"model":"m",' + b",".join([b'"":0'] * (most - 1)) + b"}"
    assert head_of(keys) == Head("m", False)
    assert f"{most} keys" in refused(keys[:-1] + b',"":0}', INVALID_JSON).message
    far = b",".join([b'"":"' + b"y" * 1000 + b'"'] * 200)  # few in each part of the text
    apart = keys.replace(b'"":0,' * 200, far + b",", 1)
    assert head_of(apart) == Head("m", False)
    assert f"{most} keys" in refused(apart[:-1] + b',"":0}', INVALID_JSON).message
    lists = b'{"model":"m","x":[' + b",".join([b"[]"] * (most - 2)) + b"]}"
    assert head_of(lists) == Head("m", False)
    assert f"{most} lists" in refused(lists[:-2] + b",[]]}", INVALID_JSON).message
    colons = b'{"model":"m","x":"' + b":" * (2 * most) + b'"}'
    assert head_of(colons) == Head("m", False)


@pytest.mark.parametrize("field", ["n", "best_of", "top_logprobs"])
async def test_the_client_is_told_and_the_upstream_is_not_asked(
    gateway: InProcessGateway, upstream: FaultUpstream, field: str
) -> None:
    answer = await ask(gateway.port, {**C0, field: 10**6})
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", field)
    assert upstream.calls == []
    assert (await ask(gateway.port, {**C0, field: 2})).status == 200


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {**C0, "prompt": "x"}), (EMBEDDINGS, E0)])
async def test_a_field_that_steers_the_engine_needs_a_key_that_may(
    upstream: FaultUpstream, start_gateway: StartGateway, path: str, body: dict[str, Any]
) -> None:
    config = settings(upstream.url, upstream={"kind": "vllm"}, keys=True)
    config["keys"][0]["engine_fields"] = ["priority", "cache_salt"]
    config["keys"][1]["models"] = ["*"]
    gateway = await start_gateway(config)
    other = ("authorization", f"Bearer {OTHER_KEY}")
    steered = {**body, "cache_salt": "mine", "priority": -5}
    assert KEY in AUTH[1]
    assert (await ask(gateway.port, steered, [AUTH], path)).status == 200
    assert upstream.calls[0].json()["priority"] == -5
    for given, asked in ((other, steered), (AUTH, {**steered, "request_id": "x"})):
        answer = await ask(gateway.port, asked, [given], path)
        assert answer.status == 400
        assert answer.error["param"] in ("cache_salt", "request_id")
    assert len(upstream.calls) == 1


def test_a_field_that_steers_nothing_is_a_mistake_in_the_config(tmp_path: Path) -> None:
    config = settings("http://127.0.0.1:9/v1", keys=True)
    config["keys"][0]["engine_fields"] = ["prioritty", "*"]
    file = tmp_path / "sluice.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    (problem,) = load(file, {}).problems
    assert problem.path == "keys[0].engine_fields[0]"
    assert "priority" in problem.message.rpartition("found")[2]


async def test_without_keys_nobody_steers_the_engine(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"kind": "vllm"}))
    answer = await ask(gateway.port, {**C0, "prompt_embeds": "AAAA"})
    assert (answer.status, answer.error["param"]) == (400, "prompt_embeds")
    assert upstream.calls == []


async def test_sampling_and_unknown_fields_pass(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    sampling = {
        "top_k": 5,
        "guided_json": {"type": "object"},
        "structured_outputs": {"regex": "a+"},
        "chat_template_kwargs": {"enable_thinking": False},
        "ignore_eos": True,
        "min_tokens": 3,
        "metadata": {"priority": "high"},
        "service_tier": "priority",
        "api_base": "http://elsewhere.test/v1",
        "base_url": "http://elsewhere.test/v1",
        "never_heard_of": [1, {"x": None}],
    }
    assert (await ask(gateway.port, {**C0, **sampling})).status == 200
    sent = upstream.calls[0].json()
    assert {name: sent[name] for name in sampling} == sampling
