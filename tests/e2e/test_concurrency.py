"""Calls of a key at a time: a place is held to the last byte, and free as soon as nobody needs it."""

import asyncio

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.limited import OTHER, asked, limited
from doubles.rawclient import RawClient
from doubles.script import NEVER, RST, Until, frame, piece, sse_head
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0

ONE = {"concurrency": 1}
EVENTS = replies.chat_events("po", "ng")


async def test_a_stream_has_its_place_to_the_last_byte(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, ONE))
    go_on = asyncio.Event()
    upstream.reply([sse_head(), frame(EVENTS[0]), Until(go_on), *map(frame, EVENTS[1:]), b"0\r\n\r\n"])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0, [AUTH])
        answer = await client.head()
        await client.chunk(answer)
        refused = await asked(gateway.port)
        assert refused.status == 429
        assert (refused.error["type"], refused.error["code"]) == ("concurrency", "rate_limit_exceeded")
        assert int(refused.header("retry-after-ms") or 0) > 0
        assert (await asked(gateway.port, key=OTHER)).status == 200
        go_on.set()
        await client.rest(answer)
        assert answer.complete
    assert (await asked(gateway.port)).status == 200
    await gateway.counted("sluice_limit_rejections_total", 1, key="team-a", limit="concurrency")


async def test_a_whole_answer_has_it_until_it_is_there(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"concurrency": 2}))
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    first = [asyncio.create_task(asked(gateway.port)) for _ in range(2)]
    await upstream.holding(2)
    assert (await asked(gateway.port)).status == 429
    go_on.set()
    assert {one.status for one in await asyncio.gather(*first)} == {200}
    assert (await asked(gateway.port)).status == 200


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_it_is_free_when_the_client_leaves(upstream: FaultUpstream, start_gateway: StartGateway, body) -> None:
    gateway = await start_gateway(limited(upstream.url, ONE))
    upstream.reply([sse_head(), frame(piece("x")), NEVER] if body is S0 else [NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, body, [AUTH])
    await upstream.received(1)
    assert (await asked(gateway.port)).status == 429
    await client.close()
    await gateway.counted("sluice_requests_total", 1, outcome="client_gone")
    assert (await asked(gateway.port)).status == 200


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("script", [[RST], replies.error(500), [sse_head(), frame(piece("x")), RST]])
async def test_it_is_free_when_the_upstream_fails(
    upstream: FaultUpstream, start_gateway: StartGateway, script, body
) -> None:
    gateway = await start_gateway(limited(upstream.url, ONE))
    upstream.reply(script)
    await asked(gateway.port, body)
    assert (await asked(gateway.port)).status == 200


async def test_who_finds_no_place_takes_nothing_else(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {**ONE, "rpm": 3}))
    upstream.reply([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, C0, [AUTH])
        await upstream.received(1)
        for _ in range(10):
            answer = await asked(gateway.port)
            assert answer.error["type"] == "concurrency"
            assert answer.header("x-ratelimit-remaining-requests") == "2"


async def test_who_waits_for_an_upstream_has_a_place_too(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"concurrency": 2}, upstream={"max_concurrency": 1}))
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    two = [asyncio.create_task(asked(gateway.port)) for _ in range(2)]
    await gateway.counted("sluice_upstream_queue_depth", 1)
    assert (await asked(gateway.port)).error["type"] == "concurrency"
    go_on.set()
    assert {one.status for one in await asyncio.gather(*two)} == {200}
