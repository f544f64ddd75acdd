"""A client's connection from request to request: what comes behind, what nobody reads, what is cut off."""

import pytest
from doubles.gateway import InProcessGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT

HEALTH = request_bytes("GET", "/health")


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
