"""What a call held is let go with it, not with the next full collection of garbage."""

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import ListingEngine, asks, at_rest, gathered, gathering
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER, Script, frame, head, piece, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually

from gateway.core.call import Call
from gateway.http.server.chunked_writer import ClientStream
from gateway.http.server.response import Response

CLIENTS = 3
WHOLE = {**C0, "temperature": 0}
STREAM = {**S0, "temperature": 0}
MOMENTS: dict[str, tuple[dict[str, Any], Script]] = {
    "before the answer": (WHOLE, [NEVER]),
    "during the answer": (WHOLE, [head(200, [("content-length", "100")]) + b"{", NEVER]),
    "before the stream": (STREAM, [NEVER]),
    "during the stream": (STREAM, [sse_head(), frame(piece("one")), NEVER]),
}
AROUND: dict[str, dict[str, Any]] = {
    "plain": {},
    "cache": {"cache": {"enabled": True}},
    "shared": {"cache": {"enabled": True}},  # all ask for the same
    "one slot": {"upstream": {"max_concurrency": 1}},
    "retries": {"retry": {"attempts": 3}},
}


@pytest.fixture(autouse=True)
def _nothing_is_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(*kinds: type) -> int:
    """Objects of these classes that the process holds."""
    return sum(type(one) in kinds for one in gc.get_objects())


async def let_go(before: int, *kinds: type) -> None:
    """Waits until no more of them are alive than before."""
    await eventually(lambda: alive(*kinds) <= before, f"all of {kinds} have gone")


@pytest.fixture
async def clients() -> AsyncIterator[list[RawClient]]:
    """Those of the test; whoever is still there at its end leaves then."""
    opened: list[RawClient] = []
    yield opened
    for client in opened:
        await client.close()


async def open_calls(gateway: InProcessGateway, calls: int) -> None:
    """Waits until so many are open."""
    serve = gateway._gateway._serve
    await eventually(lambda: len(serve.open_calls) == calls, f"{calls} open calls")


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_who_leaves_in_the_middle_of_a_call_leaves_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, clients: list[RawClient], moment: str, around: str
) -> None:
    gateway = await start_gateway(settings(upstream.url, **AROUND[around]))
    body, script = MOMENTS[moment]
    upstream.always(script)
    before = alive(Call)
    for number in range(CLIENTS):
        clients.append(await RawClient.open(gateway.port))
        await clients[-1].request("POST", CHAT, body if around == "shared" else {**body, "seed": number})
        await open_calls(gateway, number + 1)
    await upstream.received(1 if around in ("shared", "one slot") else CLIENTS)
    if moment == "during the stream":
        for client in clients[: 1 if around == "one slot" else CLIENTS]:
            await client.chunk(await client.head())  # a write that fails would keep the call
    assert alive(Call) >= before + CLIENTS
    for client in reversed(clients):
        await client.close()
    await let_go(before, Call)


async def test_who_leaves_a_merged_call_leaves_nothing(
    upstream: FaultUpstream, engine: ListingEngine, start_gateway: StartGateway, clients: list[RawClient]
) -> None:
    before = alive(Call)
    batch = await gathering([], engine, start_gateway)
    for number in range(CLIENTS):
        clients.append(await asks(batch.gateway, str(number)))
        await gathered(batch.gateway, number + 1)
    engine.release()
    engine.hold()
    await upstream.received(2)
    await batch.first
    assert alive(Call) > before + CLIENTS  # theirs, and the one that they share
    for client in clients:
        await client.close()
    await at_rest(batch.gateway)
    await let_go(before, Call)


async def test_who_leaves_before_its_request_is_whole_leaves_nothing(
    gateway: InProcessGateway, clients: list[RawClient]
) -> None:
    before = alive(Call)
    clients.append(await RawClient.open(gateway.port))
    await clients[0].send(request_bytes("POST", CHAT, C0)[:-5])
    await open_calls(gateway, 1)
    assert alive(Call) > before
    await clients[0].close()
    await let_go(before, Call)


async def test_who_has_shared_a_call_leaves_nothing(
    upstream: FaultUpstream, engine: ListingEngine, start_gateway: StartGateway
) -> None:
    before = alive(Call)
    batch = await gathering(["a", "b", "c"], engine, start_gateway)
    assert {one.status for one in await batch.ends()} == {200}
    assert len(upstream.calls) == 2
    await let_go(before, Call)


@pytest.mark.parametrize("around", ["plain", "cache"])
@pytest.mark.parametrize("body", [WHOLE, STREAM], ids=["whole", "stream"])
async def test_a_quiet_connection_keeps_nothing_of_its_last_call(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any], around: str
) -> None:
    gateway = await start_gateway(settings(upstream.url, **AROUND[around]))
    kinds = (Response, ClientStream, Call)
    before = alive(*kinds)
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, body)
        assert (await client.response()).complete
        await let_go(before, *kinds)
        assert len(gateway._gateway._listener.connections) == 1


@pytest.mark.parametrize("body", [WHOLE, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("around", ["plain", "cache", "retries"])
async def test_a_call_that_fails_leaves_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, around: str, body: dict[str, Any]
) -> None:
    gateway = await start_gateway(settings(upstream.url, **AROUND[around]))
    upstream.always(replies.error(500, {"error": {"message": "no"}}))
    before = alive(Call)
    for number in range(CLIENTS):
        answer = await ask(gateway.port, {**body, "seed": number})
        assert answer.status >= 500
    await let_go(before, Call)
