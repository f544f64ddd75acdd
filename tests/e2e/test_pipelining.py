"""A client that sends ahead, or reads nothing: it gets neither the loop nor the memory for itself."""

import asyncio
from itertools import repeat

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.narrow import narrowed
from doubles.rawclient import RawClient, request_bytes
from doubles.script import full
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT
from doubles.waiting import eventually

ORIGIN = "https://app.example"
PREFLIGHT = [("origin", ORIGIN), ("access-control-request-method", "POST")]
UNCOUNTED = {
    "health": (request_bytes("GET", "/health"), 200),
    "preflight": (request_bytes("OPTIONS", CHAT, headers=PREFLIGHT), 204),
}
MANY = 5000
MOST = 300_000
"""Bytes that may wait for one client."""


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway that browsers may call."""
    return await start_gateway(settings(upstream.url, server={"cors_origins": [ORIGIN]}))


async def at_rest(transport: asyncio.Transport) -> int:
    """Bytes that wait for the client once nothing more happens: the same for 200 turns of the loop."""
    waiting, same = 0, 0
    while same < 200:
        await asyncio.sleep(0)
        now = transport.get_write_buffer_size()
        waiting, same = now, same + 1 if now and now == waiting else 0
    return waiting


@pytest.mark.parametrize("name", UNCOUNTED)
async def test_answers_that_nobody_reads_do_not_pile_up(gateway: InProcessGateway, name: str) -> None:
    request, status = UNCOUNTED[name]
    async with await RawClient.open(gateway.port, receive_buffer=4096) as client:
        transport = await narrowed(gateway, client)
        client.writer.write(request * MANY)
        async with asyncio.timeout(10):
            assert await at_rest(transport) < MOST
        answers = [await client.response(bodyless=status == 204) for _ in repeat(None, MANY)]
    assert {one.status for one in answers} == {status}


@pytest.mark.parametrize("target", ["/health", "/v1/nothing"])
async def test_others_have_their_turn_between_two_answers(gateway: InProcessGateway, target: str) -> None:
    turn, over = 0, False
    turns_of_answers = []
    serve = gateway._gateway._serve
    new_request_id = serve.new_request_id

    def noting_the_turn() -> str:
        turns_of_answers.append(turn)
        return new_request_id()

    async def others() -> None:
        nonlocal turn
        while not over:
            turn += 1
            await asyncio.sleep(0)

    serve.new_request_id = noting_the_turn
    counting = asyncio.create_task(others())
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("GET", target) * 100)
        for _ in range(100):
            await client.response()
    over = True
    await counting
    assert len(turns_of_answers) == 100
    assert len(set(turns_of_answers)) == 100


async def test_who_does_not_take_the_last_answer_is_not_waited_for(
    gateway: InProcessGateway, upstream: FaultUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too small for the limit that larger answers meet, and too large for the system to hold."""
    monkeypatch.setattr("gateway.http.server._aiohttp.WRITE_STALL_S", 0.05)
    upstream.reply([full(b'{"x":"' + b"y" * 40_000 + b'"}')])
    async with await RawClient.open(gateway.port, receive_buffer=4096) as client:
        await narrowed(gateway, client)
        await client.request("POST", CHAT, C0, [("connection", "close")])
        await gateway.outcome("ok")
        await eventually(lambda: not gateway._gateway._listener.connections, "the connection is gone")
