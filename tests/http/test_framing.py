"""What a client may send as HTTP; two parsers must never disagree about where a request ends (AUTH-08)."""

import asyncio

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.script import LAST_CHUNK, Until, compact, frame
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0

BODY = compact(C0)
START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
SMUGGLED = request_bytes("POST", CHAT, {**C0, "smuggled": True})
LENGTH = b"content-length: %d\r\n" % len(BODY)

REFUSED = {
    "length and chunked": START + LENGTH + b"transfer-encoding: chunked\r\n\r\n" + LAST_CHUNK + SMUGGLED,
    "two lengths": START + LENGTH + b"content-length: 5\r\n\r\n" + BODY,
    "lengths in one header": START + b"content-length: %d, 5\r\n\r\n" % len(BODY) + BODY,
    "chunked123": START + b"transfer-encoding: chunked123\r\n\r\n" + frame(BODY) + LAST_CHUNK,
    "chunked twice": START + b"transfer-encoding: chunked, chunked\r\n\r\n" + frame(BODY) + LAST_CHUNK,
    "a carriage return in a value": START + LENGTH + b"x-a: \rtransfer-encoding: chunked\r\n\r\n" + BODY,
    "a blank before the colon": START + LENGTH + b"transfer-encoding : chunked\r\n\r\n" + BODY,
    "a folded header": START + b"x-a: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY,
    "a negative length": START + b"content-length: -1\r\n\r\n" + BODY,
    "a signed length": START + b"content-length: +%d\r\n\r\n" % len(BODY) + BODY,
    "a hexadecimal length": START + b"content-length: 0x10\r\n\r\n" + BODY,
    "a chunk size that is none": START + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + BODY,
    "a newline in a chunk extension": START
    + b"transfer-encoding: chunked\r\n\r\n%x;a\nb\r\n" % len(BODY)
    + BODY
    + b"\r\n"
    + LAST_CHUNK,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n",
    "a line of 70 kB": b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "a header of 100 kB": START + b"x-a: " + b"y" * 100_000 + b"\r\n" + LENGTH + b"\r\n" + BODY,
    "1,000 headers": START + b"x-a: b\r\n" * 1000 + LENGTH + b"\r\n" + BODY,
}


@pytest.mark.parametrize("name", REFUSED)
async def test_auth_08_ambiguous_requests_are_refused_and_the_connection_ends(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(REFUSED[name])
        answer = await client.response()
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"
        assert answer.header("connection") == "close"
    assert upstream.calls == []


async def test_auth_08_a_trailer_is_not_a_header(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    chunked = START + b"transfer-encoding: chunked\r\n\r\n" + frame(BODY)
    async with await RawClient.open(gateway.port) as client:
        await client.send(chunked + b"0\r\ncontent-length: 5\r\nauthorization: Bearer x\r\n\r\n")
        assert (await client.response()).status in (200, 400)
    for one in upstream.calls:
        assert one.json()["messages"] == C0["messages"]
        assert one.header("authorization") == []
        assert one.header("content-length") == [str(len(one.body))]


async def test_auth_08_pipelined_requests_are_two(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(START + LENGTH + b"\r\n" + BODY + SMUGGLED)
        assert (await client.response()).status == 200
        assert (await client.response()).status == 200
    assert [one.json().get("smuggled") for one in upstream.calls] == [None, True]


async def test_a_request_may_follow_a_stream_that_is_not_over(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    second_sent = asyncio.Event()
    script = replies.chat_stream("x")
    upstream.reply([*script[:2], Until(second_sent), *script[2:]])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        first = await client.head()
        await client.chunk(first)
        await client.request("POST", CHAT, C0)
        second_sent.set()
        await client.rest(first)
        assert first.complete
        assert (await client.response()).json()["model"] == "m-small"


async def test_a_request_that_arrives_byte_by_byte(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        for byte in request_bytes("POST", CHAT, C0):
            await client.send(bytes([byte]))
        assert (await client.response()).status == 200
    assert len(upstream.calls) == 1


async def test_a_client_that_says_close_is_closed(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, C0, [("connection", "close")])
        answer = await client.response()
        assert answer.header("connection") == "close"
        assert await client.ending() == "fin"


async def test_http_1_0_without_keep_alive_is_closed(gateway: InProcessGateway) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await client.response()).status == 200
        assert await client.ending() == "fin"


async def test_a_connection_that_says_nothing_is_closed(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"keepalive_timeout": "200ms"}))
    for begun in (b"", b"POST /v1/chat/comp", START):
        async with await RawClient.open(gateway.port) as client:
            await client.send(begun)
            assert await client.ending() == "fin"
