"""Answers in Redis, as clients see them: shared by gateways, and never missed when Redis is away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.redis_server import RedisServer
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0, EMBEDDINGS, S0, ask

C = {**C0, "temperature": 0}
S = {**S0, "temperature": 0}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def keeping(url: str, redis: RedisServer, **more: Any) -> dict[str, Any]:
    """A config whose answers are in Redis. Its time-out is long: a busy machine must not be an outage."""
    section = {"url": redis.url, "timeout": "2s", **more}
    return settings(url, redis=section, cache={"enabled": True, "store": "redis"})


async def test_gateways_share_answers(upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer) -> None:
    config = keeping(upstream.url, redis)
    one, other = await start_gateway(config), await start_gateway(config)
    assert (await ask(one.port, S)).header("x-cache-hit") == "false"
    await one.outcome("ok")
    hit = await ask(other.port, C)
    assert hit.header("x-cache-hit") == "true"
    assert hit.json()["choices"][0]["message"]["content"] == "pong"
    assert (await ask(other.port, S)).header("x-cache-hit") == "true"
    upstream.always(replies.embeddings(2))
    assert (await ask(one.port, {**E0, "input": ["a", "b"]}, path=EMBEDDINGS)).status == 200
    assert (await ask(other.port, {**E0, "input": "b"}, path=EMBEDDINGS)).header("x-cache-hit") == "true"
    assert len(upstream.calls) == 2
    await one.counted("sluice_cache_entries", 0)  # in memory


async def test_a_redis_that_is_frozen_or_dead_makes_every_call_a_miss(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer
) -> None:
    gateway = await start_gateway(keeping(upstream.url, redis, timeout="50ms"))
    redis.pause()
    for number in (1, 2, 3):
        answer = await ask(gateway.port, C)
        assert (answer.status, answer.header("x-cache-hit")) == (200, "false")
        assert len(upstream.calls) == number
    assert (await gateway.metrics()).value("sluice_cache_requests_total", result="store_error") >= 3
    assert (await gateway.metrics()).value("sluice_redis_errors_total", kind="timeout") >= 1
    redis.resume()
    redis.kill()
    assert (await ask(gateway.port, S)).complete
    redis.start()
    async with asyncio.timeout(10):
        while (await ask(gateway.port, C)).header("x-cache-hit") == "false":
            pass
