"""Every error has OpenAI's four fields, the status of the table, and nothing that is not the client's."""

import gzip
import json
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import FIN, NEVER, RST, Step, compact, event, full, head, stream
from doubles.settings import AUTH, KEY, OTHER_KEY, UPSTREAM_KEY, settings
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


async def test_compat_11_408_for_a_body_that_drips(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
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

    monkeypatch.setattr("gateway.edge.forward.Forward.__call__", bug)
    answer = await ask(gateway.port, body)
    assert answer.status == 500
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "internal_error")
    assert b"secret detail" not in answer.body
    assert b"Traceback" not in answer.body
    await gateway.outcome("internal_error", status="500")


async def test_compat_11_503_where_nobody_listens(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
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
    await gateway.outcome("client_error" if passes else "upstream_error", status=str(answer.status))


async def test_an_upstreams_own_401_is_never_the_clients(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    upstream.reply(replies.error(401, "Incorrect API key provided: sk-abcdefghijkl"))
    answer = await ask(gateway.port, C0)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_auth_failed"
    assert b"sk-abcdefghijkl" not in answer.body


CUT = compact({"id": "c1", "choices": []})[:-5]
NO_ANSWERS: dict[str, tuple[list[Step], int, str]] = {
    "compat_12 page": (
        [full(b"<html>login</html>", content_type="text/html")],
        502,
        "upstream_invalid_response",
    ),
    "compat_12 error": (replies.error(200, "no"), 502, "upstream_error"),
    "compat_12 error with a status": (replies.error(200, "no", code=429), 429, "upstream_rate_limited"),
    "compat_12 empty": ([full(b"")], 502, "upstream_invalid_response"),
    "compat_12 cut JSON": ([full(CUT)], 502, "upstream_invalid_response"),
    "list": ([full(b"[]")], 502, "upstream_invalid_response"),
    "null": ([full(b"null")], 502, "upstream_invalid_response"),
    "no UTF-8": ([full(b'{"id":"\xff"}')], 502, "upstream_invalid_response"),
    "short of its length": ([head(200, [("content-length", "50")]), CUT, FIN], 502, "upstream_error"),
    "reset in the body": ([head(200, [("content-length", "50")]), CUT, RST], 502, "upstream_error"),
    "no status line": ([b"nonsense\r\n\r\n", FIN], 502, "upstream_invalid_response"),
    "end before the head": ([FIN], 502, "upstream_error"),
    "two lengths": (
        [head(200, [("content-length", "2"), ("content-length", "3")]) + b"{} "],
        502,
        "upstream_invalid_response",
    ),
    "a stream that nobody asked for": (stream(event({"choices": []})), 502, "upstream_invalid_response"),
    "no content": ([head(204)], 502, "upstream_invalid_response"),
    "redirect": ([full(b"", 307, headers=[("location", "/v1/other")])], 502, "upstream_error"),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_compat_12_a_200_that_is_no_answer(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    script, status, code = NO_ANSWERS[name]
    upstream.reply(script)
    answer = await ask(gateway.port, C0)
    assert answer.status == status
    assert answer.error["code"] == code
    assert b"127.0.0.1" not in answer.body
    assert str(upstream.port).encode() not in answer.body
    assert len(upstream.calls) == 1
    await gateway.counted("sluice_requests_total", 0, outcome="ok")
    await gateway.counted("sluice_inflight", 0)


async def test_an_answer_larger_than_max_body_is_refused(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"max_body": "64KiB"}))
    big = compact({"x": "y" * 70_000})
    upstream.reply([full(big)], [head(200), big, big, NEVER])
    for _ in range(2):
        answer = await ask(gateway.port, C0)
        assert answer.status == 502
        assert answer.error["code"] == "upstream_invalid_response"


@pytest.mark.parametrize("status", [200, 400])
async def test_sse_25_a_compressed_answer_can_be_read(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int
) -> None:
    plain = replies.chat()[0] if status == 200 else replies.error(400, "too hot")[0]
    assert isinstance(plain, bytes)
    body = plain.partition(b"\r\n\r\n")[2]
    upstream.reply([full(gzip.compress(body), status, headers=[("content-encoding", "gzip")])])
    answer = await ask(gateway.port, C0, [("accept-encoding", "gzip, br, zstd")])
    assert answer.status == status
    assert answer.header("content-encoding") is None
    if status == 200:
        assert answer.body == body.replace(b"up-small", b"m-small")
    else:
        assert answer.error["message"] == "too hot"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b'{"id":1}')[:-4]),
        ("br", b"{}"),
        ("gzip", gzip.compress(b'{"x":"' + b"y" * 40 * 2**20 + b'"}')),
    ],
    ids=["damaged", "cut", "unknown", "bomb"],
)
async def test_sse_25_a_compressed_answer_that_cannot_is_refused(
    gateway: InProcessGateway, upstream: FaultUpstream, coding: str, body: bytes
) -> None:
    upstream.reply([full(body, headers=[("content-encoding", coding)])])
    answer = await ask(gateway.port, C0)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_invalid_response"


