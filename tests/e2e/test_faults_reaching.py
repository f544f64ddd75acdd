"""An upstream that cannot be reached, in whichever way: found out in time, and another one takes the call."""

import asyncio
import errno
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.limited import FrozenClock
from doubles.routed import routed
from doubles.script import Until
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask
from doubles.waiting import eventually

from gateway.http.client import resolver
from gateway.http.client.transport import MAX_AGE_S

KINDS = pytest.mark.parametrize("kind", ["httptools", "aiohttp"])
NAME = "engine.example"
"""A host whose addresses a test decides."""


def section(kind: str, **timeouts: str) -> dict[str, Any]:
    return {"transport": kind, "timeouts": {"connect": "200ms", **timeouts}}


Connect = Callable[[int], Any]


@pytest.fixture
async def connecting(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Connect], None]:
    """Lets a test decide what becomes of connections to a port."""
    loop = asyncio.get_running_loop()
    real, decided = loop.sock_connect, {}

    async def connect(sock: socket.socket, address: Any) -> None:
        if address[1] in decided:
            await decided[address[1]]()
        await real(sock, address)

    monkeypatch.setattr(loop, "sock_connect", connect)
    return decided.__setitem__


async def nothing_comes_back() -> None:
    """A black hole."""
    await asyncio.Event().wait()


@KINDS
@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH])
async def test_row_3_unreachable(
    kind: str,
    number: int,
    connecting: Any,
    other: FaultUpstream,
    upstream: FaultUpstream,
    start_gateway: StartGateway,
) -> None:
    async def unreachable() -> None:
        raise OSError(number, "unreachable")

    connecting(upstream.port, unreachable)
    gateway = await start_gateway(routed(upstream.url, other.url, upstream=section(kind)))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    await gateway.counted("sluice_retries_total", 1, upstream="a", reason="connect")
    assert upstream.accepted == 0


