"""Keys: who may call, and that no key, cookie or address of a client travels on or is written down."""

import json
from pathlib import Path

import pytest
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import RST, full
from doubles.settings import AUTH, KEY, OTHER_KEY, UPSTREAM_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS, S0, ask

EVERY_WAY = [AUTH, ("authorization", f"bearer {KEY}"), ("x-api-key", KEY), ("api-key", KEY)]


@pytest.fixture
async def guarded(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys whose upstream has a key of its own."""
    return await start_gateway(settings(upstream.url, keys=True, upstream={"api_key": UPSTREAM_KEY}))


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_auth_01_the_clients_key_stays_here(
    guarded: InProcessGateway, upstream: FaultUpstream, way: tuple[str, str], body
) -> None:
    given = [
        way,
        ("cookie", f"session={KEY}"),
        ("x-forwarded-authorization", KEY),
        ("proxy-authorization", KEY),
    ]
    answer = await ask(guarded.port, body, given, path=f"{CHAT}?key={KEY}")
    assert answer.status == 200
    sent = upstream.calls[0]
    assert sent.header("authorization") == [f"Bearer {UPSTREAM_KEY}"]
    assert KEY.encode() not in sent.head + sent.body
    assert UPSTREAM_KEY.encode() not in answer.head + answer.body


async def test_auth_01_no_key_configured_none_sent(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    forward = {"forward_headers": ["x-tenant"]}
    gateway = await start_gateway(settings(upstream.url, keys=True, upstream=forward))
    assert (await ask(gateway.port, C0, [AUTH, ("x-tenant", "t1"), ("x-other", "o")])).status == 200
    sent = upstream.calls[0]
    assert sent.header("authorization") == []
    assert sent.header("x-tenant") == ["t1"]
    assert sent.header("x-other") == []
    assert KEY.encode() not in sent.head


WRONG = [
    [],
    [("authorization", "Bearer wrong-key-000000")],
    [("authorization", f"Basic {KEY}")],
    [("authorization", KEY)],
    [("authorization", "Bearer ")],
    [("authorization", f"Bearer {KEY} x")],
    [("authorization", f"Bearer {KEY[:-1]}")],
    [("authorization", f"Bearer {KEY.upper()}")],
    [("x-api-key", "wrong-key-000000")],
    [("authorization", "Bearer " + "x" * 5000)],
    [("authorization", "Bearer \xfc\xff")],
]


async def test_missing_and_wrong_keys_get_one_and_the_same_401(
    guarded: InProcessGateway, upstream: FaultUpstream
) -> None:
    answers = [await ask(guarded.port, C0, given) for given in WRONG]
    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].error["code"] == "invalid_api_key"
    names = [sorted(name for name, _ in answer.headers) for answer in answers]
    assert all(one == names[0] for one in names)
    assert upstream.calls == []


async def test_two_keys_that_differ_are_a_401_and_two_alike_are_fine(guarded: InProcessGateway) -> None:
    assert (await ask(guarded.port, C0, [AUTH, ("x-api-key", OTHER_KEY)])).status == 401
    assert (await ask(guarded.port, C0, [("x-api-key", KEY), ("api-key", OTHER_KEY)])).status == 401
    assert (await ask(guarded.port, C0, [AUTH, ("x-api-key", KEY), ("api-key", KEY)])).status == 200


async def test_the_same_header_twice_is_no_way_around(guarded: InProcessGateway) -> None:
    wrong = ("authorization", "Bearer wrong-key-000000")
    assert (await ask(guarded.port, C0, [wrong, AUTH])).status in (400, 401)


async def test_a_key_is_asked_for_before_the_body_and_before_what_exists(
    guarded: InProcessGateway, upstream: FaultUpstream
) -> None:
    async with await RawClient.open(guarded.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n")
        assert (await client.response()).status == 401
    assert (await ask(guarded.port, b" " * 4 * 2**20)).status == 401
    unknown = await ask(guarded.port, {"model": "nope"})
    known = await ask(guarded.port, C0)
    assert unknown.body == known.body
    assert (await call(guarded.port, "GET", "/v1/models")).status == 401
    assert (await call(guarded.port, "GET", "/v1/models/m-small")).status == 401
    assert (await call(guarded.port, "GET", "/health")).status == 200
    assert upstream.calls == []


async def test_a_key_has_its_models(guarded: InProcessGateway, upstream: FaultUpstream) -> None:
    restricted = [("authorization", f"Bearer {OTHER_KEY}")]
    assert (await ask(guarded.port, E0, restricted, path=EMBEDDINGS)).status == 200
    answer = await ask(guarded.port, C0, restricted)
    assert answer.status == 403
    assert (answer.error["type"], answer.error["code"]) == ("permission_error", "model_not_allowed")
    assert len(upstream.calls) == 1


async def test_auth_04_no_secret_and_no_prompt_in_the_log(upstream: FaultUpstream, tmp_path: Path) -> None:
    prompt = "prompt-canary-31337"
    config = settings(
        upstream.url,
        keys=True,
        upstream={"api_key": UPSTREAM_KEY, "headers": {"x-token": "header-secret-1"}},
        log={"level": "debug", "format": "json"},
    )
    body = {**C0, "messages": [{"role": "user", "content": prompt}]}
    given = [
        AUTH,
        ("cookie", "sid=cookie-secret-1"),
        ("proxy-authorization", "Basic cHJveHktc2VjcmV0"),
        ("x-request-id", "with-an-id"),
    ]
    with GatewayProcess(config, tmp_path) as gateway:
        for script in ([], [RST], [full(f"answer-canary {UPSTREAM_KEY}".encode())], [full(b"", 401)]):
            if script:
                upstream.reply(script)
            for asked in (body, {**body, "stream": True}):
                await ask(gateway.port, asked, given, path=f"{CHAT}?key={KEY}")
        await ask(gateway.port, b"\x1b[31m{" + prompt.encode(), given)
        await ask(gateway.port, body, [("x-api-key", "wrong-key-canary")], path=f"/v1/nope?key={KEY}")
        gateway.stop()
        log = gateway.log
    for secret in (
        KEY,
        OTHER_KEY,
        UPSTREAM_KEY,
        "header-secret-1",
        "cookie-secret-1",
        "cHJveHktc2VjcmV0",
        "wrong-key-canary",
        prompt,
        "answer-canary",
        "\x1b",
    ):
        assert secret not in log, secret
    assert "with-an-id" in log
    assert all(json.loads(line)["level"] for line in log.splitlines())


async def test_the_admin_port_shows_no_secret(guarded: InProcessGateway) -> None:
    for path in ("/metrics", "/admin/config", "/admin/stack", "/admin/upstreams", "/livez", "/readyz"):
        answer = await call(guarded.admin_port, "GET", path)
        assert answer.status == 200
        for secret in (KEY, OTHER_KEY, UPSTREAM_KEY):
            assert secret.encode() not in answer.body
    assert (await call(guarded.port, "GET", "/metrics")).status == 404
    assert (await call(guarded.port, "GET", "/admin/config")).status == 404
