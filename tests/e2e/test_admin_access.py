"""The admin port's door on real sockets: what is open, what needs a key, sessions, and what browsers are told."""

import asyncio
import json
import re
from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient, call
from doubles.settings import settings
from doubles.upstream import FaultUpstream

from gateway.auth.failure_limiter import AuthFailureLimiter
from gateway.config.load import load

KEY, SECOND = "admin-key-0123456789", "admin-key-9876543210"
BEARER = ("authorization", f"Bearer {KEY}")
HTML = ("accept", "text/html,*/*")
FORM = ("content-type", "application/x-www-form-urlencoded")
GUARDED = [
    "/",
    "/admin/config",
    "/admin/usage",
    "/admin/upstreams",
    "/admin/stack",
    "/admin/calls",
    "/events",
    "/calls",
]
OPEN = ["/metrics", "/livez", "/readyz"]


def config(upstream: FaultUpstream, **admin: Any) -> dict[str, Any]:
    return settings(upstream.url, admin={"port": 0, "keys": [KEY, SECOND], **admin})


@pytest.fixture
async def guarded(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    return await start_gateway(config(upstream))


async def get(gateway: InProcessGateway, path: str, *headers: tuple[str, str]) -> Answer:
    """The head of the answer to a GET, and its body unless that never ends."""
    async with await RawClient.open(gateway.admin_port) as client:
        await client.request("GET", path, headers=headers)
        answer = await client.head()
        if "event-stream" not in (answer.header("content-type") or ""):
            await client.rest(answer)
        return answer


async def sign_in(gateway: InProcessGateway, key: str, *headers: tuple[str, str]) -> Answer:
    return await call(gateway.admin_port, "POST", "/login", f"key={key}".encode(), [FORM, *headers])


def cookie_of(answer: Answer) -> tuple[str, str]:
    return "cookie", (answer.header("set-cookie") or "").partition(";")[0]


@pytest.mark.parametrize("path", GUARDED)
async def test_the_page_and_admin_need_a_key(path: str, guarded: InProcessGateway) -> None:
    for headers in ([], [("authorization", "Bearer wrong-key-000")], [("cookie", "sluice_admin=1.2.3")]):
        answer = await get(guarded, path, *headers)
        assert answer.status == 401
        assert answer.header("www-authenticate") == "Bearer"
        assert b"m-small" not in answer.body
    assert (await get(guarded, path, BEARER)).status == 200
    assert (await get(guarded, path, ("authorization", f"bearer {SECOND}"))).status == 200
    sent_on = await get(guarded, path, HTML)
    assert (sent_on.status, sent_on.header("location")) == (303, "/login")


@pytest.mark.parametrize("path", OPEN)
async def test_metrics_and_probes_stay_open(path: str, guarded: InProcessGateway) -> None:
    assert (await get(guarded, path, ("host", "10.0.0.9:9464"))).status == 200


async def test_signing_in_opens_a_session_with_a_strict_cookie(guarded: InProcessGateway) -> None:
    assert (await get(guarded, "/login")).status == 200
    answer = await sign_in(guarded, KEY)
    assert (answer.status, answer.header("location")) == (303, "/")
    said = (answer.header("set-cookie") or "").lower()
    for word in ("httponly", "samesite=strict", "path=/", "max-age=43200"):
        assert word in said
    assert "secure" not in said
    assert KEY not in said
    for path in GUARDED:
        assert (await get(guarded, path, cookie_of(answer))).status == 200
    behind_tls = await sign_in(guarded, KEY, ("host", "admin.example.com"), ("origin", "https://admin.example.com"))
    assert "secure" in (behind_tls.header("set-cookie") or "").lower()
    left = await call(guarded.admin_port, "POST", "/logout", b"", [cookie_of(answer)])
    assert "max-age=0" in (left.header("set-cookie") or "").lower()


async def test_a_wrong_key_opens_nothing_and_many_are_slowed(guarded: InProcessGateway) -> None:
    wrong = await sign_in(guarded, "wrong-key-0000")
    assert wrong.status == 401
    assert wrong.header("set-cookie") is None
    statuses = [(await sign_in(guarded, f"guess-{number:08}")).status for number in range(12)]
    assert statuses.count(401) == 9
    assert statuses[-1] == 429
    bearer = await get(guarded, "/admin/config", ("authorization", "Bearer guess-more"))
    assert (bearer.status, int(bearer.header("retry-after") or 0) > 0) == (429, True)
    assert (await get(guarded, "/admin/config", BEARER)).status == 200
    assert (await sign_in(guarded, KEY)).status == 303
    assert isinstance(AuthFailureLimiter(10), AuthFailureLimiter)


async def test_a_key_that_is_taken_back_ends_its_sessions(
    guarded: InProcessGateway, upstream: FaultUpstream, tmp_path: Any
) -> None:
    session = cookie_of(await sign_in(guarded, KEY))
    assert (await get(guarded, "/admin/config", session)).status == 200
    file = tmp_path / "new.yaml"
    file.write_text(json.dumps(config(upstream, keys=[SECOND])), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    await guarded._gateway.reload(loaded.config)
    assert (await get(guarded, "/admin/config", session)).status == 401
    assert (await get(guarded, "/admin/config", BEARER)).status == 401


@pytest.mark.parametrize("path", [*GUARDED, *OPEN, "/login", "/nowhere", "/page/page.js"])
async def test_no_answer_can_be_framed_sniffed_or_load_anything_foreign(path: str, guarded: InProcessGateway) -> None:
    for headers in ([], [BEARER]):
        answer = await get(guarded, path, *headers)
        policy = answer.header("content-security-policy") or ""
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"https?:|\*|unsafe|data:", policy)
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("cache-control") == "no-store"
        assert answer.header("access-control-allow-origin") is None


async def test_the_login_form_shows_what_was_typed_nowhere(guarded: InProcessGateway) -> None:
    answer = await sign_in(guarded, "%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert b"alert(1)" not in answer.body
    assert b"<script" not in answer.body
    assert (await sign_in(guarded, "k" * 5000)).status == 413


async def test_a_proxy_vouches_only_where_it_is_trusted(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    alice = ("x-forwarded-user", "alice")
    trusting = config(upstream, keys=[], trusted_header="X-Forwarded-User", trusted_proxies=["127.0.0.1"])
    gateway = await start_gateway(trusting)
    assert (await get(gateway, "/admin/config", alice, ("host", "admin.example.com"))).status == 200
    assert (await get(gateway, "/admin/config")).status == 401
    elsewhere = await start_gateway(config(upstream, trusted_header="X-Forwarded-User", trusted_proxies=["10.0.0.7"]))
    assert (await get(elsewhere, "/admin/config", alice)).status == 401


async def test_loopback_asks_for_nothing_but_serves_no_foreign_name(gateway: InProcessGateway) -> None:
    assert (await get(gateway, "/admin/config")).status == 200
    assert (await get(gateway, "/admin/config", ("host", "localhost:9464"))).status == 200
    for path in GUARDED:
        rebound = await get(gateway, path, ("host", "evil.example:9464"))
        assert rebound.status == 403
        assert b"admin.keys" in rebound.body
        assert b"m-small" not in rebound.body
    assert (await get(gateway, "/metrics", ("host", "evil.example:9464"))).status == 200


ACTIONS = [
    "upstreams/local/drain",
    "upstreams/local/resume",
    "upstreams/local/close-breaker",
    "reload",
    "batches/b/cancel",
]


@pytest.mark.parametrize("name", ACTIONS)
async def test_actions_are_posts_with_a_key_and_from_no_other_site(
    name: str, guarded: InProcessGateway, gateway: InProcessGateway
) -> None:
    path = f"/admin/{name}"
    for port, own in ((guarded.admin_port, [BEARER]), (gateway.admin_port, [])):
        for method in ("GET", "HEAD"):
            async with await RawClient.open(port) as client:
                await client.request(method, path, headers=own)
                answer = await client.response(bodyless=method == "HEAD")
                assert (answer.status, answer.header("allow")) == (405, "POST")
        for foreign in (
            [("origin", "http://evil.example")],
            [("origin", "null")],
            [("origin", "http://127.0.0.1:8080")],
            [("sec-fetch-site", "cross-site")],
            [("sec-fetch-site", "same-site")],
        ):
            assert (await call(port, "POST", path, b"", [*own, *foreign])).status == 403
        own_page = [("origin", "http://localhost"), ("sec-fetch-site", "same-origin")]
        assert (await call(port, "POST", path, b"", [*own, *own_page])).status in (200, 404, 503)
    assert (await call(guarded.admin_port, "POST", path, b"")).status == 401
    assert (await call(gateway.admin_port, "POST", path, b"", [("host", "evil.example")])).status == 403
    session = cookie_of(await sign_in(guarded, KEY))
    assert (
        await call(guarded.admin_port, "POST", path, b"", [session, ("origin", "http://evil.example")])
    ).status == 403


async def test_other_methods_change_nothing(guarded: InProcessGateway) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/admin/config", "/admin/upstreams/local/drain", "/"):
            assert (await call(guarded.admin_port, method, path, b"", [BEARER])).status == 405
    await asyncio.sleep(0)
    assert b"drained" not in (await get(guarded, "/admin/upstreams", BEARER)).body


@pytest.mark.parametrize("path", [*GUARDED, *OPEN, "/login", "/keys", "/upstreams", "/models", "/batches", "/try"])
async def test_no_answer_holds_an_admin_key(path: str, guarded: InProcessGateway) -> None:
    answer = await get(guarded, path, BEARER)
    assert answer.status == 200
    for key in (KEY, SECOND):
        assert key.encode() not in answer.body + answer.head
