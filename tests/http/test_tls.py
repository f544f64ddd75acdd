"""TLS to upstreams: private CAs, and a reason for each way in which a certificate or a handshake fails."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from doubles import replies
from transport_kit import FIXED, KINDS, Caller

from gateway.assembly.cascade import checked
from gateway.cli.check_upstreams import ask_all
from gateway.config.load import load
from gateway.core.clock import monotonic
from gateway.core.errors import TLS, UPSTREAM_ERROR, UpstreamFailure
from gateway.http.client.aiohttp_transport import AiohttpTransport
from gateway.http.client.engine_metrics import EngineMetricsPoller, MetricsSource
from gateway.http.client.h1_pool import H1Transport
from gateway.http.client.tls import client_context
from gateway.http.client.transport import Transport
from gateway.http.ticker import Ticker

LISTING = b'{"object":"list","data":[{"id":"m"}]}'
PAGE = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Authority:
    """A company's own CA, and the certificates that it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pem = folder / "ca.pem"
        subject = ["-subj", "/CN=Our CA", "-addext", "keyUsage=critical,keyCertSign"]
        self._openssl("req", "-x509", *_NEW_KEY, *subject, "-keyout", "ca.key", "-out", "ca.pem", "-days", "9")
        (folder / "index.txt").touch()
        (folder / "index.txt.attr").write_text("unique_subject = no\n", encoding="utf-8")
        (folder / "serial").write_text("01\n", encoding="utf-8")
        (folder / "ca.cnf").write_text(_CA, encoding="utf-8")

    def server(
        self, name: str, host: str = "DNS:localhost", dates: tuple[str, str] | None = None, usage: str = ""
    ) -> ssl.SSLContext:
        """The context of a server with a certificate for this host."""
        lines = [f"subjectAltName={host}", *([f"extendedKeyUsage={usage}"] if usage else [])]
        (self.folder / "ext.cnf").write_text("\n".join(lines), encoding="utf-8")
        self._openssl("req", "-new", *_NEW_KEY, "-subj", "/CN=x", "-keyout", f"{name}.key", "-out", "x.csr")
        days = ("-startdate", dates[0], "-enddate", dates[1]) if dates else ("-days", "5")
        ca = ["-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-extfile", "ext.cnf", *days]
        self._openssl("ca", "-batch", "-notext", *ca, "-in", "x.csr", "-out", f"{name}.pem")
        return _context(self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def self_signed(self) -> ssl.SSLContext:
        """The context of a server that nobody vouches for."""
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        self._openssl("req", "-x509", *_NEW_KEY, *subject, "-keyout", "self.key", "-out", "self.pem")
        return _context(self.folder / "self.pem", self.folder / "self.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60, cwd=self.folder)


_CA = """
[ca]
default_ca = ours
[ours]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
[any]
commonName = supplied
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


Serve = Callable[[ssl.SSLContext | None], Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers that give every request one good answer; returns their base URLs."""
    servers = []
    chat = b"".join(step for step in replies.chat() if isinstance(step, bytes))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            tls = writer.get_extra_info("ssl_object") is not None
            head = await reader.readuntil(b"\r\n\r\n") if tls else b"GET" + await reader.read(1)
            body = PAGE if b"/metrics" in head else LISTING
            plain = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            writer.write(chat if head.startswith(b"POST") else plain)
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def start(context: ssl.SSLContext | None) -> str:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        servers.append(server)
        return f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()
    await _ends_of_connections()


async def _ends_of_connections() -> None:
    """Lets the event loop see the ends of connections that clients have just closed, handshakes among them."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def sweep() -> AsyncIterator[Ticker]:
    one = Ticker(0.01, monotonic)
    yield one
    one.close()


def pool(kind: str, url: str, ca_file: Path | None, sweep: Ticker) -> Transport:
    tls = client_context(url, str(ca_file) if ca_file else None)
    if kind == "httptools":
        return H1Transport("up", url, FIXED, sweep, monotonic, tls=tls)
    return AiohttpTransport("up", url, FIXED, tls=tls)


async def finding(folder: Path, url: str, *, transport: str = "httptools", ca_file: Path | None = None) -> str:
    """What `check --connect` says."""
    file = folder / "sluice.yaml"
    ca = f", ca_file: {ca_file}" if ca_file else ""
    file.write_text(
        f"upstreams: {{up: {{base_url: '{url}', transport: {transport}{ca}}}}}\n"
        "models: {m: {candidates: [{upstream: up}]}}\n",
        encoding="utf-8",
    )
    config = checked(load(file, {})).config
    assert config is not None
    (found,) = await ask_all(config)
    return found.message


@pytest.mark.parametrize("kind", KINDS)
async def test_a_private_ca_is_added_to_the_systems(
    kind: str, authority: Authority, serve: Serve, sweep: Ticker, tmp_path: Path
) -> None:
    url = await serve(authority.server("good"))
    transport = pool(kind, url, authority.pem, sweep)
    assert (await Caller(transport).read())[0].status == 200
    await transport.close()
    assert await finding(tmp_path, url, transport=kind, ca_file=authority.pem) == "ok, 1 model"
    context, plain = client_context(url, str(authority.pem)), ssl.create_default_context()
    assert context is not None
    assert context.cert_store_stats()["x509_ca"] == plain.cert_store_stats()["x509_ca"] + 1


async def test_the_engines_own_metrics_are_read_with_it_too(authority: Authority, serve: Serve) -> None:
    url = await serve(authority.server("good"))
    source = MetricsSource("vllm", url, [], str(authority.pem))
    poller = EngineMetricsPoller({"up": source}, monotonic)
    async with asyncio.timeout(20):
        while (load := poller.of("up", monotonic())) is None:
            await asyncio.sleep(0.01)
    assert (load.running, load.waiting) == (1, 2)
    await poller.close()


class Case:
    """A way to fail: the server, and the reason."""

    def __init__(self, make: Callable[[Authority], ssl.SSLContext | None], reason: str, advice: str) -> None:
        self.make = make
        self.reason = reason
        self.advice = advice


def _asks_for_a_certificate(authority: Authority) -> ssl.SSLContext:
    context = authority.server("asks")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.pem)
    return context


EXPIRED = ("20200101000000Z", "20200201000000Z")
FUTURE = ("20900101000000Z", "20910101000000Z")
CASES = {
    "untrusted": Case(lambda ca: ca.server("lone"), "its certificate is signed by a CA that is not trusted", "ca_file"),
    "self-signed": Case(lambda ca: ca.self_signed(), "its certificate is self-signed", "ca_file"),
    "expired": Case(lambda ca: ca.server("late", dates=EXPIRED), "its certificate has expired", ""),
    "not yet valid": Case(lambda ca: ca.server("early", dates=FUTURE), "its certificate is not valid yet", ""),
    "wrong host": Case(
        lambda ca: ca.server("other", "DNS:elsewhere.test"),
        "its certificate is for another host",
        "check the host in base_url",
    ),
    "wrong usage": Case(
        lambda ca: ca.server("client", usage="clientAuth"), "its certificate is not made for servers", ""
    ),
    "plain": Case(lambda ca: None, "it does not speak TLS", ""),
}
TRUSTING = {"expired", "not yet valid", "wrong host", "wrong usage"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
async def test_each_failure_has_its_reason(
    name: str, kind: str, authority: Authority, serve: Serve, sweep: Ticker, tmp_path: Path
) -> None:
    case, ca_file = CASES[name], authority.pem if name in TRUSTING else None
    url = await serve(case.make(authority))
    transport = pool(kind, url, ca_file, sweep)
    failure = await Caller(transport).failure(connect_s=5.0)
    await transport.close()
    assert (failure.kind, failure.cause) == (UPSTREAM_ERROR, TLS)
    assert failure.message.startswith(f"The TLS handshake with upstream `up` failed: {case.reason}")
    assert "localhost" not in failure.message
    said = await finding(tmp_path, url, transport=kind, ca_file=ca_file)
    assert case.reason in said or (name == "plain" and "does it speak http instead of https?" in said)
    assert case.advice in said


def test_an_upstream_that_asks_for_a_clients_certificate(authority: Authority) -> None:
    """TLS 1.3 says so only after the handshake. On the loop that serves: the standard one hides the reason."""
    context = _asks_for_a_certificate(authority)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve_one() -> None:
            accepted, _ = listening.accept()
            with context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as tls:
                with contextlib.suppress(ssl.SSLError):
                    tls.do_handshake()
                while socket.socket.recv(tls, 4096):  # a close with unread bytes would hide the reason too
                    pass

        async def call() -> UpstreamFailure:
            sweep = Ticker(0.01, monotonic)
            url = f"https://localhost:{listening.getsockname()[1]}/v1"
            transport = pool("httptools", url, authority.pem, sweep)
            failure = await Caller(transport).failure(connect_s=5.0)
            await transport.close()
            sweep.close()
            return failure

        server = threading.Thread(target=serve_one, daemon=True)
        server.start()
        failure = uvloop.run(call())
        server.join(20)
    assert failure.cause == TLS
    assert "it requires a client certificate" in failure.message


FILES = {
    "missing": (None, "cannot be read: No such file or directory"),
    "empty": (b"", "has no certificate in PEM format"),
    "text": (b"no certificate\n", "has no certificate in PEM format"),
    "DER": (b"\x30\x82\x01\x00", "convert it: openssl x509 -inform der"),
    "a private key": (
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "has a private key, but no certificate",
    ),
    "cut short": (b"-----BEGIN CERTIFICATE-----\nMIIB\n", "has no usable certificate in PEM format"),
    "damaged": (
        b"-----BEGIN CERTIFICATE-----\nQUFBQQ==\n-----END CERTIFICATE-----\n",
        "has no usable certificate in PEM format",
    ),
    "a request": (
        b"-----BEGIN CERTIFICATE REQUEST-----\nQUFBQQ==\n-----END CERTIFICATE REQUEST-----\n",
        "in PEM format",
    ),
}
CONFIG = """
upstreams: {{up: {{base_url: '{url}'{more}}}}}
models: {{m: {{candidates: [{{upstream: up}}]}}}}
"""


def problems(folder: Path, url: str, more: str = "") -> list[str]:
    file = folder / "sluice.yaml"
    file.write_text(CONFIG.format(url=url, more=more), encoding="utf-8")
    return [str(problem) for problem in checked(load(file, {})).problems]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_used_is_a_config_error(name: str, tmp_path: Path) -> None:
    content, words = FILES[name]
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_bytes(content)
    (problem,) = problems(tmp_path, "https://engine.test/v1", f", ca_file: {ca}")
    assert problem.startswith("upstreams.up.ca_file: ")
    assert words in problem


def test_a_folder_or_an_address_without_tls_is_one_too(tmp_path: Path, authority: Authority) -> None:
    (problem,) = problems(tmp_path, "https://engine.test/v1", f", ca_file: {tmp_path}")
    assert "cannot be read: Is a directory" in problem
    (problem,) = problems(tmp_path, "http://engine.test/v1", f", ca_file: {authority.pem}")
    assert "only a base_url with https://" in problem


@pytest.mark.parametrize("content", [None, b"", b"no PEM"])
def test_the_environments_file_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    file = tmp_path / "roots.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    (problem,) = problems(tmp_path, "https://engine.test/v1")
    assert problem.startswith("SSL_CERT_FILE: the environment's file of trusted CAs ")
    assert problems(tmp_path, "http://engine.test/v1") == []


def test_a_ca_that_the_system_trusts_already_may_be_named(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.pem))
    assert problems(tmp_path, "https://engine.test/v1", f", ca_file: {authority.pem}") == []


# Proxies.


class Proxy:
    """A proxy that opens tunnels, or refuses them with `status`; `asked` has the request lines."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str] = []
        self.tunnels: set[asyncio.Task[None]] = set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, in a task of its own."""
        tunnel = asyncio.ensure_future(self._serve(reader, writer))
        self.tunnels.add(tunnel)
        tunnel.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]
        self.asked.append(line)
        if self.status != 200:
            writer.write(f"HTTP/1.1 {self.status} No\r\ncontent-length: 0\r\n\r\n".encode())
            writer.close()
            return
        host, port = line.split()[1].rsplit(":", 1)
        other_reader, other = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_pass(reader, other), _pass(other_reader, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    one = Proxy()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    monkeypatch.setenv("no_proxy", "")
    yield one
    server.close()
    await server.wait_closed()
    for tunnel in one.tunnels:
        tunnel.cancel()
    await asyncio.gather(*one.tunnels, return_exceptions=True)
    await _ends_of_connections()


async def test_check_goes_through_the_proxy_where_calls_do(
    authority: Authority, serve: Serve, proxy: Proxy, tmp_path: Path
) -> None:
    url = await serve(authority.server("good"))
    assert await finding(tmp_path, url, transport="aiohttp", ca_file=authority.pem) == "ok, 1 model"
    assert [line.split()[0] for line in proxy.asked] == ["CONNECT"]
    assert await finding(tmp_path, url, ca_file=authority.pem) == "ok, 1 model"
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("status", [403, 407, 502, 503])
async def test_a_proxy_that_refuses_is_named(
    status: int, serve: Serve, authority: Authority, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.status = status
    url = await serve(authority.server("good"))
    said = await finding(tmp_path, url, transport="aiohttp", ca_file=authority.pem)
    assert said == f"the proxy of HTTPS_PROXY refused the way to localhost with status {status}"
    transport = AiohttpTransport("up", url, FIXED, tls=client_context(url, str(authority.pem)))
    failure = await Caller(transport).failure()
    await transport.close()
    assert failure.cause == "connect"
    assert f"The proxy has no way to upstream `up`: it answered with status {status}." == failure.message


async def test_a_proxy_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{reserved.getsockname()[1]}")
        said = await finding(tmp_path, "https://localhost:1/v1", transport="aiohttp")
    assert said.startswith("cannot connect to the proxy 127.0.0.1:")
    assert said.endswith("check HTTPS_PROXY")


async def test_a_proxy_that_this_transport_does_not_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_args: object, **_kwargs: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert await finding(tmp_path, "https://api.openai.test/v1") == (
        "no such host: api.openai.test; check base_url; HTTPS_PROXY is set, and only transport: aiohttp uses it"
    )
