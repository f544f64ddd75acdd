"""Whoever leaves takes nothing along: the upstream is told within a second, all that was held comes back."""

import asyncio
import os
import random

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER, Drip, frame, piece, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, S0, ask
from doubles.waiting import eventually

WITHIN = 1.0
"""Seconds that the gateway has to let go of the upstream."""


async def leave(client: RawClient, how: str) -> None:
    """Goes away in good order, or not."""
    await (client.reset() if how == "reset" else client.close())


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_sse_21_in_mid_stream(gateway: InProcessGateway, upstream: FaultUpstream, how: str) -> None:
    endless = [sse_head(), Drip(frame(piece("x")) * 100_000, size=len(frame(piece("x"))), gap=0.02)]
    upstream.reply(endless)
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, S0)
    answer = await client.head()
    await client.chunk(answer)
    await client.chunk(answer)
    await leave(client, how)
    await upstream.peer_closed(1, WITHIN)
    await gateway.outcome("client_gone")
    assert (await ask(gateway.port, C0)).status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_sse_22_before_the_first_byte(gateway: InProcessGateway, upstream: FaultUpstream, body, how: str) -> None:
    upstream.reply([NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, body)
    await upstream.received(1)
    await leave(client, how)
    await upstream.peer_closed(1, WITHIN)
    await gateway.outcome("client_gone")


async def test_sse_22_while_the_answer_is_being_read(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply([b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{", NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", "/v1/embeddings", E0)
    await upstream.received(1)
    await client.close()
    await upstream.peer_closed(1, WITHIN)
    await gateway.outcome("client_gone")


async def test_while_its_own_request_is_on_the_way(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    client = await RawClient.open(gateway.port)
    await client.send(request_bytes("POST", CHAT, C0)[:-5])
    await client.reset()
    await gateway.outcome("client_gone")
    assert upstream.calls == []


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_sse_23_a_slot_comes_back_after_a_timeout(
    upstream: FaultUpstream, start_gateway: StartGateway, body
) -> None:
    limits = {"max_concurrency": 1, "timeouts": {"first_byte": "200ms"}}
    gateway = await start_gateway(settings(upstream.url, upstream=limits))
    upstream.reply([NEVER])
    answer = await ask(gateway.port, body)
    assert answer.status == 504
    assert answer.error["code"] == "upstream_timeout"
    await upstream.peer_closed(1, WITHIN)
    await gateway.outcome("upstream_timeout")
    assert (await ask(gateway.port, C0)).status == 200


async def test_sse_23_a_slot_comes_back_after_an_abort(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"max_concurrency": 1}))
    upstream.reply([sse_head(), frame(piece("x")), NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, S0)
    await client.chunk(await client.head())
    await client.reset()
    async with asyncio.timeout(WITHIN):
        assert (await ask(gateway.port, C0)).status == 200
    await gateway.counted("sluice_upstream_inflight", 0)


async def one_that_leaves(port: int, dice: random.Random) -> None:
    """Sends a request, or a part of one, reads a part of the answer, or none, and goes."""
    closing = [("connection", "close")]  # so that reading past the end ends too
    request = request_bytes("POST", CHAT, dice.choice([C0, S0]), closing)
    sends = dice.randrange(len(request)) if dice.random() < 0.3 else len(request)
    client = await RawClient.open(port)
    await client.send(request[:sends])
    if sends == len(request):
        left = dice.randrange(1500)
        async with asyncio.timeout(10):
            while left > 0 and (got := await client.reader.read(left)):
                left -= len(got)
    await leave(client, dice.choice(["close", "reset"]))


async def test_200_clients_that_leave_at_a_random_byte_leave_nothing_behind(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    await gateway.metrics()
    await upstream.idle()
    tasks, files = len(asyncio.all_tasks()), descriptors()
    dice = random.Random(2)
    for _ in range(200):
        await one_that_leaves(gateway.port, dice)
    await upstream.idle(10)
    await gateway.counted("sluice_upstream_inflight", 0)
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks, "no more tasks than before")
    await eventually(lambda: descriptors() <= files, "no more descriptors than before")
    assert (await ask(gateway.port, C0)).status == 200
