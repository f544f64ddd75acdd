"""Clients that give up or read nothing: what they wanted is not done behind them (OPS-08, OPS-17)."""

import asyncio

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.limited import asked, limited
from doubles.rawclient import RawClient
from doubles.script import NEVER, Script, Until, frame, piece, sse_head
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask

MANY, PLACES = 200, 2
ONE_AND_QUICK = {"max_concurrency": 1, "timeouts": {"idle": "200ms"}}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_ops_17_a_queue_of_those_who_have_left_is_not_worked_off(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, object]
) -> None:
    recovers = asyncio.Event()

    def stalls(call: Call) -> Script:
        return [Until(recovers), *replies.ordinary(call)]

    upstream.always(stalls)
    gateway = await start_gateway(settings(upstream.url, upstream={"max_concurrency": PLACES}))
    clients = [await RawClient.open(gateway.port) for _ in range(MANY)]
    for client in clients:
        await client.request("POST", CHAT, body)
    await upstream.holding(PLACES)
    await gateway.counted("sluice_upstream_queue_depth", MANY - PLACES)
    for client in clients:
        await client.close()
    await gateway.counted("sluice_requests_total", MANY, outcome="client_gone")
    await gateway.counted("sluice_upstream_queue_depth", 0)
    recovers.set()
    assert (await ask(gateway.port, C0)).status == 200
    assert len(upstream.calls) == PLACES + 1


async def test_ops_17_who_only_stops_waiting_is_answered_before_it_does(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Its connection stays open; its patience it has told beforehand."""
    upstream.always([NEVER])
    gateway = await start_gateway(limited(upstream.url, {}, upstream={"max_concurrency": 1}))
    async with await RawClient.open(gateway.port) as holder:
        await holder.request("POST", CHAT, {**C0, "user": "1"}, [AUTH])
        await upstream.received(1)
        patience = [("x-stainless-read-timeout", "0.5")]
        answers = await asyncio.gather(*(asked(gateway.port, C0, patience) for _ in range(50)))
    assert {(one.status, one.error["code"]) for one in answers} <= {
        (503, "deadline_in_queue"),
        (503, "queue_full"),
    }
    assert all(int(one.header("retry-after") or 0) >= 1 for one in answers)
    assert len(upstream.calls) == 1


async def test_ops_08_a_stream_that_nobody_takes_ends_on_both_sides(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """As long as an upstream may be silent, a client may take nothing."""
    upstream.reply([sse_head(), *[frame(piece("x" * 60_000))] * 500, NEVER])
    gateway = await start_gateway(settings(upstream.url, upstream=ONE_AND_QUICK))
    async with await RawClient.open(gateway.port, receive_buffer=4096) as client:
        await client.request("POST", CHAT, S0)
        await client.head()
        await upstream.peer_closed(1)
        # Its slot is free for another.
        assert (await ask(gateway.port, C0)).status == 200
        await gateway.counted("sluice_requests_total", 1, outcome="client_gone")
        await gateway.counted("sluice_upstream_inflight", 0)
