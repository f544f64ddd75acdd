"""A gateway that ends holds nobody back: what waits in a batching window goes at once (OPS-02)."""

import asyncio
from pathlib import Path

from doubles.gateway import GatewayProcess, StartGateway
from doubles.listing_engine import ListingEngine, gathered, merging, own, text
from doubles.rawclient import RawClient, request_bytes
from doubles.upstream import FaultUpstream
from doubles.vocabulary import EMBEDDINGS, ask
from doubles.waiting import eventually

FEW = ("a", "b", "c")
LONG = {"policy": "window", "max_wait": "60s"}
"""Longer than any test waits, and than the drain's own time."""


async def test_ops_02_a_window_ends_with_the_gateway(start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await start_gateway(merging(engine.upstream.url, LONG))
    asking = [asyncio.create_task(ask(gateway.port, text(one), path=EMBEDDINGS)) for one in FEW]
    await gathered(gateway, len(FEW))
    async with asyncio.timeout(10):
        await gateway.stop()
    for answer, one in zip(await asyncio.gather(*asking), FEW, strict=True):
        own(answer, one)
        assert answer.header("x-sluice-batch-size") == "3"
    assert len(engine.upstream.calls) == 1


async def test_ops_02_whose_body_comes_during_the_drain_is_not_held_back_either(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(engine.upstream.url, LONG))
    sent = request_bytes("POST", EMBEDDINGS, text("late"))
    async with await RawClient.open(gateway.port) as client:
        await client.send(sent[:-5])
        serve = gateway._gateway._serve
        await eventually(lambda: bool(serve.open_calls), "its head is there")
        stopping = asyncio.create_task(gateway.stop())
        await eventually(lambda: serve.closed, "the gateway takes no new call")
        await client.send(sent[-5:])
        own(await client.response(), "late")
        async with asyncio.timeout(10):
            await stopping


async def test_ops_02_by_the_signal(upstream: FaultUpstream, engine: ListingEngine, tmp_path: Path) -> None:
    with GatewayProcess(merging(upstream.url, LONG), tmp_path) as gateway:
        clients = [await RawClient.open(gateway.port) for _ in FEW]
        for client, one in zip(clients, FEW, strict=True):
            await client.request("POST", EMBEDDINGS, text(one))
        # Another connection's answer comes after their requests have been read.
        assert (await ask(gateway.port, b"{", path=EMBEDDINGS)).status == 400
        gateway.terminate()
        for client, one in zip(clients, FEW, strict=True):
            own(await client.response(), one)
            await client.close()
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
