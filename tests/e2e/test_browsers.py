"""CORS: off by default; where it is on, preflights need no key and every answer carries the permission."""

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import call
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask

ORIGIN = ("origin", "https://app.example")
ASKED = "authorization,content-type,x-stainless-os,x-stainless-timeout"
PREFLIGHT = [
    ORIGIN,
    ("access-control-request-method", "POST"),
    ("access-control-request-headers", ASKED),
]


@pytest.fixture
async def open_to_one(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys that browsers on one origin may call."""
    return await start_gateway(settings(upstream.url, keys=True, server={"cors_origins": [ORIGIN[1]]}))


def tokens(value: str | None) -> set[str]:
    """The members of a header's list."""
    return {one.strip().lower() for one in (value or "").split(",")}


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/embeddings", "/chat/completions/"])
async def test_compat_16_preflight(open_to_one: InProcessGateway, path: str) -> None:
    answer = await call(open_to_one.port, "OPTIONS", path, headers=PREFLIGHT)
    assert answer.status == 204
    assert answer.header("access-control-allow-origin") == ORIGIN[1]
    assert tokens(ASKED) <= tokens(answer.header("access-control-allow-headers"))
    assert "post" in tokens(answer.header("access-control-allow-methods"))
    assert "origin" in tokens(answer.header("vary"))
    assert answer.body == b""


async def test_compat_16_every_answer_may_be_read(open_to_one: InProcessGateway) -> None:
    answers = [
        await ask(open_to_one.port, C0, [ORIGIN]),
        await ask(open_to_one.port, C0, [ORIGIN, AUTH]),
        await ask(open_to_one.port, S0, [ORIGIN, AUTH]),
        await ask(open_to_one.port, b"{", [ORIGIN, AUTH]),
        await ask(open_to_one.port, C0, [ORIGIN, AUTH], path="/v1/nope"),
        await call(open_to_one.port, "GET", "/v1/models", headers=[ORIGIN, AUTH]),
        await call(open_to_one.port, "GET", "/health", headers=[ORIGIN]),
        await call(open_to_one.port, "PUT", CHAT, headers=[ORIGIN, AUTH]),
    ]
    assert [answer.status for answer in answers] == [401, 200, 200, 400, 404, 200, 200, 405]
    for answer in answers:
        assert answer.header("access-control-allow-origin") == ORIGIN[1]
        exposed = tokens(answer.header("access-control-expose-headers"))
        assert {"x-request-id", "retry-after", "x-sluice-upstream"} <= exposed


async def test_compat_16_other_origins_get_nothing(open_to_one: InProcessGateway) -> None:
    other = ("origin", "https://evil.example")
    answer = await ask(open_to_one.port, C0, [other, AUTH])
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") is None
    preflight = await call(open_to_one.port, "OPTIONS", CHAT, headers=[other, *PREFLIGHT[1:]])
    assert preflight.header("access-control-allow-origin") is None


async def test_compat_16_off_by_default(gateway: InProcessGateway) -> None:
    answer = await call(gateway.port, "OPTIONS", CHAT, headers=PREFLIGHT)
    assert answer.status == 405
    assert "POST" in (answer.header("allow") or "")
    answer = await ask(gateway.port, C0, [ORIGIN])
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]


async def test_compat_16_a_star_lets_everybody(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"cors_origins": ["*"]}))
    answer = await ask(gateway.port, C0, [ORIGIN])
    assert answer.header("access-control-allow-origin") in ("*", ORIGIN[1])


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/v1/models/m-small"])
async def test_compat_16_head_is_get_without_a_body(gateway: InProcessGateway, path: str) -> None:
    head = await call(gateway.port, "HEAD", path)
    get = await call(gateway.port, "GET", path)
    assert head.status == get.status == 200
    assert head.header("content-length") == get.header("content-length") == str(len(get.body))
    assert head.header("content-type") == get.header("content-type")
