"""A client's connection from request to request: what comes behind, what nobody reads, what is cut off."""

import logging

import pytest
from doubles.gateway import InProcessGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.script import LAST_CHUNK, compact, frame
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT
from doubles.waiting import eventually

HEALTH = request_bytes("GET", "/health")
CHUNKED = request_bytes("POST", CHAT, headers=[("content-type", "application/json"), ("transfer-encoding", "chunked")])


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
async def test_a_declined_upgrade_is_an_ordinary_request_and_so_are_those_behind_it(
    gateway: InProcessGateway, upstream: FaultUpstream, protocol: str
) -> None:
    upgrade = [("connection", "upgrade"), ("upgrade", protocol)]
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("POST", CHAT, C0, upgrade))
        answers = [await client.response()]
        for _ in range(2):
            await client.send(HEALTH)
            answers.append(await client.response())
    assert [one.status for one in answers] == [200, 200, 200]
    assert len(upstream.calls) == 1


async def test_pipelined_requests_are_answered_in_their_order(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(b"".join(request_bytes("POST", CHAT, {**C0, "user": str(n)}) for n in range(20)))
        answers = [await client.response() for _ in range(20)]
    assert [one.status for one in answers] == [200] * 20
    assert [one.json()["user"] for one in upstream.calls] == [str(n) for n in range(20)]


async def test_a_refused_body_is_read_away_and_the_connection_goes_on(gateway: InProcessGateway) -> None:
    body = b"x" * 300_000
    asked = request_bytes("POST", "/v1/nothing", body)
    async with await RawClient.open(gateway.port) as client:
        await client.send(asked[:-200_000])
        refused = await client.response()
        await client.send(asked[-200_000:] + HEALTH)
        healthy = await client.response()
    assert (refused.status, healthy.status) == (404, 200)


async def test_a_bug_in_the_handler_is_told_and_the_connection_closed(gateway: InProcessGateway) -> None:
    serve = gateway._gateway._serve
    kept = serve.__dict__.pop("open_calls")
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("POST", CHAT, C0))
        answer = await client.response()
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert await client.ending() == "fin"
    serve.open_calls = kept


async def test_behind_a_body_of_very_many_chunks_the_next_one_is_read(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    """aiohttp stops its parser when a body holds so many pieces, here behind the end of that body."""
    body = compact(C0).ljust(16_385)
    async with await RawClient.open(gateway.port) as client:
        await client.send(HEALTH)
        await client.response()
        (connection,) = gateway._gateway._listener.connections
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        connection.data_received(CHUNKED + chunks + LAST_CHUNK)  # at once, as a packet would bring it
        first = await client.response()
        await client.request("POST", CHAT, C0)
        second = await client.response()
    assert (first.status, second.status) == (200, 200)
    assert len(upstream.calls[0].body) == len(body) + len("up-small") - len("m-small")


async def test_a_malformed_chunk_in_a_later_packet_is_told_at_once(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(CHUNKED + frame(compact(C0)))
        await eventually(lambda: gateway._gateway._serve.open_calls, "the head has come")
        await client.send(b"zz\r\n" + HEALTH)
        answer = await client.response()
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert await client.ending() == "fin"
    assert upstream.calls == []


async def test_what_is_malformed_behind_a_body_is_no_fault_of_the_body(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    asked = request_bytes("POST", CHAT, C0)
    async with await RawClient.open(gateway.port) as client:
        await client.send(asked[:-5])
        await eventually(lambda: gateway._gateway._serve.open_calls, "the head has come")
        await client.send(asked[-5:] + b"no HTTP\r\n\r\n")
        answers = [await client.response(), await client.response()]
        assert await client.ending() == "fin"
    assert [one.status for one in answers] == [200, 400]
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("digits", ["0" * 5000 + "102", "9" * 19])
async def test_a_length_of_very_many_digits_is_refused(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture, digits: str
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("POST", CHAT, b"{", [("content-length", digits)]))
        answer = await client.response()
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert answer.header("connection") == "close"
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
