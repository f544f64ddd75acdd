"""Answers that are too large, oddly encoded or oddly framed: bounded, never passed on as something else."""

import asyncio
import time

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.routed import routed
from doubles.script import FIN, LAST_CHUNK, NEVER, Step, frame, full, head, piece, sse_head
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask

CHUNKED = [("transfer-encoding", "chunked")]


@pytest.mark.parametrize("kind", ["httptools", "aiohttp"])
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_row_23_an_error_page_of_50_mb_is_hardly_read(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, object], kind: str
) -> None:
    config = routed(upstream.url, retry={"attempts": 1}, upstream={"transport": kind})
    gateway = await start_gateway(config)
    page = b"<html>secret" + b"x" * 65524
    upstream.reply([head(500, [("content-type", "text/html"), *CHUNKED]), *[frame(page)] * 800, LAST_CHUNK])
    answer = await ask(gateway.port, body)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert "html" not in answer.error["message"]
    assert "secret" not in answer.error["message"]
    await upstream.peer_closed(1)
    assert upstream.calls[0].sent < 20_000_000  # what was in the sockets' buffers
    assert (await ask(gateway.port, C0)).status == 200


CODEPOINTS = {
    "a NUL": rb'"a\u0000b"',
    "a lone surrogate": rb'"a\ud800b"',
    "surrogates the wrong way round": rb'"\udc00\ud800"',
    "a byte-order mark inside": b'"\xef\xbb\xbfx"',
    "a very long number": b"1" * 1000,
    "deep": b"[" * 500 + b"]" * 500,
}


@pytest.mark.parametrize("name", CODEPOINTS)
async def test_row_29_odd_json_passes_byte_for_byte_or_is_a_502(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    sent = b'{"id":"c1","model":"up-small","odd":%b,"choices":[]}' % CODEPOINTS[name]
    upstream.reply([full(sent)])
    answer = await ask(gateway.port, C0)
    if answer.status == 200:
        assert answer.body == sent.replace(b"up-small", b"m-small")
    else:
        assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
    await gateway.counted("sluice_requests_total", 0, outcome="internal_error")
    assert (await ask(gateway.port, C0)).status == 200


@pytest.mark.parametrize("name", CODEPOINTS)
async def test_row_29_the_same_in_a_stream(gateway: InProcessGateway, upstream: FaultUpstream, name: str) -> None:
    odd = b'data: {"model":"up-small","odd":%b,"choices":[]}\n\n' % CODEPOINTS[name]
    upstream.reply([sse_head(), frame(piece("one")), frame(odd), *replies.chat_stream("two")[1:]])
    answer = await ask(gateway.port, S0)
    if answer.complete:
        assert odd.replace(b"up-small", b"m-small") in answer.body
    else:
        assert b'data: {"error":' in answer.body
    await gateway.counted("sluice_requests_total", 0, outcome="internal_error")


async def test_row_33_trailers_end_at_the_gateway(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    whole = replies.chat()[0]
    assert isinstance(whole, bytes)
    body = whole.partition(b"\r\n\r\n")[2]
    told = [("content-type", "application/json"), ("trailer", "x-secret"), *CHUNKED]
    upstream.reply([head(200, told), frame(body), b"0\r\nx-secret: of the upstream\r\n\r\n"])
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.complete) == (200, True)
    assert b"x-secret" not in answer.head + answer.body
    assert (await ask(gateway.port, C0)).status == 200
    first, second = upstream.calls
    assert first.connection == second.connection


LATE: dict[str, list[Step]] = {
    "row 6 an answer after the deadline": [NEVER],
    "row 14 a peer that vanished in the head": [b"HTTP/1.1 200 OK\r\ncontent-", NEVER],
    "row 14 a peer that vanished in the body": [head(200, [("content-length", "50")]) + b"{", NEVER],
}


@pytest.mark.parametrize("kind", ["httptools", "aiohttp"])
@pytest.mark.parametrize("name", LATE)
async def test_a_connection_that_was_given_up_is_never_used_again(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, kind: str
) -> None:
    section = {"transport": kind, "timeouts": {"total": "200ms"}}
    gateway = await start_gateway(routed(upstream.url, upstream=section))
    upstream.reply(LATE[name])
    assert (await ask(gateway.port, C0)).status == 504
    await upstream.peer_closed(1)
    assert (await ask(gateway.port, C0)).status == 200
    first, second = upstream.calls
    assert first.connection != second.connection


async def test_row_20_row_64_a_clock_that_is_wrong_by_an_hour_changes_no_pause(
    upstream: FaultUpstream, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A date is understood by the upstream's own clock."""
    for hours in (-1, 1):
        monkeypatch.setattr(
            "gateway.http.client.upstream.unix_now", lambda hours=hours: int(time.time()) + 3600 * hours
        )
        gateway = await start_gateway(routed(upstream.url, retry={"backoff_max": "3s"}))
        dates = [
            ("date", "Sun, 29 Nov 2026 10:00:00 GMT"),
            ("retry-after", "Sun, 29 Nov 2026 10:00:05 GMT"),
        ]
        upstream.reply(replies.error(429, headers=dates))
        answer = await ask(gateway.port, C0)
        assert (answer.status, answer.header("retry-after")) == (429, "5")


async def test_ops_04_calls_that_hang_at_one_upstream_leave_another_alone(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """More of them than any pool of connections would hold, were it one for all."""
    async with FaultUpstream() as other:
        config = routed(upstream.url, fallbacks=(other.url,), upstream={"max_concurrency": 200})
        gateway = await start_gateway(config)
        upstream.always([NEVER])
        hanging = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(150)]
        await upstream.holding(150)
        assert (await ask(gateway.port, {**C0, "model": "m-x"})).status == 200
        for one in hanging:
            one.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await gateway.counted("sluice_upstream_inflight", 0)


async def test_row_27_what_follows_a_short_body_is_not_taken_for_the_rest(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.reply([head(200, [("content-length", "100")]) + b'{"choices":[]}', FIN])
    answer = await ask(gateway.port, C0)
    assert answer.status == 200
    assert answer.json()["choices"][0]["message"]["content"] == "pong"
    assert len(upstream.calls) == 2