HOST = "u-internal.invalid"
ECHO = f"key {UPSTREAM_KEY} refused by http://user:pw@{HOST}:9/v1 (10.9.8.7:9, /home/u/app.py)"
LEAKS = {
    "400": (replies.error(400, ECHO), 400),
    "401": (replies.error(401, ECHO), 502),
    "500": (replies.error(500, ECHO), 502),
    "503": (replies.error(503, ECHO), 503),
    "error in a 200": (replies.error(200, ECHO), 502),
    "invalid JSON": ([full(ECHO.encode())], 502),
    "error as the first event": (stream(event({"error": {"message": ECHO}})), 502),
    "reset": ([RST], 502),
    "no answer": ([NEVER], 504),
}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("name", LEAKS)
async def test_auth_02_no_key_and_no_address_in_what_a_client_reads(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, body: dict[str, Any]
) -> None:
    own = {
        "api_key": UPSTREAM_KEY,
        "headers": {"x-token": "header-secret"},
        "timeouts": {"first_byte": "200ms"},
    }
    gateway = await start_gateway(settings(upstream.url, upstream=own))
    script, status = LEAKS[name]
    upstream.reply(script)
    answer = await ask(gateway.port, body)
    assert answer.status == (status if name != "error as the first event" or body is S0 else 502)
    metrics = str((await gateway.metrics()).samples)
    told = answer.head.decode() + answer.body.decode() + metrics
    for secret in (
        UPSTREAM_KEY,
        "header-secret",
        "pw",
        HOST,
        "10.9.8.7",
        "/home/u",
        "127.0.0.1",
        str(upstream.port),
    ):
        assert secret not in told, secret


@pytest.mark.parametrize(
    "url", [f"http://{HOST}:9/v1", "https://127.0.0.1:{port}/v1", "http://127.0.0.1:1/v1"]
)
async def test_auth_02_no_address_when_it_cannot_be_reached(
    upstream: FaultUpstream, start_gateway: StartGateway, url: str
) -> None:
    gateway = await start_gateway(
        settings(
            url.format(port=upstream.port),
            upstream={"api_key": UPSTREAM_KEY, "timeouts": {"connect": "300ms"}},
        )
    )
    answer = await ask(gateway.port, C0)
    assert answer.status in (502, 503)
    assert answer.error["type"] in ("upstream_error", "overloaded_error")
    for secret in (UPSTREAM_KEY, HOST, "127.0.0.1", str(upstream.port), "Errno", "ssl", "SSL"):
        assert secret not in answer.body.decode(), secret


async def test_keys_of_clients_are_in_no_answer(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    for wrong in (KEY + "x", "x" * 600, "", " ", "\xff\xfe"):
        answer = await ask(gateway.port, C0, [("authorization", f"Bearer {wrong}")])
        assert answer.status == 401
        assert KEY.encode() not in answer.body
        assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
