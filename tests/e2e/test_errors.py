"""Every error has OpenAI's four fields, the status of the table, and nothing that is not the client's."""

from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import full
from doubles.settings import AUTH, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask


@pytest.mark.parametrize(
    ("path", "method", "body", "headers", "status", "kind", "code"),
    [
        (CHAT, "POST", b"{", [AUTH], 400, "invalid_request_error", "invalid_json"),
        (CHAT, "POST", {"model": 1}, [AUTH], 400, "invalid_request_error", "invalid_value"),
        (CHAT, "POST", C0, [], 401, "invalid_request_error", "invalid_api_key"),
        (CHAT, "POST", C0, [("api-key", OTHER_KEY)], 403, "permission_error", "model_not_allowed"),
        (CHAT, "POST", {"model": "nope"}, [AUTH], 404, "invalid_request_error", "model_not_found"),
        ("/v1/nope", "POST", C0, [AUTH], 404, "invalid_request_error", "unknown_url"),
        ("/v1/models/nope", "GET", None, [AUTH], 404, "invalid_request_error", "model_not_found"),
        (CHAT, "PUT", C0, [AUTH], 405, "invalid_request_error", "method_not_allowed"),
        (CHAT, "POST", b" " * 70_000, [AUTH], 413, "invalid_request_error", "body_too_large"),
        (CHAT, "POST", C0, [AUTH, ("content-type", "text/xml")], 415, None, "unsupported_media_type"),
    ],
)
async def test_compat_11_the_gateways_own_errors(
    upstream: FaultUpstream, start_gateway: StartGateway, path, method, body, headers, status, kind, code
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True, server={"max_body": "64KiB"}))
    answer = await call(gateway.port, method, path, body, headers)
    assert answer.status == status
    assert answer.error["code"] == code
    assert kind is None or answer.error["type"] == kind
    assert answer.header("x-should-retry") == "false"
    assert answer.header("x-request-id")
    assert (answer.header("allow") is not None) == (status == 405)
    assert upstream.calls == []


async def test_compat_11_408_for_a_body_that_drips(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"body_timeout": "200ms"}))
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        answer = await client.response()
        assert answer.status == 408
        assert answer.error["code"] == "body_timeout"
        assert answer.header("connection") == "close"
    await gateway.outcome("client_error", status="408")


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_compat_11_500_for_a_bug_says_nothing_of_it(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    async def bug(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("gateway.http.client.forward.Forward.__call__", bug)
    answer = await ask(gateway.port, body)
    assert answer.status == 500
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "internal_error")
    assert b"secret detail" not in answer.body
    assert b"Traceback" not in answer.body
    await gateway.outcome("internal_error", status="500")


async def test_compat_11_503_where_nobody_listens(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url))
    await upstream.stop()
    for body in (C0, S0):
        answer = await ask(gateway.port, body)
        assert answer.status == 503
        assert (answer.error["type"], answer.error["code"]) == ("overloaded_error", "upstream_unavailable")
        assert answer.header("retry-after") is not None
        assert answer.header("x-should-retry") is None
    await upstream.start()
    assert (await ask(gateway.port, C0)).status == 200


BODIES = {
    "detail": (b'{"detail":"told x"}', "told x"),
    "detail of FastAPI": (b'{"detail":[{"loc":["body"],"msg":"told x"}]}', "told x"),
    "text": (b'{"error":"told x"}', "told x"),
    "flat": (b'{"object":"error","message":"told x","type":"BadRequestError","code":400}', "told x"),
    "openai": (b'{"error":{"message":"told x","type":"t","param":"p","code":"c"}}', "told x"),
    "numeric code": (b'{"error":{"message":"told x","type":"None","code":400}}', "told x"),
    "page": (b"<html><h1>Bad</h1></html>", None),
    "empty": (b"", None),
    "no UTF-8": (b'{"error":{"message":"\xff"}}', None),
    "long page": (b"<html>" + b"x" * 300_000, None),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("status", [400, 404, 413, 422, 418, 500, 502])
async def test_compat_11_an_upstreams_errors_in_any_dialect(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str, status: int
) -> None:
    body, told = BODIES[name]
    upstream.reply([full(body, status, "application/json" if told else "text/html")])
    answer = await ask(gateway.port, C0)
    passes = status in (400, 404, 413, 422)
    assert answer.status == (status if passes else 502)
    error = answer.error
    assert isinstance(error["type"], str)
    assert error["type"] not in ("", "None")
    assert b"<html" not in answer.body
    if told is not None and passes:
        assert told in error["message"]
    if not passes:
        assert (error["type"], error["code"]) == ("upstream_error", "upstream_error")
    if name == "openai" and passes:
        assert error == {"message": "told x", "type": "t", "param": "p", "code": "c"}
    of_the_client = passes and (status != 404 or told is not None)
    await gateway.outcome("client_error" if of_the_client else "upstream_error", status=str(answer.status))


async def test_an_upstreams_own_401_is_never_the_clients(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply(replies.error(401, "Incorrect API key provided: sk-abcdefghijkl"))
    answer = await ask(gateway.port, C0)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_auth_failed"
    assert b"sk-abcdefghijkl" not in answer.body


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_refusal_of_an_upstream_names_it(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int, body: dict[str, Any]
) -> None:
    upstream.reply(replies.error(status, headers=[("x-request-id", "up-7")]))
    answer = await ask(gateway.port, body)
    assert answer.header("x-sluice-upstream") == "local"
    assert answer.header("x-sluice-upstream-model") == "up-small"
    assert answer.header("x-sluice-attempts") == "1"
    assert answer.header("x-upstream-request-id") == "up-7"


WAITS = [
    ([("retry-after", "7")], ("7", "7000")),
    ([("retry-after-ms", "350"), ("retry-after", "5")], ("1", "350")),
    ([("retry-after", "1.2")], ("2", "1200")),
    (
        [("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:49:44 GMT")],
        ("7", "7000"),
    ),
    ([("retry-after", "0")], ("1", "1000")),
    ([("retry-after", "-3")], ("1", "1000")),
    ([("retry-after", "NaN")], ("1", "1000")),
    ([("retry-after", "soon")], ("1", "1000")),
    ([], ("1", "1000")),
]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("given", "told"), WAITS)
async def test_an_upstreams_retry_after_is_passed_on(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int, given, told: tuple[str, str]
) -> None:
    upstream.reply(replies.error(status, headers=given))
    answer = await ask(gateway.port, C0)
    assert answer.status == status
    assert (answer.header("retry-after"), answer.header("retry-after-ms")) == told
    assert answer.header("x-should-retry") is None


async def test_an_upstream_that_says_both_is_passed_on(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply(replies.error(503, headers=[("retry-after", "9"), ("x-should-retry", "false")]))
    answer = await ask(gateway.port, C0)
    assert (answer.header("retry-after"), answer.header("x-should-retry")) == ("9", "false")
