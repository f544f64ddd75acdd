"""Every failure has a cause, the same on both transports; retries and circuit breakers depend on it."""

import asyncio
import socket

import pytest
from doubles.script import FIN, NEVER, RST, Pause, Step, Until, frame, head
from doubles.upstream import FaultUpstream
from transport_kit import Caller, Sink, make

from gateway.core.clock import monotonic
from gateway.core.errors import (
    CONNECT,
    FIRST_BYTE,
    INVALID,
    RESET,
    TLS,
    TOO_LARGE,
    TOTAL,
    UPSTREAM_ERROR,
    UPSTREAM_UNAVAILABLE,
    Cause,
    UpstreamFailure,
)
from gateway.http.ticker import Ticker

CHUNKED = [("transfer-encoding", "chunked")]
LENGTH = [("content-length", "10")]

ANSWERS: dict[str, tuple[list[Step], Cause]] = {
    "the end before the head": ([FIN], RESET),
    "a reset before the head": ([RST], RESET),
    "the end within the status line": ([b"HTTP/1.1 2", Pause(0.01), FIN], RESET),
    "the end within the head": ([b"HTTP/1.1 200 OK\r\ncontent-", Pause(0.01), FIN], RESET),
    "a reset within the head": ([b"HTTP/1.1 200 OK\r\ncontent-", Pause(0.01), RST], RESET),
    "a short body": ([head(200, LENGTH) + b"12345", FIN], RESET),
    "a reset in the body": ([head(200, LENGTH) + b"12345", Pause(0.01), RST], RESET),
    "the end between chunks": ([head(200, CHUNKED) + frame(b"12345"), FIN], RESET),
    "the end within a chunk": ([head(200, CHUNKED) + b"9\r\n123", FIN], RESET),
    "no HTTP": ([b"SSH-2.0-OpenSSH_9.2\r\n", NEVER], INVALID),
    "two framings": ([head(200, [*LENGTH, *CHUNKED]) + frame(b"12345"), NEVER], INVALID),
    "an unknown framing": ([head(200, [("transfer-encoding", "gzip")]) + b"{}", NEVER], INVALID),
    "too large": ([head(200, CHUNKED), *[frame(b"x" * 65536)] * 4, NEVER], TOO_LARGE),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_broken_answer_has_its_cause(caller: Caller, upstream: FaultUpstream, name: str) -> None:
    script, cause = ANSWERS[name]
    upstream.reply(script)
    assert (await caller.failure(limit=200_000)).cause == cause


@pytest.mark.parametrize("late", [FIRST_BYTE, TOTAL])
async def test_no_head_by_the_deadline_has_the_cause_of_the_deadline(
    caller: Caller, upstream: FaultUpstream, late: Cause
) -> None:
    upstream.reply([NEVER])
    assert (await caller.failure(within=0.1, late=late)).cause == late


async def test_a_late_body_has_the_cause_total(caller: Caller, upstream: FaultUpstream) -> None:
    upstream.reply([head(200, LENGTH) + b"12345", NEVER])
    assert (await caller.failure(within=0.1, late=FIRST_BYTE)).cause == TOTAL


@pytest.mark.parametrize("end", [FIN, RST])
async def test_a_stream_that_dies(caller: Caller, upstream: FaultUpstream, end: Step) -> None:
    go_on = asyncio.Event()
    upstream.reply([head(200, CHUNKED), frame(b"data: 1\n\n"), Until(go_on), end])
    exchange, sink = await caller.send(), Sink()
    exchange.pump(sink)
    go_on.set()
    async with asyncio.timeout(5):
        while sink.end is None:
            await asyncio.sleep(0)
    assert isinstance(sink.end, UpstreamFailure)
    assert sink.end.cause == RESET


async def _fails(kind: str, url: str, connect_s: float = 5.0) -> UpstreamFailure:
    sweep = Ticker(0.01, monotonic)
    transport = make(kind, url, sweep)
    try:
        return await Caller(transport).failure(connect_s=connect_s, within=10)
    finally:
        await transport.close()
        sweep.close()


async def test_a_closed_port_was_never_connected(kind: str) -> None:
    async with FaultUpstream() as upstream:
        url = upstream.url
    assert (await _fails(kind, url)).cause == CONNECT


async def test_an_unknown_name_was_never_connected(kind: str) -> None:
    assert (await _fails(kind, "http://no-such-host.invalid/v1")).cause == CONNECT


async def test_a_full_backlog_is_a_connect_timeout(kind: str) -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)  # Linux keeps one connection that nobody has accepted, and answers no further SYN
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        failure = await _fails(kind, f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", connect_s=0.1)
    assert (failure.cause, failure.kind) == (CONNECT, UPSTREAM_UNAVAILABLE)


async def test_a_handshake_that_stalls_is_a_connection_that_was_not_made_in_time(
    kind: str, upstream: FaultUpstream
) -> None:
    upstream.deaf = True
    failure = await _fails(kind, upstream.url.replace("http:", "https:"), connect_s=0.1)
    assert (failure.cause, failure.kind) == (CONNECT, UPSTREAM_UNAVAILABLE)


async def test_a_handshake_with_a_server_without_tls_is_tls(kind: str) -> None:
    async def talk_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk_plainly, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        failure = await _fails(kind, f"https://127.0.0.1:{port}/v1")
    assert (failure.cause, failure.kind) == (TLS, UPSTREAM_ERROR)
