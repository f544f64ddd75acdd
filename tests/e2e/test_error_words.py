"""What an upstream says in its own way reaches the client; what the gateway says names what has happened."""

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import full
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

AXUM = b"Failed to deserialize the JSON body into the target type: missing field `messages` at line 1"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (422, AXUM, AXUM.decode()),
        (400, AXUM + b"\n", AXUM.decode()),
        (413, b"length limit exceeded", "length limit exceeded"),
        (400, b"<html><body>Bad Request</body></html>", "Upstream `local` refused the request."),
        (400, b"two\nlines", "Upstream `local` refused the request."),
        (400, b"x" * 3000, "Upstream `local` refused the request."),
        (400, b"\xff\xfe", "Upstream `local` refused the request."),
        (400, b"", "Upstream `local` refused the request."),
        (400, b'{"error":{"message":""}}', "Upstream `local` refused the request."),
    ],
)
async def test_a_line_of_plain_text_is_a_message(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int, body: bytes, message: str
) -> None:
    upstream.reply([full(body, status, "text/plain")])
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["message"]) == (status, message)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (301, b"", "answered with status 301."),
        (307, b'{"error":"moved"}', "answered with status 307: moved"),
        (200, b'{"error":{"message":"boom"}}', "answered with an error: boom"),
        (200, b'{"error":{"message":"boom","code":503}}', "answered with status 503: boom"),
        (500, b"plain words", "answered with status 500."),
    ],
)
async def test_the_message_names_what_the_upstream_really_answered(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int, body: bytes, says: str
) -> None:
    upstream.always([full(body, status, headers=[("location", "http://elsewhere.example/")])])
    answer = await ask(gateway.port, C0)
    assert answer.status in (502, 503)
    assert answer.error["message"].endswith(f"` {says}")


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_an_upstreams_error_comes_with_the_gateways_own_times(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int
) -> None:
    upstream.always([full(b'{"error":"no"}', status)])
    answer = await ask(gateway.port, C0)
    assert answer.status in (status, 502)
    assert float(answer.header("x-sluice-queue-ms") or -1) >= 0.0
    assert float(answer.header("x-sluice-overhead-ms") or -1) >= 0.0


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + b"y" * 40_000, "is longer than 32 KiB."),
        (b"no request at all", "malformed: Invalid method encountered."),
        (b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: many", "malformed: "),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization : Bearer sk-secret", "malformed: "),
    ],
)
async def test_what_is_no_request_is_counted_and_told_what_is_wrong(
    gateway: InProcessGateway, head: bytes, says: str
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(head + b"\r\n\r\n")
        answer = await client.response()
    assert (answer.status, answer.error["code"]) == (400, "invalid_value")
    assert says in answer.error["message"]
    assert "secret" not in answer.error["message"]
    assert answer.header("x-request-id")
    await gateway.outcome("client_error", endpoint="other", model="other", status="400")


async def test_a_preflight_has_a_request_id_too(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"cors_origins": ["https://app.example"]}))
    asked = [("origin", "https://app.example"), ("access-control-request-method", "POST")]
    preflight = await call(gateway.port, "OPTIONS", CHAT, headers=[*asked, ("x-request-id", "mine")])
    assert (preflight.status, preflight.header("x-request-id")) == (204, "mine")
