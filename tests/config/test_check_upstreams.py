"""`--connect` names the wrong setting of an upstream, against small raw servers."""

import asyncio
import io
import socket

import pytest

from gateway.cli import check
from gateway.cli.check_upstreams import ask_all
from gateway.config.load import load

LISTING = b'{"object":"list","data":[{"id":"small-model","object":"model"},{"id":"other"}]}'
CANARY = "canary-0123456789abcdef"


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers])
    return head.encode() + b"\r\n\r\n" + body


@pytest.fixture
async def serve():
    """Starts servers that give one fixed answer to whatever they are sent; `requests` holds the heads."""
    servers = []
    requests = []

    async def start(reply: bytes, end: bytes = b"\r\n\r\n") -> str:
        async def serve_one(reader, writer):
            try:
                requests.append((await reader.readuntil(end)).decode("latin-1"))
                writer.write(reply)
                await writer.drain()
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
                requests.append("")
            finally:
                writer.close()

        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    start.requests = requests
    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.fixture
def ask(tmp_path):
    """Asks one upstream at an address; gives the finding."""

    async def ask(base_url: str, model: str = "small-model", fields: str = ""):
        path = tmp_path / "sluice.yaml"
        path.write_text(
            f"upstreams: {{up: {{base_url: '{base_url}'{fields}}}}}\n"
            f"models: {{m: {{candidates: [{{upstream: up, model: {model}}}]}}}}\n",
            encoding="utf-8",
        )
        loaded = load(path, {})
        assert loaded.config is not None, loaded.problems
        (finding,) = await ask_all(loaded.config)
        return finding

    return ask


async def test_a_right_upstream_is_asked_with_key_and_headers(serve, ask):
    address = await serve(answer("200 OK", LISTING))
    finding = await ask(f"http://{address}/v1", fields=f", api_key: {CANARY}, headers: {{x-tenant: t}}")
    assert str(finding) == "upstreams.up: ok, 2 models"
    assert finding.good
    (request,) = serve.requests
    assert request.startswith("GET /v1/models HTTP/1.1\r\n")
    assert f"authorization: Bearer {CANARY}\r\n".lower() in request.lower()
    assert "x-tenant: t\r\n" in request.lower()


@pytest.mark.parametrize(
    ("reply", "path", "fields", "words"),
    [
        (answer("401 Unauthorized"), "/v1", "", "requires a key (status 401); set api_key"),
        (answer("401 Unauthorized"), "/v1", ", api_key: k", "rejected the key (status 401); check api_key"),
        (answer("403 Forbidden"), "/v1", ", api_key: k", "rejected the key (status 403)"),
        (answer("404 Not Found"), "", "", "at /models (status 404); base_url probably lacks /v1 at its end"),
        (answer("404 Not Found"), "/v1", "", "at /v1/models (status 404); check the path in base_url"),
        (answer("200 OK", b"<html></html>"), "", "", "base_url probably lacks /v1 at its end"),
        (answer("200 OK", b'{"data": 5}'), "/v1", "", "no list of models in OpenAI's format"),
        (answer("200 OK", b"\xff\xff"), "/v1", "", "no list of models in OpenAI's format"),
        (
            answer("200 OK", b'{"data":[],"x":' + b"[" * 50_000),
            "/v1",
            "",
            "no list of models in OpenAI's format",
        ),
        (answer("302 Found", b"", "location: /v1/models"), "", "", "redirects elsewhere (status 302)"),
        (answer("503 Service Unavailable"), "/v1", "", "answered GET /v1/models with status 503"),
        (b"", "/v1", "", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "/v1", "", "did not answer in well-formed HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "/v1", "", "did not answer in well-formed HTTP"),
    ],
)
async def test_each_mistake_has_its_own_message(serve, ask, reply, path, fields, words):
    finding = await ask(f"http://{await serve(reply)}{path}", fields=fields)
    assert not finding.good
    assert words in str(finding)


async def test_a_redirect_is_not_followed(serve, ask):
    target = await serve(answer("200 OK", LISTING))
    source = await serve(answer("307 Temporary Redirect", b"", f"location: http://{target}/v1/models"))
    assert not (await ask(f"http://{source}/v1", fields=f", api_key: {CANARY}")).good
    assert len(serve.requests) == 1


async def test_a_model_that_is_not_listed(serve, ask):
    finding = await ask(f"http://{await serve(answer('200 OK', LISTING))}/v1", model="smal-model")
    assert str(finding) == (
        'upstreams.up: does not list "smal-model" (models.m.candidates[0].model); did you mean "small-model"?'
    )


async def test_a_port_where_nothing_listens(ask):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        finding = await ask(f"http://127.0.0.1:{reserved.getsockname()[1]}/v1")
    assert "(Connection refused); check base_url" in finding.message


async def test_a_host_that_does_not_exist(ask, monkeypatch):
    def unknown(*_args, **_kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    finding = await ask("http://no-such-host.invalid/v1")
    assert finding.message == "no such host: no-such-host.invalid; check base_url"


async def test_https_where_http_is_spoken(serve, ask):
    # What a TLS client says first ends with no blank line; any byte of it will do.
    address = await serve(answer("400 Bad Request"), end=b"\x03")
    finding = await ask(f"https://{address}/v1")
    assert finding.message == f"the TLS handshake with {address} failed; does it speak http instead of https?"


async def test_silence_is_a_time_out(serve, ask, monkeypatch):
    monkeypatch.setattr("gateway.cli.check_upstreams._TIMEOUT_S", 0.05)
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        finding = await ask(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    finally:
        silent.close()
    assert "no answer from" in finding.message


async def test_the_proxy_of_the_environment_is_not_used(serve, ask, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await ask(f"http://{await serve(answer('200 OK', LISTING))}/v1")).good


async def test_check_prints_one_line_for_each_upstream(serve, tmp_path):
    good, bad = await serve(answer("200 OK", LISTING)), await serve(answer("401 Unauthorized"))
    path = tmp_path / "sluice.yaml"
    path.write_text(
        f"upstreams:\n  a: {{base_url: 'http://{good}/v1', kind: vllm}}\n"
        f"  b: {{base_url: 'http://{bad}/v1', kind: vllm, api_key: {CANARY}}}\n"
        "models: {other: {candidates: [{upstream: a}, {upstream: b}]}}\n",
        encoding="utf-8",
    )
    out, err = io.StringIO(), io.StringIO()
    # A thread of its own, for the command runs its own loop.
    status = await asyncio.to_thread(check.run, path, False, True, out=out, err=err, environ={})
    assert status == 2
    assert out.getvalue() == "upstreams.a: ok, 2 models\n"
    assert err.getvalue() == "upstreams.b: rejected the key (status 401); check api_key\n"
