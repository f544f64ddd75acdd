"""Clients that take their time, and clients that leave while more of their requests wait."""

import asyncio

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER, frame, full, head, sse_head
from doubles.settings import KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask


async def test_a_slow_reader_gets_all_of_a_large_answer(
    upstream: FaultUpstream, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is whether it takes some, not how long the whole takes."""
    monkeypatch.setattr("gateway.http.server.handler.WRITE_STALL_S", 0.3)
    body = b'{"x":"' + b"y" * 8_000_000 + b'"}'
    upstream.reply([full(body)])
    async with await RawClient.open(gateway.port, receive_buffer=16_384) as client:
        await client.request("POST", CHAT, C0)
        answer = await client.head()
        taken = 0
        while taken < 3_000_000:  # takes about a second: three times the limit
            taken += len(await client.reader.read(65_536))
            await asyncio.sleep(0.02)
        while taken < len(body):
            piece = await client.reader.read(1 << 20)
            assert piece, f"cut after {taken} of {len(body)} bytes"
            taken += len(piece)
    assert answer.header("content-length") == str(len(body))


async def test_a_stuck_reader_is_dropped(
    upstream: FaultUpstream, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.server.handler.WRITE_STALL_S", 0.1)
    upstream.reply([full(b'{"x":"' + b"y" * 20_000_000 + b'"}')])
    async with await RawClient.open(gateway.port, receive_buffer=16_384) as client:
        await client.request("POST", CHAT, C0)
        await client.head()
        async with asyncio.timeout(10):
            while gateway._gateway._serve.open_calls:
                await asyncio.sleep(0.01)


async def test_a_client_that_pipelines_a_lot_and_leaves_is_noticed(
    upstream: FaultUpstream, gateway: InProcessGateway
) -> None:
    upstream.reply([NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, C0)
    await upstream.received(1)
    many = request_bytes("GET", "/health") * 40_000
    client.writer.write(many)
    await client.reset()
    await upstream.peer_closed(1, within=2)


async def test_an_upstream_that_only_comments_fills_no_memory(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    timeouts = {"timeouts": {"total": "1s"}}
    gateway = await start_gateway(settings(upstream.url, upstream=timeouts))
    comments = frame(b": " + b"z" * 60_000 + b"\n\n")
    upstream.reply([sse_head(), *[comments] * 400, NEVER])
    answer = await ask(gateway.port, S0)
    assert answer.status == 504
    assert len(answer.body) < 1000


async def test_an_error_whose_body_stalls_is_told_by_its_status(
    upstream: FaultUpstream, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.client.forward.ERROR_BODY_S", 0.1)
    upstream.reply([head(500, [("content-length", "100")]) + b"{", NEVER])
    async with asyncio.timeout(5):
        answer = await ask(gateway.port, C0)
    assert answer.status == 502


@pytest.mark.parametrize(
    ("status", "given", "told"),
    [
        (429, [("x-should-retry", "false")], (None, "false")),
        (429, [("x-should-retry", "false"), ("retry-after", "3")], ("3", "false")),
        (429, [], ("1", None)),
        (503, [("retry-after", "3")], ("3", None)),
        (500, [("retry-after", "30")], (None, "false")),
        (500, [("x-should-retry", "true")], (None, "false")),
        (401, [("retry-after", "30")], (None, "false")),
    ],
)
async def test_advice_on_retrying_is_never_contradictory(
    upstream: FaultUpstream, gateway: InProcessGateway, status: int, given, told
) -> None:
    upstream.reply([full(b'{"error":{"message":"no"}}', status, headers=given)])
    answer = await ask(gateway.port, C0)
    assert (answer.header("retry-after"), answer.header("x-should-retry")) == told


async def test_two_authorization_headers_that_differ_are_a_401(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    one, other = ("authorization", f"Bearer {KEY}"), ("authorization", "Bearer another-key")
    assert (await ask(gateway.port, C0, [one])).status == 200
    assert (await ask(gateway.port, C0, [one, other])).status == 401
    assert (await ask(gateway.port, C0, [other, one])).status == 401


async def test_an_absolute_target_finds_its_route(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        here = f"127.0.0.1:{gateway.port}"
        await client.request("GET", f"http://{here}/v1/models", headers=[("host", here)])
        assert (await client.response()).status == 200


async def test_malformed_requests_are_answered_with_an_id(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
        answer = await client.response()
    assert answer.status == 400
    assert answer.header("x-request-id")
    assert answer.header("connection") == "close"


async def test_after_a_refusal_a_client_that_waits_to_send_its_body_gets_a_new_connection(
    gateway: InProcessGateway,
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
            b"expect: 100-continue\r\ncontent-length: 100\r\n\r\n"
        )
        answer = await client.response()
    assert answer.status == 415
    assert answer.header("connection") == "close"
