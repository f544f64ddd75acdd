"""Peeks into requests and answers, and errors in the dialects of upstreams."""

import json

import pytest
from kit.heads import Head, head_of

from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire.openai import peek as openai


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        (b'{"model":"m"}', "m", False),
        (b'{"model":"m","stream":true}', "m", True),
        (b'{"stream":null,"model":"org/\\u00e9"}', "org/é", False),
        (b' \n{"messages":[{"model":"inner","stream":true}],"model":"m"}\n', "m", False),
        (b'{"\\u006dodel":"m"}', "m", False),
    ],
)
def test_a_request_is_peeked(body: bytes, model: str, stream: bool):
    assert head_of(body) == Head(model, stream)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"m"',
        b"null",
        b'{"model":"m"',
        b'{"model":"m"} x',
        b"{'model':'m'}",
        b"{" * 5000,
        b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"\xff"}',
        b"\x1f\x8b\x08",
        b'\xef\xbb\xbf{"model":"m"}',
        b'\xff\xfe{"model":"m"}',
        b'\xfe\xff{"model":"m"}',
    ],
)
def test_what_is_no_json_object_is_invalid_json(body: bytes):
    seen = head_of(body)
    assert isinstance(seen, Rejection)
    assert (seen.kind, seen.param) == (INVALID_JSON, None)


def test_a_byte_order_mark_is_called_by_its_name():
    seen = head_of(b'\xef\xbb\xbf{"model":"m"}')
    assert isinstance(seen, Rejection)
    assert "byte-order mark" in seen.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":"first","model":"last"}', "model"),
        (b"{}", "model"),
        (b'{"model":""}', "model"),
        (b'{"model":null}', "model"),
        (b'{"model":5}', "model"),
        (b'{"model":["m"]}', "model"),
        (b'{"model":"m","stream":"true"}', "stream"),
        (b'{"model":"m","stream":1}', "stream"),
        (b'{"model":"m","stream":{}}', "stream"),
    ],
)
def test_a_wrong_value_is_named(body: bytes, param: str):
    seen = head_of(body)
    assert isinstance(seen, Rejection)
    assert (seen.kind, seen.param) == (INVALID_VALUE, param)
    assert f"`{param}`" in seen.message


def test_an_answer_is_peeked():
    answer = openai.peek_answer(
        b'{"model":"m","object":"chat.completion","choices":[{"message":{},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
    )
    assert answer is not None
    assert answer.model == "m"
    assert [choice.finish_reason for choice in answer.choices or ()] == ["stop"]
    assert bytes(answer.usage) == b'{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}'
    assert not openai.is_error(answer)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"<html>", b'{"a":', b"[" * 100_000, b'"{}"', b"12"])
def test_what_is_no_object_is_no_answer(body: bytes):
    assert openai.peek_answer(body) is None


@pytest.mark.parametrize(
    "odd",
    [
        '"usage":[]',
        '"usage":"none"',
        '"usage":{"prompt_tokens":"5"}',
        '"usage":{"prompt_tokens_details":[]}',
        '"choices":{}',
        '"choices":[null]',
        '"choices":"x"',
        '"choices":[[]]',
    ],
)
def test_odd_shapes_do_not_hide_the_model_or_an_error(odd: str):
    answer = openai.peek_answer(f'{{"model":"m",{odd}}}'.encode())
    assert answer is not None
    assert answer.model == "m"
    assert not openai.is_error(answer)
    failed = openai.peek_answer(f'{{{odd},"error":{{"message":"x"}}}}'.encode())
    assert failed is not None
    assert openai.is_error(failed)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"message":"x"}}', True),
        (b'{"error":"x"}', True),
        (b'{"object":"error","message":"x"}', True),
        (b'{"error":null,"choices":[]}', False),
        (b'{"error": null }', False),
        (b'{"object":"list","data":[]}', False),
        (b"{}", False),
    ],
)
def test_errors_are_distinguished_from_answers(body: bytes, error: bool):
    answer = openai.peek_answer(body)
    assert answer is not None
    assert openai.is_error(answer) == error


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(
            b'{"error":{"message":"long","type":"invalid_request_error","param":"messages","code":"ctx"}}',
            openai.UpstreamError("long", "invalid_request_error", "messages", "ctx"),
            id="openai",
        ),
        pytest.param(b'{"error":"model not found"}', openai.UpstreamError("model not found"), id="text"),
        pytest.param(
            b'{"object":"error","message":"bad","type":"BadRequestError","param":"None","code":400}',
            openai.UpstreamError("bad", "BadRequestError", None, "400", 400),
            id="vllm",
        ),
        pytest.param(b'{"detail":"Not Found"}', openai.UpstreamError("Not Found"), id="fastapi"),
        pytest.param(
            b'{"detail":[{"loc":["body","n"],"msg":"bad"}]}',
            openai.UpstreamError('[{"loc":["body","n"],"msg":"bad"}]'),
            id="fastapi-list",
        ),
        pytest.param(
            b'{"error":{"message":"full","type":"","param":null,"code":503}}',
            openai.UpstreamError("full", None, None, "503", 503),
            id="sglang",
        ),
        pytest.param(
            b'[{"error":{"code":404,"message":"no such model","status":"NOT_FOUND"}}]',
            openai.UpstreamError(
                "no such model", code="404", status=404, reasons=("NOT_FOUND",), further={"status": "NOT_FOUND"}
            ),
            id="gemini",
        ),
        pytest.param(
            b'{"error":{"message":"odd","code":42}}',
            openai.UpstreamError("odd", code="42"),
            id="code-that-is-no-status",
        ),
    ],
)
def test_an_error_is_read_in_every_dialect(body: bytes, told: openai.UpstreamError):
    assert openai.read_error(body) == told


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><h1>502 Bad Gateway</h1></html>",
        b"upstream connect error",
        b"[]",
        b"[[]]",
        b'[{"error":{"message":"one"}},{"error":{"message":"two"}}]',
        b'"text"',
        b"{}",
        b'{"error":{}}',
        b'{"error":5}',
        b'{"error":{"message":null}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_an_unreadable_error_is_none(body: bytes):
    assert openai.read_error(body) is None


@pytest.mark.parametrize(
    ("code", "status"), [(399, None), (400, 400), (599, 599), (600, None), (True, None), ("503", None)]
)
def test_only_a_code_in_the_range_of_error_statuses_is_a_status(code: object, status: int | None):
    told = openai.read_error(json.dumps({"error": {"message": "x", "code": code}}).encode())
    assert told is not None
    assert told.status == status


def test_an_error_body_has_all_four_keys():
    body = openai.render_error('a "b"\n', "server_error", None, "internal_error")
    expected = {"message": 'a "b"\n', "type": "server_error", "param": None, "code": "internal_error"}
    assert json.loads(body) == {"error": expected}
