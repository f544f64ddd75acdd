"""A drain that begins in the middle of a request: what is on its way is served, then there is an end."""

import asyncio

from doubles import replies
from doubles.gateway import InProcessGateway
from doubles.narrow import narrowed
from doubles.rawclient import RawClient, request_bytes
from doubles.script import LAST_CHUNK, Until, frame, full, sse_head
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0
from doubles.waiting import eventually

EVENTS = replies.chat_events("one", "two")


async def draining(gateway: InProcessGateway) -> "asyncio.Task[None]":
    """The gateway stops, and takes no new call any more."""
    stopping = asyncio.create_task(gateway.stop())
    await eventually(lambda: gateway._gateway._serve.closed, "no new call is taken")
    return stopping


async def test_ops_01_the_rest_of_a_body_is_taken_and_the_call_served(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    asked = request_bytes("POST", CHAT, C0)
    async with await RawClient.open(gateway.port) as client:
        await client.send(asked[:-20])
        await eventually(lambda: gateway._gateway._serve.open_calls, "the head has come")
        stopping = await draining(gateway)
        await client.send(asked[-20:])
        answer = await client.response()
        assert (answer.status, answer.complete) == (200, True)
        assert answer.header("connection") == "close"
        assert await client.ending() == "fin"
    await stopping
    assert [one.json()["messages"] for one in upstream.calls] == [C0["messages"]]


async def test_ops_01_a_stream_that_ends_in_the_delay_ends_its_connection(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    go_on = asyncio.Event()
    upstream.reply([sse_head(), frame(EVENTS[0]), Until(go_on), *map(frame, EVENTS[1:]), LAST_CHUNK])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        await client.chunk(answer)
        gateway._gateway._serve.draining = True  # as in the delay, in which nothing else has changed yet
        go_on.set()
        await client.rest(answer)
        assert (answer.complete, contents(answer.body)) == (True, "onetwo")
        assert await client.ending() == "fin"


async def test_ops_01_behind_an_answer_given_before_the_connection_is_closed(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    """Its head says that it stays open; it is not left so until the others have ended."""
    go_on = asyncio.Event()
    body = b'{"x":"' + b"y" * 300_000 + b'"}'
    upstream.reply([full(body)], [Until(go_on), *replies.chat()])
    async with await RawClient.open(gateway.port, receive_buffer=4096) as client:
        transport = await narrowed(gateway, client)
        await client.request("POST", CHAT, C0)
        await eventually(lambda: transport.get_write_buffer_size() > 0, "the answer has been written")
        async with await RawClient.open(gateway.port) as other:
            await other.request("POST", CHAT, C0)
            await upstream.received(2)
            stopping = await draining(gateway)
            answer = await client.response()
            assert (answer.header("connection"), answer.body) == (None, body)
            assert await client.ending() == "fin"
            go_on.set()
            assert (await other.response()).status == 200
            await stopping
