"""A request's body reaches the upstream byte for byte but for the model."""

import gzip
import json
from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient
from doubles.script import LAST_CHUNK, compact, frame, full
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask


def upstream_form(body: bytes) -> bytes:
    """The same body with the upstream's model name."""
    return body.replace(b'"m-small"', b'"up-small"')


UNKNOWN: dict[str, Any] = {
    **C0,
    "chat_template_kwargs": {"enable_thinking": False},
    "guided_json": {"type": "object", "properties": {"model": {"type": "string"}}},
    "top_k": 20,
    "min_p": 0.1,
    "extra_body": {"google": {"x": 1}},
    "x_foo": [1, {"b": None}],
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "messages": [{"role": "user", "content": "ping", "x_message": {"model": "inner"}}],
    "tools": [{"type": "function", "x_tool": 1, "function": {"name": "f", "strict": True}}],
}
ODD_BYTES = (
    b'{ "temperature":1.0e-0 ,"n":1,\t"seed":123456789012345678901234567890,"x":0.1000,\r\n '
    b'"\\u006d":"\\ud83d\\ude42",\n'
    b'"model" : "m-small" , "messages":[{"content":"\\"model\\": \\"m-small\\\\","role":"user"}] }\n'
)


@pytest.mark.parametrize("body", [compact(UNKNOWN), json.dumps(UNKNOWN, indent=2).encode(), ODD_BYTES])
async def test_compat_01_unknown_fields_and_every_byte_arrive(
    gateway: InProcessGateway, upstream: FaultUpstream, body: bytes
) -> None:
    assert (await ask(gateway.port, body)).status == 200
    sent = upstream.calls[0].body
    at = body.index(b'"m-small"')
    assert sent == body[:at] + b'"up-small"' + body[at + len(b'"m-small"') :]


async def test_compat_01_without_an_alias_the_bytes_are_identical(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    models = {"m-small": {"candidates": [{"upstream": "local"}]}}
    gateway = await start_gateway(settings(upstream.url, models=models))
    assert (await ask(gateway.port, ODD_BYTES)).status == 200
    assert upstream.calls[0].body == ODD_BYTES


async def test_compat_01_a_model_name_spelled_with_escapes(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    body = b'{"\\u006dodel":"m\\u002dsmall","messages":[{"content":"{\\"model\\":1}"}]}'
    assert (await ask(gateway.port, body)).status == 200
    assert upstream.calls[0].body == body.replace(b'"m\\u002dsmall"', b'"up-small"')


async def test_compat_02_nothing_of_the_gateway_reaches_a_strict_upstream(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    own = [("x-sluice-priority", "batch"), ("x-sluice-cache", "off"), ("x-stainless-lang", "python")]
    own += [
        ("openai-organization", "o"),
        ("openai-project", "p"),
        ("openai-beta", "b"),
        ("user-agent", "mine"),
    ]
    for body in (C0, S0):
        assert (await ask(gateway.port, body, own)).status == 200
    for one in upstream.calls:
        assert set(one.json()) == {*one.json()} & {"model", "messages", "stream"}
        names = {name for name, _ in one.headers}
        assert names == {
            "host",
            "content-type",
            "content-length",
            "accept",
            "accept-encoding",
            "user-agent",
            "x-request-id",
        }
        assert "mine" not in one.header("user-agent")


SHAPES = [
    [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "x"}],
    [{"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "x"}]}],
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}],
    [{"role": "user", "name": "n", "content": [{"type": "input_audio", "input_audio": {"data": "AA=="}}]}],
    [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}],
    [{"role": "assistant", "content": "Once", "prefix": True}],
    [],
    "no list at all",
    None,
]


@pytest.mark.parametrize("messages", SHAPES)
async def test_compat_19_messages_are_the_upstreams_business(
    gateway: InProcessGateway, upstream: FaultUpstream, messages: Any
) -> None:
    body = compact({"model": "m-small", "messages": messages})
    assert (await ask(gateway.port, body)).status == 200
    assert upstream.calls[0].body == upstream_form(body)


def image(size: int) -> bytes:
    """A chat body of about `size` bytes with an image in it."""
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}},
    ]
    return compact({"model": "m-small", "messages": [{"role": "user", "content": parts}]})


@pytest.mark.parametrize("size", [2**20 + 1, 20 * 10**6])
async def test_compat_07_large_bodies_pass(gateway: InProcessGateway, upstream: FaultUpstream, size: int) -> None:
    body = image(size)
    assert (await ask(gateway.port, body)).status == 200
    assert upstream.calls[0].body == upstream_form(body)


async def test_compat_07_a_chunked_body_passes(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    body = image(300_000)
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 70_000):
            await client.send(frame(body[at : at + 70_000]))
        await client.send(LAST_CHUNK)
        assert (await client.response()).status == 200
    assert upstream.calls[0].body == upstream_form(body)


async def test_compat_07_too_large_is_413_before_it_is_sent(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n{" % (33 * 2**20)
        )
        answer = await client.response()
    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"
    assert answer.header("x-should-retry") == "false"
    assert upstream.calls == []


async def test_compat_07_too_large_without_a_length_is_413(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"max_body": "64KiB"}))
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.send(frame(b" " * 2**16) + frame(b" "))
        assert (await client.response()).error["code"] == "body_too_large"
    exact = b" " * (2**16 - len(compact(C0))) + compact(C0)
    assert (await ask(gateway.port, exact)).status == 200
    assert (await ask(gateway.port, b" " + exact)).status == 413


async def test_compat_07_a_client_that_sends_all_of_it_reads_the_413(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"max_body": "64KiB"}))
    answer = await ask(gateway.port, b" " * 4 * 2**20)
    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_compat_07_a_compressed_request_is_415(
    gateway: InProcessGateway, upstream: FaultUpstream, coding: str
) -> None:
    answer = await ask(gateway.port, gzip.compress(compact(C0)), [("content-encoding", coding)])
    assert answer.status == 415
    assert answer.error["code"] == "unsupported_media_type"
    assert (await ask(gateway.port, C0, [("content-encoding", "identity")])).status == 200


async def test_an_answer_passes_byte_for_byte(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    body = b'{ "id":"\\u0061","model" :"served-name","x":1.50, "choices":[{"message":{"model":"inner"}}]\r\n}\n'
    upstream.reply([full(body)])
    answer = await ask(gateway.port, C0)
    assert answer.body == body.replace(b'"served-name"', b'"m-small"')
