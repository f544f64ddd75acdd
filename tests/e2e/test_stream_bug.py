"""A bug of the gateway in the middle of a stream: the client is told in the stream, which ends there."""

import asyncio
from dataclasses import replace
from typing import NoReturn

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import NEVER, frame, piece, sse_head
from doubles.settings import settings
from doubles.sse import final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, S0

from gateway.core.call import Call
from gateway.http.client.stream_relay import StreamRelay

BEAT = b": keep-alive\n\n"


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway whose heart beats fast."""
    return await start_gateway(settings(upstream.url, server={"heartbeat": "20ms"}))


async def told(gateway: InProcessGateway, client: RawClient, answer: Answer) -> None:
    """The stream ends with the error and nothing behind it, and so does the connection."""
    await client.rest(answer)
    assert (answer.status, answer.complete, answer.end) == (200, False, "fin")
    assert final_error(answer.body)["code"] == "internal_error"
    assert b"HTTP/1.1" not in answer.body
    await gateway.outcome("internal_error", status="200")


async def test_while_only_heartbeats_have_been_sent(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def handle(call: Call) -> NoReturn:
        await go_on.wait()
        raise RuntimeError("a bug")

    serve = gateway._gateway._serve
    serve.generation = replace(serve.generation, stack=replace(serve.generation.stack, handle=handle))
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        assert await client.chunk(answer) == BEAT
        go_on.set()
        await told(gateway, client, answer)
    assert "RuntimeError: a bug" in caplog.text
    assert answer.header("x-request-id") in {vars(one).get("request_id") for one in caplog.records}


async def test_when_the_upstream_has_begun(
    gateway: InProcessGateway, upstream: FaultUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach(relay: StreamRelay, client: object) -> NoReturn:
        raise RuntimeError("a bug")

    monkeypatch.setattr(StreamRelay, "attach", attach)
    upstream.reply([sse_head(), frame(piece("one")), NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        await told(gateway, client, await client.head())
    await upstream.peer_closed(1)
