"""Who is over a limit whatever he asks is answered before his body is read, and loses nothing by it."""

import pytest
from doubles.gateway import StartGateway
from doubles.limited import FrozenClock, asked, limited, used
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, EMBEDDINGS


def only_the_head(path: str, length: int = 1_000_000) -> bytes:
    return request_bytes(
        "POST", path, None, [AUTH, ("content-type", "application/json"), ("content-length", str(length))]
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, EMBEDDINGS])
async def test_over_the_requests_it_is_refused_by_its_head(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, path: str
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 2}))
    for _ in range(2):
        assert (await asked(gateway.port)).status == 200
    async with await RawClient.open(gateway.port) as client:
        await client.send(only_the_head(path))
        answer = await client.response()
    assert (answer.status, answer.error["type"], answer.header("retry-after-ms")) == (
        429,
        "requests",
        "30000",
    )
    assert answer.header("x-ratelimit-remaining-requests") == "0"
    await gateway.counted("sluice_limit_rejections_total", 1, key="team-a", limit="rpm")
    # Which model it is for stands in the body.
    await gateway.counted("sluice_requests_total", 1, model="other", outcome="limited", status="429")
    clock.passes(30.0)
    assert (await asked(gateway.port)).status == 200


async def test_without_a_place_it_is_refused_by_its_head(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"concurrency": 1}))
    upstream.reply([NEVER])
    async with await RawClient.open(gateway.port) as busy, await RawClient.open(gateway.port) as client:
        await busy.request("POST", CHAT, C0, [AUTH])
        await upstream.received(1)
        await client.send(only_the_head(CHAT))
        assert (await client.response()).error["type"] == "concurrency"


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
async def test_the_connection_serves_the_next_call(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, size: int
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}))
    assert (await asked(gateway.port)).status == 200
    async with await RawClient.open(gateway.port) as client:
        for _ in range(3):
            await client.request("POST", CHAT, {**C0, "user": "x" * size}, [AUTH])
            assert (await client.response()).status == 429
        clock.passes(60.0)
        await client.request("POST", CHAT, C0, [AUTH])
        assert (await client.response()).status == 200


async def test_who_waits_for_leave_to_send_a_body_need_not_send_it(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}))
    assert (await asked(gateway.port)).status == 200
    async with await RawClient.open(gateway.port) as client:
        await client.send(only_the_head(CHAT).replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n", 1))
        answer = await client.response()
        assert (answer.status, answer.interim) == (429, [])
        assert answer.header("connection") == "close"


async def test_the_list_of_models_is_not_limited(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}))
    assert (await asked(gateway.port)).status == 200
    async with await RawClient.open(gateway.port) as client:
        await client.request("GET", "/v1/models", None, [AUTH])
        assert (await client.response()).status == 200


async def test_where_tokens_may_take_longer_the_body_is_read_and_the_wait_is_right(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10, "tpm": 1000}))
    upstream.always(used(10, 10))
    for _ in range(10):
        assert (await asked(gateway.port)).status == 200
    few, many = [await asked(gateway.port, {**C0, "max_tokens": cap}) for cap in (1, 900)]
    assert (few.error["type"], few.header("retry-after-ms")) == ("requests", "6000")
    assert (many.status, many.error["type"]) == (429, "tokens")
    wait = int(many.header("retry-after-ms") or 0)
    assert wait > 6000
    clock.passes(wait / 1000)
    assert (await asked(gateway.port, {**C0, "max_tokens": 900})).status == 200