@KINDS
async def test_row_2_a_black_hole_costs_the_time_to_connect_and_no_more(
    kind: str, connecting: Any, other: FaultUpstream, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    connecting(upstream.port, nothing_comes_back)
    gateway = await start_gateway(routed(upstream.url, other.url, upstream=section(kind)))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    await gateway.counted("sluice_retries_total", 1, upstream="a", reason="connect")


@KINDS
async def test_row_2_alone_it_is_a_503(
    kind: str, connecting: Any, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    connecting(upstream.port, nothing_comes_back)
    config = routed(upstream.url, upstream=section(kind), retry={"attempts": 1})
    gateway = await start_gateway(config)
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (503, "upstream_unavailable")
    assert answer.header("retry-after") == "1"


# Names.


@pytest.fixture
async def naming(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """Lets a test decide, by `ports`, where NAME is, or by `silent` that nobody says.

    Each port is behind an address of its own, which the fixture leads to that port of 127.0.0.1.
    """
    loop = asyncio.get_running_loop()
    real, real_connect, silence = resolver.system_lookup, loop.sock_connect, threading.Event()
    names: dict[str, Any] = {"silent": False, "ports": [], "asked": 0}

    def lookup(host: str) -> Any:
        if host != NAME:
            return real(host)
        names["asked"] += 1
        if names["silent"]:
            silence.wait()
        addresses = [(f"127.{port >> 8}.{port & 255}.99", 0) for port in names["ports"]]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", one) for one in addresses]

    async def connect(sock: socket.socket, address: Any) -> None:
        parts = address[0].split(".")
        if parts[-1] == "99":
            address = ("127.0.0.1", int(parts[1]) << 8 | int(parts[2]))
        await real_connect(sock, address)

    monkeypatch.setattr(resolver, "system_lookup", lookup)
    monkeypatch.setattr(loop, "sock_connect", connect)
    yield names
    silence.set()


@KINDS
async def test_row_8_a_silent_name_server_costs_the_time_to_connect_and_no_more(
    kind: str, naming: dict[str, Any], other: FaultUpstream, start_gateway: StartGateway
) -> None:
    naming["silent"] = True
    gateway = await start_gateway(routed(f"http://{NAME}:80/v1", other.url, upstream=section(kind)))
    answers = await asyncio.gather(*(ask(gateway.port, C0) for _ in range(3)))
    assert {answer.header("x-sluice-upstream") for answer in answers} == {"b"}
    assert naming["asked"] > 0
    await gateway.counted("sluice_upstream_inflight", 0)


async def test_row_9_ops_13_an_upstream_that_moves_is_found_at_once(
    naming: dict[str, Any],
    upstream: FaultUpstream,
    other: FaultUpstream,
    start_gateway: StartGateway,
) -> None:
    """With the other transport within the ten seconds for which aiohttp keeps addresses."""
    naming["ports"] = [upstream.port]
    gateway = await start_gateway(routed(f"http://{NAME}:80/v1", upstream=section("httptools")))
    assert (await ask(gateway.port, C0)).status == 200
    await upstream.stop()
    naming["ports"] = [other.port]
    assert (await ask(gateway.port, C0)).status == 200
    assert len(other.calls) == 1


@KINDS
async def test_ops_13_a_move_is_followed_while_the_old_address_answers(
    kind: str,
    naming: dict[str, Any],
    upstream: FaultUpstream,
    other: FaultUpstream,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that is in use all the time is replaced within a bounded time."""
    clock = FrozenClock(monkeypatch)
    monkeypatch.setattr("aiohttp.connector._DNSCacheTable.expired", lambda *_: True)
    naming["ports"] = [upstream.port]
    gateway = await start_gateway(routed(f"http://{NAME}:80/v1", upstream=section(kind)))
    for _ in range(3):
        assert (await ask(gateway.port, C0)).status == 200
    assert {one.connection for one in upstream.calls} == {upstream.calls[0].connection}
    naming["ports"] = [other.port]
    clock.passes(MAX_AGE_S + 16)
    for _ in range(2):
        assert (await ask(gateway.port, C0)).status == 200
    assert len(other.calls) >= 1
    await gateway.counted("sluice_upstream_attempts_total", 5, result="success")


@KINDS
async def test_row_8_a_silent_name_server_holds_up_no_other_upstream(
    kind: str, naming: dict[str, Any], other: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Neither its fallbacks nor calls to other models, whose connections are all new."""
    naming["silent"] = True
    urls, enough = (f"http://{NAME}:80/v1", other.url), {"budget": 10.0}
    config = routed(*urls, fallbacks=(other.url,), upstream=section(kind), retry=enough)
    gateway = await start_gateway(config)
    other.keepalive = 0.0
    calls = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(8)]
    for _ in range(8):
        answer = await ask(gateway.port, {**C0, "model": "m-x"})
        assert (answer.status, answer.header("x-sluice-upstream")) == (200, "x")
    answers = await asyncio.gather(*calls)
    assert {(one.status, one.header("x-sluice-upstream")) for one in answers} == {(200, "b")}
    assert naming["asked"] == 1
    await gateway.counted("sluice_upstream_attempts_total", 8, upstream="x", result="success")


@KINDS
async def test_ops_13_of_several_addresses_a_dead_one_is_skipped(
    kind: str, naming: dict[str, Any], upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and nobody listens
        naming["ports"] = [reserved.getsockname()[1], upstream.port]
        config = routed(f"http://{NAME}:80/v1", upstream=section(kind), retry={"attempts": 1})
        gateway = await start_gateway(config)
        assert (await ask(gateway.port, C0)).status == 200
    await gateway.counted("sluice_upstream_attempts_total", 1)


async def test_ops_13_several_addresses_share_the_connections(
    naming: dict[str, Any], upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    naming["ports"] = [upstream.port, other.port]
    gateway = await start_gateway(routed(f"http://{NAME}:80/v1", upstream=section("httptools")))
    go_on = asyncio.Event()
    for one in (upstream, other):
        one.always([Until(go_on), *replies.chat()])
    calls = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(20)]
    await eventually(lambda: upstream.in_flight + other.in_flight == 20, "all are there")
    assert (upstream.in_flight, other.in_flight) == (10, 10)
    go_on.set()
    assert {answer.status for answer in await asyncio.gather(*calls)} == {200}


async def test_a_server_that_acknowledges_nothing_is_given_up_within_half_a_minute(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """The kernel's own time-out, which no test waits for; without it a quarter of an hour."""
    gateway = await start_gateway(routed(upstream.url, upstream=section("httptools")))
    assert (await ask(gateway.port, C0)).status == 200
    (idle,) = gateway._gateway.upstream_transport("a")._idle  # type: ignore[attr-defined]
    sock = idle._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


# TLS.


@pytest.fixture
async def self_signed(tmp_path: Path) -> AsyncIterator[str]:
    """The base URL of a server whose certificate nobody vouches for."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: it makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
    server.close()
    await server.wait_closed()


@KINDS
async def test_row_11_a_certificate_that_nobody_vouches_for(
    kind: str, self_signed: str, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Neither tried again nor without TLS; another upstream may be in order."""
    gateway = await start_gateway(routed(self_signed, upstream=section(kind, connect="5s"), retry={"attempts": 5}))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert answer.error["message"] == ("The TLS handshake with upstream `a` failed: its certificate is self-signed.")
    assert answer.header("x-sluice-attempts") == "1"
    await gateway.counted("sluice_upstream_attempts_total", 1, result="fatal")
    second = await start_gateway(routed(self_signed, other.url, upstream=section(kind, connect="5s")))
    assert (await ask(second.port, C0)).header("x-sluice-upstream") == "b"
