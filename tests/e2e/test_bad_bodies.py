"""A body that is no request is refused before any upstream sees it, and the reason is told."""

from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway
from doubles.rawclient import RawClient
from doubles.script import compact
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, E0, EMBEDDINGS, S0, ask

DEEP = b'{"model":"m-small","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NO_JSON = {
    "truncated": b'{"model":"m-small","messages":[',
    "byte-order mark": b"\xef\xbb\xbf" + compact(C0),
    "utf-16": compact(C0).decode().encode("utf-16"),
    "utf-16 without a mark": compact(C0).decode().encode("utf-16-le"),
    "latin-1": '{"model":"m-small","x":"ü"}'.encode("latin-1"),
    "empty": b"",
    "blank": b"  ",
    "list": b"[]",
    "text": b'"str"',
    "null": b"null",
    "number": b"5",
    "100,000 brackets": b"[" * 100_000,
    "100,000 levels": DEEP,
    "two objects": compact(C0) * 2,
    "NaN": b'{"model":"m-small","temperature":NaN}',
    "single quotes": b"{'model':'m-small'}",
    "trailing comma": b'{"model":"m-small",}',
}


@pytest.mark.parametrize("name", NO_JSON)
async def test_compat_10_no_json_object_is_400(gateway: InProcessGateway, upstream: FaultUpstream, name: str) -> None:
    upstream.always(replies.chat())  # it would not mind
    answer = await ask(gateway.port, NO_JSON[name])
    assert answer.status == 400
    assert (answer.error["type"], answer.error["code"]) == ("invalid_request_error", "invalid_json")
    assert upstream.calls == []
    await gateway.outcome("client_error", status="400")


async def test_compat_10_a_request_without_a_body_is_400(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT)
        assert (await client.response()).error["code"] == "invalid_json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m-small","model":"m-embed"}',
        b'{"model":"m-small","model":"m-small"}',
        b'{"model":"m-small","\\u006dodel":"m-embed","messages":[]}',
    ],
)
async def test_compat_10_a_model_named_twice_is_400(
    gateway: InProcessGateway, upstream: FaultUpstream, body: bytes
) -> None:
    answer = await ask(gateway.port, body)
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", "model")
    assert upstream.calls == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json; charset=latin1", 415),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("", 200),
    ],
)
async def test_compat_10_content_types(gateway: InProcessGateway, kind: str, status: int) -> None:
    answer = await ask(gateway.port, C0, [("content-type", kind)])
    assert answer.status == status
    if status == 415:
        assert answer.error["code"] == "unsupported_media_type"
        assert "application/json" in answer.error["message"]


@pytest.mark.parametrize("stream", ["true", 1, [], {}])
async def test_compat_10_stream_must_be_a_boolean(
    gateway: InProcessGateway, upstream: FaultUpstream, stream: Any
) -> None:
    answer = await ask(gateway.port, {**C0, "stream": stream})
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", "stream")
    assert (await ask(gateway.port, {**C0, "stream": None})).status == 200


@pytest.mark.parametrize(("path", "body"), [(CHAT, C0), (CHAT, S0), (COMPLETIONS, {"prompt": "x"}), (EMBEDDINGS, E0)])
@pytest.mark.parametrize("model", [None, "", 5, ["a"], {"a": 1}, "absent"])
async def test_route_12_a_model_that_is_no_name_is_400(
    gateway: InProcessGateway, upstream: FaultUpstream, path: str, body: dict[str, Any], model: Any
) -> None:
    asked = {key: value for key, value in body.items() if key != "model"}
    answer = await ask(gateway.port, asked if model == "absent" else {**asked, "model": model}, path=path)
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", "model")
    assert upstream.calls == []


@pytest.mark.parametrize("body", [C0, S0])
@pytest.mark.parametrize("model", ["nope", "m-small ", "M-SMALL", "m-small\n", "up-small", "\u0000", "x" * 5000])
async def test_route_12_an_unknown_model_is_404(
    gateway: InProcessGateway, upstream: FaultUpstream, body: dict[str, Any], model: str
) -> None:
    answer = await ask(gateway.port, {**body, "model": model})
    assert answer.status == 404
    assert answer.error["code"] == "model_not_found"
    # What this key may use instead, and nothing of the upstreams.
    assert "`m-small`, `m-embed`" in answer.error["message"]  # what this key may use instead
    assert "up-embed" not in answer.error["message"]
    assert len(answer.body) < 1000
    assert upstream.calls == []
    await gateway.outcome("client_error", status="404", model="other")
