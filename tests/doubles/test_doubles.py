"""The doubles themselves: an upstream or a client that lies would make every other test worthless."""

import asyncio
import json

import pytest

from doubles import replies
from doubles.rawclient import RawClient, call
from doubles.script import (
    FIN,
    LAST_CHUNK,
    NEVER,
    RST,
    UNREAD,
    Act,
    Drip,
    Until,
    frame,
    head,
    sse_head,
    stream,
)
from doubles.sse import contents, data_of
from doubles.threaded import ThreadedUpstream
from doubles.upstream import FaultUpstream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "ping"}]}


async def test_a_healthy_upstream_answers_each_path_and_records_the_call(upstream: FaultUpstream) -> None:
    answer = await call(upstream.port, "POST", "/v1/chat/completions", CHAT, [("x-a", "1"), ("x-a", "2")])
    assert answer.complete
    assert answer.json()["model"] == "m"
    recorded = upstream.calls[0]
    assert recorded.json() == CHAT
    assert recorded.header("x-a") == ["1", "2"]
    assert recorded.body_read
    assert (recorded.method, recorded.target) == ("POST", "/v1/chat/completions")
    assert await upstream.peer_closed(1) == "fin"


async def test_a_stream_reads_as_its_events(upstream: FaultUpstream) -> None:
    answer = await call(upstream.port, "POST", "/v1/chat/completions", {**CHAT, "stream": True})
    assert answer.complete
    assert contents(answer.body) == "pong"
    assert data_of(answer.body)[-1] == "[DONE]"


@pytest.mark.parametrize(("last", "end"), [(FIN, "fin"), (RST, "rst")])
async def test_fin_and_rst_in_mid_body_are_told_apart(upstream: FaultUpstream, last: Act, end: str) -> None:
    upstream.reply([sse_head(), frame(b"data: 1\n\n"), last])
    async with await RawClient.open(upstream.port) as client:
        await client.request("POST", "/v1/x", b"{}")
        answer = await client.response()
    assert (answer.complete, answer.end) == (False, end)
    assert end == "rst" or answer.body == b"data: 1\n\n"


async def test_drip_is_read_byte_by_byte(upstream: FaultUpstream) -> None:
    upstream.reply([head(200, [("content-length", "3")]), Drip(b"abc")])
    answer = await call(upstream.port, "POST", "/v1/x", b"{}")
    assert answer.body == b"abc"


async def test_events_hold_a_script_and_in_flight_is_counted(upstream: FaultUpstream) -> None:
    go = asyncio.Event()
    upstream.always([Until(go), *stream(b"data: 1\n\n")])
    asking = [asyncio.create_task(call(upstream.port, "POST", "/v1/x", b"{}")) for _ in range(3)]
    await upstream.holding(3)
    go.set()
    assert all(answer.complete for answer in await asyncio.gather(*asking))
    await upstream.at_rest()
    assert upstream.most_in_flight == 3


async def test_a_peer_that_resets_is_seen_while_the_script_waits(upstream: FaultUpstream) -> None:
    upstream.reply([NEVER])
    client = await RawClient.open(upstream.port)
    await client.request("POST", "/v1/x", b"{}")
    await upstream.received(1)
    await client.reset()
    assert await upstream.peer_closed(1) == "rst"
    await upstream.idle()


async def test_unread_leaves_the_body_and_answers(upstream: FaultUpstream) -> None:
    upstream.reply([UNREAD, *replies.error(413)])
    async with await RawClient.open(upstream.port) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\ncontent-length: 1000\r\n\r\nonly this")
        assert (await client.response()).status == 413
    assert not upstream.calls[0].body_read


async def test_connections_are_reused_and_expire(upstream: FaultUpstream) -> None:
    upstream.keepalive = 0.05
    async with await RawClient.open(upstream.port) as client:
        for _ in range(2):
            await client.request("POST", "/v1/embeddings", {"model": "m", "input": "a"})
            await client.response()
        assert await client.ending() == "fin"
    assert [one.nth_on_connection for one in upstream.calls] == [1, 2]
    assert upstream.accepted == 1


async def test_a_chunked_request_body_is_put_together(upstream: FaultUpstream) -> None:
    upstream.reply(replies.chat())
    async with await RawClient.open(upstream.port) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.send(frame(b'{"a"') + frame(b":1}") + LAST_CHUNK)
        await client.response()
    assert upstream.calls[0].json() == {"a": 1}


def test_the_upstream_works_from_a_thread() -> None:
    with ThreadedUpstream() as threaded:
        answer = asyncio.run(call(threaded.upstream.port, "GET", "/v1/models"))
        assert json.loads(answer.body)["data"][0]["id"] == "up-small"
