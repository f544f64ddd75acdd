"""What every transport must do, on real sockets; rows are those of the fault matrix."""

import asyncio
from collections.abc import Callable

import pytest
from doubles.script import FIN, LAST_CHUNK, NEVER, RST, Drip, Pause, Until, frame, full, head, sse_head
from doubles.upstream import FaultUpstream
from transport_kit import Caller, Sink, make

from gateway.core.clock import monotonic
from gateway.core.errors import (
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    UpstreamFailure,
)
from gateway.http.ticker import Ticker

CHUNKED = [("transfer-encoding", "chunked")]


async def test_a_request_is_sent_unchanged(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([full(b'{"a":1}', headers=[("x-request-id", "up-1"), ("X-Request-Id", "up-2")])])
    exchange = await caller.send([b'{"model":', memoryview(b'"up"'), b"}"])
    assert await exchange.read(100, monotonic() + 5) == b'{"a":1}'
    assert exchange.status == 200
    assert exchange.headers.get("x-request-id") == "up-1"
    call = upstream.calls[0]
    assert call.body == b'{"model":"up"}'
    headers = {name.lower(): value for name, value in call.headers}
    assert headers["content-length"] == "14"
    assert headers["host"] == f"127.0.0.1:{upstream.port}"
    assert headers["authorization"] == "Bearer up-key"
    assert headers["x-request-id"] == "r1"
    assert len(headers) == len(call.headers)  # nothing twice
    assert "cookie" not in headers
    assert "expect" not in headers


async def test_large_bodies_pass_both_ways(caller: Caller, upstream: FaultUpstream) -> None:
    body = b"x" * 5_000_000
    upstream.reply([full(b'"' + body + b'"')])
    exchange = await caller.send([b'"', memoryview(body), b'"'])
    answer = await exchange.read(6_000_000, monotonic() + 10)
    assert answer == b'"' + body + b'"'
    assert upstream.calls[0].body == answer


@pytest.mark.parametrize("size", [1, 3])
async def test_the_answer_does_not_depend_on_how_it_is_cut(caller: Caller, upstream: FaultUpstream, size: int) -> None:
    answer = head(200, CHUNKED) + frame(b'{"a"') + frame(b":1}") + LAST_CHUNK
    upstream.reply([Drip(answer, size)])
    _, body = await caller.read()
    assert body == b'{"a":1}'


async def test_a_body_until_the_end_of_the_connection(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([head(200) + b'{"a":', b"1}", FIN])
    _, body = await caller.read()
    assert body == b'{"a":1}'


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(caller: Caller, upstream: FaultUpstream, status: int) -> None:
    upstream.always([head(status)])
    for _ in range(2):
        exchange, body = await caller.read()
        assert (exchange.status, body) == (status, b"")
    assert upstream.accepted == 1


async def test_connections_are_reused(caller: Caller, upstream: FaultUpstream) -> None:
    for _ in range(5):
        await caller.read()
    assert upstream.accepted == 1
    for again in (full(b"{}", headers=[("connection", "close")]), head(200) + b"{}"):
        upstream.reply([again, FIN])
        await caller.read()
    await caller.read()
    assert upstream.accepted == 3


async def test_row_13_a_stale_connection_is_retried_once_unseen(
    kind: str, caller: Caller, upstream: FaultUpstream
) -> None:
    if kind == "aiohttp":
        pytest.skip("aiohttp's client cannot tell whether the connection was a reused one")
    await caller.read()
    upstream.reply([FIN])
    _, body = await caller.read()
    assert body
    assert len(upstream.calls) == 3
    # On a fresh connection the same thing is a failure: the upstream may have begun to work.
    for connection in list(upstream.connections):
        connection.reset()
    await upstream.idle()
    upstream.reply([FIN])
    assert (await caller.failure()).kind is UPSTREAM_ERROR


async def test_row_1_a_closed_port(kind: str) -> None:
    async with FaultUpstream() as upstream:
        url = upstream.url
    sweep = Ticker(0.01, monotonic)
    transport = make(kind, url, sweep)
    failure = await Caller(transport).failure()
    assert failure.kind is UPSTREAM_UNAVAILABLE
    assert failure.as_rejection().retry_after is not None
    assert "127.0.0.1" not in failure.message
    await transport.close()


async def test_row_7_an_unknown_host(kind: str) -> None:
    sweep = Ticker(0.01, monotonic)
    transport = make(kind, "http://no-such-host.invalid/v1", sweep)
    failure = await Caller(transport).failure(connect_s=5, within=10)
    assert failure.kind is UPSTREAM_UNAVAILABLE
    assert "no-such-host" not in failure.message
    await transport.close()


async def test_row_11_tls_to_a_server_without_it(kind: str, upstream: FaultUpstream) -> None:
    upstream.always([b"this is no TLS\r\n", FIN])
    sweep = Ticker(0.01, monotonic)
    transport = make(kind, upstream.url.replace("http:", "https:"), sweep)
    failure = await Caller(transport).failure()
    assert failure.kind in (UPSTREAM_ERROR, UPSTREAM_UNAVAILABLE)
    await transport.close()


async def test_row_5_no_answer(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([NEVER])
    assert (await caller.failure(within=0.1)).kind is UPSTREAM_TIMEOUT
    await upstream.idle()


async def test_row_6_an_answer_that_does_not_end_in_time(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([head(200, [("content-length", "10")]) + b"12345", NEVER])
    assert (await caller.failure(within=0.1)).kind is UPSTREAM_TIMEOUT
    await upstream.idle()


@pytest.mark.parametrize("end", [FIN, RST])
@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\ncontent-"])
async def test_row_15_the_end_before_the_head(
    caller: Caller, upstream: FaultUpstream, begun: bytes, end: object
) -> None:
    upstream.reply([begun, end] if begun else [end])  # type: ignore[list-item]
    assert (await caller.failure()).kind in (UPSTREAM_ERROR, UPSTREAM_INVALID_RESPONSE)


@pytest.mark.parametrize("end", [FIN, RST])
@pytest.mark.parametrize(
    "begun",
    [
        head(200, [("content-length", "10")]) + b"12345",
        head(200, CHUNKED) + frame(b"12345"),
        head(200, CHUNKED) + b"9\r\n123",
    ],
)
async def test_row_27_the_end_in_the_body(caller: Caller, upstream: FaultUpstream, begun: bytes, end: object) -> None:
    upstream.reply([begun, Pause(0.02), end])  # type: ignore[list-item]
    assert (await caller.failure()).kind is UPSTREAM_ERROR
    await upstream.idle()


async def test_row_24_an_endless_body(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([head(200, CHUNKED), *[frame(b"x" * 65536)] * 100, NEVER])
    failure = await caller.failure(limit=200_000)
    assert failure.kind is UPSTREAM_INVALID_RESPONSE
    await upstream.idle()


async def test_row_25_an_endless_head(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([b"HTTP/1.1 200 OK\r\n", *[b"x-%d: %s\r\n" % (n, b"y" * 900) for n in range(400)], NEVER])
    assert (await caller.failure()).kind is UPSTREAM_INVALID_RESPONSE
    await upstream.idle()


async def test_row_25_many_small_headers(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(300)) + b"\r\n", NEVER])
    assert (await caller.failure()).kind is UPSTREAM_INVALID_RESPONSE


async def test_row_25_a_thousand_times_100(kind: str, caller: Caller, upstream: FaultUpstream) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    upstream.reply([interim + interim + full(b"{}")])
    _, body = await caller.read()
    assert body == b"{}"
    if kind == "httptools":  # aiohttp's client bounds them by time only
        upstream.reply([interim * 1000 + full(b"{}")])
        assert (await caller.failure()).kind is UPSTREAM_INVALID_RESPONSE


MALFORMED = {
    "length and chunks": head(200, [("content-length", "5"), *CHUNKED]) + frame(b"12345") + LAST_CHUNK,
    "two lengths": head(200, [("content-length", "5"), ("content-length", "6")]) + b"123456",
    "a list of lengths": head(200, [("content-length", "5, 6")]) + b"123456",
    "a negative length": head(200, [("content-length", "-1")]) + b"{}",
    "a length with a sign": head(200, [("content-length", "+2")]) + b"{}",
    "a bad chunk size": head(200, CHUNKED) + b"zz\r\n{}\r\n" + LAST_CHUNK,
    "a chunk size with a sign": head(200, CHUNKED) + b"+2\r\n{}\r\n" + LAST_CHUNK,
    "a chunk longer than told": head(200, CHUNKED) + b"2\r\n{}}}\r\n" + LAST_CHUNK,
    "an unknown coding": head(200, [("transfer-encoding", "gzip, identity")]) + b"{}",
    "no status line": b"200 OK\r\n\r\n{}",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\ncontent-length 2\r\n\r\n{}",
    "a NUL in a header": b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 2\r\n\r\n{}",
    "a switch of protocols": head(101, [("upgrade", "h2c"), ("connection", "upgrade")]),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_row_26_malformed_answers(caller: Caller, upstream: FaultUpstream, name: str) -> None:
    upstream.reply([MALFORMED[name], Pause(0.05), FIN])
    failure = await caller.failure()
    assert failure.kind in (UPSTREAM_INVALID_RESPONSE, UPSTREAM_ERROR), name
    await upstream.idle()


async def test_bytes_after_an_answer_end_the_connection(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([full(b'{"mine":1}') + full(b'{"not yours":1}')])
    try:
        _, body = await caller.read()
    except UpstreamFailure:
        pass  # refused at once is as good
    else:
        assert body == b'{"mine":1}'
    upstream.reply([full(b'{"mine":2}')])
    _, body = await caller.read()
    assert body == b'{"mine":2}'
    assert upstream.accepted == 2


async def test_unsolicited_bytes_end_an_idle_connection(caller: Caller, upstream: FaultUpstream) -> None:
    late = asyncio.Event()
    upstream.reply([full(b'{"mine":1}'), Until(late), full(b'{"not yours":1}')])
    await caller.read()
    late.set()
    await upstream.idle()
    upstream.reply([full(b'{"mine":2}')])
    _, body = await caller.read()
    assert body == b'{"mine":2}'


async def test_row_31_redirects_are_not_followed(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([full(b"", 307, headers=[("location", f"{upstream.url}/elsewhere")])])
    exchange, _ = await caller.read()
    assert exchange.status == 307
    assert len(upstream.calls) == 1


async def test_row_32_cookies_are_not_stored(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([full(b"{}", headers=[("set-cookie", "a=b; Path=/")])])
    await caller.read()
    await caller.read()
    assert "cookie" not in {name.lower() for name, _ in upstream.calls[1].headers}


async def test_a_stream_is_pumped_as_it_comes(caller: Caller, upstream: FaultUpstream) -> None:
    go_on = asyncio.Event()
    upstream.reply([sse_head(), frame(b"data: 1\n\n"), Until(go_on), frame(b"data: 2\n\n"), LAST_CHUNK])
    exchange, sink = await caller.send(), Sink()
    exchange.pump(sink)
    await until(lambda: sink.body == b"data: 1\n\n")
    go_on.set()
    await until(lambda: sink.end is not None)
    assert (sink.body, sink.end) == (b"data: 1\n\ndata: 2\n\n", "ended")


@pytest.mark.parametrize("end", [FIN, RST])
async def test_rows_35_36_a_stream_that_dies(caller: Caller, upstream: FaultUpstream, end: object) -> None:
    upstream.reply([sse_head(), frame(b"data: 1\n\n"), Pause(0.05), end])  # type: ignore[list-item]
    exchange, sink = await caller.send(), Sink()
    exchange.pump(sink)
    await until(lambda: sink.end is not None)
    assert isinstance(sink.end, UpstreamFailure)
    assert sink.end.kind is UPSTREAM_ERROR
    assert sink.body == b"data: 1\n\n"


async def test_a_paused_stream_holds_up_its_upstream(caller: Caller, upstream: FaultUpstream) -> None:
    piece = frame(b"x" * 65536)
    upstream.reply([sse_head(), *[piece] * 400, LAST_CHUNK])  # 26 MB
    exchange, sink = await caller.send(), Sink()
    exchange.pump(sink)
    exchange.pause()
    held = -1
    while held != len(sink.body):  # what was under way still comes, then no more
        held = len(sink.body)
        await turns(50)
    assert held < 2_000_000
    exchange.resume()
    await until(lambda: sink.end is not None)
    assert len(sink.body) == 400 * 65536


@pytest.mark.parametrize("when", ["before the head", "in the body", "while pumping", "paused"])
async def test_cancelling_closes_the_connection(caller: Caller, upstream: FaultUpstream, when: str) -> None:
    begun = [] if when == "before the head" else [sse_head(), frame(b"data: 1\n\n")]
    upstream.reply([*begun, NEVER])
    if when == "before the head":
        task = asyncio.create_task(caller.send())
        await upstream.received(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        exchange = await caller.send()
        if when != "in the body":
            exchange.pump(Sink())
        if when == "paused":
            exchange.pause()
        exchange.abort()
        exchange.abort()  # a second time does nothing
    await upstream.idle(within=1)


async def test_aborting_a_finished_answer_does_not_affect_the_next_call(
    caller: Caller, upstream: FaultUpstream
) -> None:
    first, _ = await caller.read()
    go_on = asyncio.Event()
    upstream.reply([Until(go_on), full(b'{"second":1}')])
    second = asyncio.create_task(caller.read())
    await upstream.received(2)
    first.abort()
    go_on.set()
    _, body = await second
    assert body == b'{"second":1}'
    assert upstream.accepted == 1


async def test_idle_connections_close_before_the_upstream_closes_them(
    kind: str, caller: Caller, upstream: FaultUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "aiohttp":
        pytest.skip("the keep-alive time of aiohttp's connector is aiohttp's to test")
    monkeypatch.setattr("gateway.http.client.h1_pool.POOL_KEEPALIVE_S", 0.05)
    await caller.read()
    await upstream.idle()


async def test_300_calls_at_once_are_300_in_flight(caller: Caller, upstream: FaultUpstream) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), full(b"{}")])
    calls = [asyncio.create_task(caller.read()) for _ in range(300)]
    await upstream.holding(300, within=10)
    go_on.set()
    assert {body for _, body in await asyncio.gather(*calls)} == {b"{}"}


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def until(true: Callable[[], bool], within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0)
