"""The page as HTML, its stream of events and the chat box's way, without a browser."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.settings import KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask

PATHS = ("/", "/upstreams", "/models", "/keys", "/calls", "/calls/x", "/try", "/calls?status=none", "/?lang=ko")
CHAT = {"model": "m-small", "messages": [{"role": "user", "content": "ping"}]}


@pytest.mark.parametrize("path", [*PATHS, "/page/page.js", "/page/page.css", "/page/icon.svg"])
async def test_nothing_foreign_and_nothing_inline_is_allowed(path: str, gateway: InProcessGateway) -> None:
    await ask(gateway.port, C0, [("x-request-id", "x")])
    answer = await call(gateway.admin_port, "GET", path)
    assert answer.status == 200
    policy = answer.header("content-security-policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert answer.header("x-content-type-options") == "nosniff"
    if path.startswith("/page/"):
        return
    html = answer.body.decode()
    for inline in (" style=", " onclick=", "<style", "javascript:", "http://cdn", "https://"):
        assert inline not in html
    assert html.count("<script") == html.count('<script src="/page/page.js" defer></script>') == 1


async def test_the_language_is_the_browsers_or_the_one_asked_for(gateway: InProcessGateway) -> None:
    korean = await call(gateway.admin_port, "GET", "/", headers=[("accept-language", "ko-KR,ko;q=0.9,en;q=0.8")])
    assert '<html lang="ko">' in korean.body.decode()
    assert "업스트림" in korean.body.decode()
    english = await call(gateway.admin_port, "GET", "/?lang=en", headers=[("accept-language", "ko")])
    assert '<html lang="en">' in english.body.decode()
    assert 'href="/calls?lang=en"' in english.body.decode()
    assert '<html lang="en">' in (await call(gateway.admin_port, "GET", "/?lang=xx")).body.decode()


async def event(client: RawClient) -> str:
    """The next event: a screen as HTML."""
    async with asyncio.timeout(20):
        while not (line := await client.reader.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        return str(json.loads(line[6:]))


async def test_the_stream_of_events_tells_what_has_changed_and_ends_with_the_gateway(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    async with await RawClient.open(gateway.admin_port) as client:
        await client.request("GET", "/events?screen=/calls&status=2xx")
        assert "No calls yet" in await event(client)
        await ask(gateway.port, C0, [("x-request-id", "a-new-one")])
        assert 'href="/calls/a-new-one"' in await event(client)
        async with asyncio.timeout(20):  # an open page does not hold up the stop
            await gateway.stop()
    assert (await asyncio.gather(gateway.stop(), return_exceptions=True))[0] is None


async def test_only_so_many_pages_are_open_at_a_time(gateway: InProcessGateway) -> None:
    clients = [await RawClient.open(gateway.admin_port) for _ in range(20)]
    for client in clients:
        await client.request("GET", "/events?screen=/upstreams")
        await event(client)
    assert (await call(gateway.admin_port, "GET", "/events?screen=/")).status == 503
    for client in clients:
        client.writer.close()


async def test_the_workers_calls_and_upstreams_are_on_the_page(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        for number in range(6):
            await ask(gateway.port, C0, [("x-request-id", f"call-{number}")])
        html = (await call(gateway.admin_port, "GET", "/")).body.decode()
        assert all(f'href="/calls/call-{number}"' in html for number in range(6))
        assert "<dd>6<small>" in html
        assert "Where the time went" in (await call(gateway.admin_port, "GET", "/calls/call-1")).body.decode()
        answer = await call(gateway.admin_port, "POST", "/try", CHAT)
        assert answer.status == 200
        assert answer.json()["choices"][0]["message"]["content"] == "pong"


async def test_the_chat_box_passes_the_key_on_and_nothing_else(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    refused = await call(gateway.admin_port, "POST", "/try", CHAT, [("cookie", "a=b")])
    assert refused.status == 401
    answer = await call(gateway.admin_port, "POST", "/try", CHAT, [("authorization", f"Bearer {KEY}")])
    assert answer.status == 200
    assert answer.header("x-request-id")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_other_sites_cannot_use_the_chat_box(
    headers: Mapping[str, str], status: int, gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    body: Any = json.dumps(CHAT).encode()
    sent = {"content-type": "application/json", **headers}
    assert (await call(gateway.admin_port, "POST", "/try", body, sent.items())).status == status
    assert upstream.calls == []


async def test_a_gateway_that_keeps_no_calls_says_so(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, inspector={"calls": 0}))
    await ask(gateway.port, C0)
    html = (await call(gateway.admin_port, "GET", "/calls")).body.decode()
    assert "The inspector is off" in html


async def test_the_banner_is_there_while_bodies_are_kept(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    quiet = await start_gateway(settings(upstream.url))
    loud = await start_gateway(settings(upstream.url, inspector={"bodies": True}))
    for path in PATHS:
        assert b"keeps prompts and answers" not in (await call(quiet.admin_port, "GET", path)).body
        if path != "/?lang=ko":
            assert b"keeps prompts and answers" in (await call(loud.admin_port, "GET", path)).body
