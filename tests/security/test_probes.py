"""Raw requests that must come to nothing (AUTH-08): one refusal each, and no upstream hears of them."""

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, request_bytes
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask
from probes import BODY, BOMB, HOST, JSON, LENGTH, PROBES


@pytest.fixture
async def small(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway without keys, which nothing but the probe's own fault keeps from the upstream."""
    return await start_gateway(settings(upstream.url, server={"max_body": "1MiB"}))


@pytest.mark.parametrize("name", PROBES)
async def test_auth_08_a_probe_is_refused_once_and_nothing_is_routed(
    small: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    sent, status = PROBES[name]
    async with await RawClient.open(small.port) as client:
        await client.send(sent)
        answer = await client.response(bodyless=False)
        assert answer.status == status
        assert answer.error["type"] == "invalid_request_error"
        if status == 400:  # where the next request begins is anybody's guess
            assert answer.header("connection") == "close"
            assert await client.ending() in ("fin", "rst")
    # Whatever was hidden behind it would have come before this one.
    assert (await ask(small.port, {**C0, "last": True})).status == 200
    assert [call.json().get("last") for call in upstream.calls] == [True]


def test_there_are_as_many_probes_as_promised() -> None:
    assert len(PROBES) >= 53
    assert len({sent for sent, _ in PROBES.values()}) == len(PROBES)


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("gw.test", "http://gw.test/v1/chat/completions"),
        ("GW.test", "http://gw.TEST:80/v1/chat/completions"),
        ("gw.test:80", "http://gw.test/v1/chat/completions?x=http://other.test/"),
        ("gw.test:443", "https://gw.test/v1/chat/completions"),
        ("[::1]:8080", "http://[::1]:8080/v1/chat/completions"),
        ("my_gateway:8080", "/v1/chat/completions"),
        ("a-b.c~d", "/v1/chat/completions"),
        ("127.0.0.1:65535", "/v1/chat/completions"),
    ],
)
async def test_a_target_that_agrees_with_its_host_is_served(
    gateway: InProcessGateway, upstream: FaultUpstream, host: str, target: str
) -> None:
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", target, C0, [("host", host)])
        assert (await client.response()).status == 200
    assert upstream.calls[0].target == CHAT
    assert upstream.calls[0].header("host") == [f"127.0.0.1:{upstream.port}"]


async def test_a_bomb_is_not_unpacked(gateway: InProcessGateway) -> None:
    bomb = request_bytes("POST", CHAT, BOMB, [("content-encoding", "gzip")])
    assert len(BOMB) < 2**17
    async with await RawClient.open(gateway.port) as client:
        await client.send(bomb)
        answer = await client.response()
    assert answer.status == 415
    assert "Content-Encoding" in answer.error["message"]


async def test_a_malformed_trailer_never_reaches_the_upstream_as_a_header(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + JSON + b"transfer-encoding: chunked\r\n\r\n"
    trailer = b"0\r\nauthorization: Bearer x\r\ncontent-length: 1\r\n\r\n"
    async with await RawClient.open(gateway.port) as client:
        await client.send(chunked + b"%x\r\n" % len(BODY) + BODY + b"\r\n" + trailer)
        assert (await client.response()).status in (200, 400)
    for one in upstream.calls:
        assert (one.body, one.header("authorization")) == (BODY.replace(b"m-small", b"up-small"), [])


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c", b"TLS/1.0"])
async def test_an_upgrade_changes_nothing_of_what_follows(
    gateway: InProcessGateway, upstream: FaultUpstream, upgrade: bytes
) -> None:
    start = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + JSON + LENGTH
    async with await RawClient.open(gateway.port) as client:
        await client.send(start + b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n\r\n" + BODY)
        assert (await client.response()).status in (200, 400)
    await upstream.at_rest()
    assert [one.json()["messages"] for one in upstream.calls] in ([], [C0["messages"]])
