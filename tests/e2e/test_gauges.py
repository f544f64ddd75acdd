"""Gauges that are read when they are asked for: what waits, and what is left of budgets."""

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.limited import asked, limited, used
from doubles.rawclient import call
from doubles.redis_server import RedisServer
from doubles.script import Until
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask
from doubles.waiting import eventually

PRICE = {"input": 1000, "output": 2000}  # a tenth of a cent an input token, two of output
OLDEST, LEFT = "sluice_upstream_queue_oldest_wait_seconds", "sluice_budget_remaining_usd"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as one:
        yield one


async def test_the_oldest_waiter_has_an_age(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    gateway = await start_gateway(settings(upstream.url, upstream={"max_concurrency": 1}, batching={"policy": "off"}))
    assert (await gateway.metrics()).value(OLDEST, upstream="local") == 0
    first = asyncio.create_task(ask(gateway.port, C0))
    await upstream.received(1)
    second = asyncio.create_task(ask(gateway.port, C0))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    ages = [(await gateway.metrics()).value(OLDEST, upstream="local") for _ in range(2)]
    assert 0 < ages[0] < ages[1]
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()["local"]
    assert shown["waiting"] == 1
    assert shown["oldest_s"] >= 0
    go_on.set()
    assert [(await one).status for one in (first, second)] == [200, 200]
    assert (await gateway.metrics()).value(OLDEST, upstream="local") == 0


async def test_what_is_left_of_a_budget(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"usd_per_day": 2}, price=PRICE))
    assert (await gateway.metrics()).value(LEFT, key="team-a") == 2
    upstream.always(used(200, 150))  # half a dollar
    for left in (1.5, 1.0, 0.5, 0.0):
        assert (await asked(gateway.port)).status == 200
        await gateway.counted(LEFT, left, key="team-a")
    assert (await asked(gateway.port)).status == 429
    shown = await call(gateway.admin_port, "GET", "/admin/budgets")
    budget = shown.json()["team-a"]
    resets_at = datetime.fromisoformat(budget.pop("resets_at"))
    assert 0 < resets_at.timestamp() - time.time() <= 86_400
    assert (resets_at.hour, resets_at.minute, resets_at.second) == (0, 0, 0)
    assert budget == {"left_usd": "0", "limit_usd": "2", "spent_usd": "2", "reserved_usd": "0"}


async def test_keys_without_a_budget_have_none_left(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 100}))
    assert [one for one in (await gateway.metrics()).samples if one.name == LEFT] == []


async def test_workers_tell_one_budget_and_the_oldest_of_all(
    upstream: FaultUpstream, tmp_path: Path, redis: RedisServer
) -> None:
    config = limited(upstream.url, {"usd_per_day": 2}, price=PRICE, redis={"url": redis.url, "timeout": "2s"})
    config["server"]["workers"] = 2
    upstream.always(used(200, 150))  # half a dollar
    with GatewayProcess(config, tmp_path) as gateway:

        def left() -> float:
            return round(gateway.metrics().value(LEFT, key="team-a"), 6)

        for number in range(1, 4):
            assert (await asked(gateway.port)).status == 200
            # One after the other: a worker that hears of the next one too soon would tell its reservation.
            await eventually(lambda now=2 - number / 2: left() == now, "it is settled")
        shown = await call(gateway.admin_port, "GET", "/admin/budgets")
        assert shown.json()["team-a"] | {"resets_at": ""} == {
            "left_usd": "0.5",
            "limit_usd": "2",
            "spent_usd": "1.5",
            "reserved_usd": "0",
            "resets_at": "",
        }
        assert gateway.metrics().value(OLDEST, upstream="local") == 0
