"""Limits with Redis: as many gateways as there are share one exact limit; and what holds while it is away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.limited import OTHER, asked, limited, used
from doubles.rawclient import RawClient, call
from doubles.redis_cluster import RedisCluster
from doubles.redis_server import RedisServer
from doubles.script import NEVER, Until, frame, piece, sse_head
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0
from doubles.waiting import eventually

PRICE = {"input": 1000, "output": 2000}
Two = tuple[InProcessGateway, InProcessGateway]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def sharing(
    url: str, running: RedisServer, limits: dict[str, Any], redis: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A config whose limits are in Redis. Its time-out is long: a busy machine must not be an outage."""
    section = {"url": running.url, "timeout": "2s", **(redis or {})}
    return limited(url, limits, redis=section, **more)


async def two(start: StartGateway, config: dict[str, Any]) -> Two:
    """Two gateways with the same config."""
    pair = await start(config), await start(config)
    for one in pair:
        await one.counted("sluice_redis_up", 1)
    return pair


async def test_rate_02_two_gateways_share_the_requests_of_a_minute(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer
) -> None:
    pair = await two(start_gateway, sharing(upstream.url, redis, {"rpm": 5}))
    answers = await asyncio.gather(*(asked(pair[number % 2].port) for number in range(60)))
    assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 55
    assert len(upstream.calls) == 5
    refused = [answer for answer in answers if answer.status == 429]
    assert {one.error["type"] for one in refused} == {"requests"}
    assert all(11_000 < int(one.header("retry-after-ms") or 0) <= 12_000 for one in refused)
    assert {one.header("x-ratelimit-remaining-requests") for one in refused} == {"0"}
    assert (await asked(pair[0].port, key=OTHER)).status == 200


async def test_rate_02_and_the_tokens(upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer) -> None:
    pair = await two(start_gateway, sharing(upstream.url, redis, {"tpm": 100}))
    upstream.always(used(60, 30))
    assert (await asked(pair[0].port)).status == 200
    # Settled without anybody's waiting for it, so soon rather than at once.
    body = {**C0, "max_tokens": 60}
    refused = await asked(pair[1].port, body)
    assert (refused.status, refused.error["type"]) == (429, "tokens")
    large = await asked(pair[1].port, {**C0, "max_tokens": 101})
    assert large.error["code"] == "request_too_large"


async def test_when_their_dollars_are_spent_what_is_free_is_left_to_both(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer
) -> None:
    """A call of two tokens out and some more in is reserved at 1000 dollars a million, and costs 0.009."""
    config = sharing(upstream.url, redis, {"usd_per_day": 0.05})
    (small,) = (one for name, one in config["models"].items() if name == "m-small")
    (paid,) = small["candidates"]
    paid["price"] = PRICE
    config["upstreams"]["own"] = {**config["upstreams"][paid["upstream"]], "kind": "vllm"}
    small["candidates"].append({"upstream": "own", "model": "up-own"})
    pair = await two(start_gateway, config)
    names = []
    for number in range(12):
        answer = await asked(pair[number % 2].port, {**C0, "max_tokens": 2})
        assert answer.status == 200
        names.append(answer.header("x-sluice-upstream"))
    assert 1 <= names.count(paid["upstream"]) <= 5
    assert names[-2:] == ["own", "own"]
    assert answer.header("x-sluice-routing") == "priority; budget"


async def test_rate_02_and_the_places(upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer) -> None:
    pair = await two(start_gateway, sharing(upstream.url, redis, {"concurrency": 4}))
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    tasks = [asyncio.create_task(asked(pair[number % 2].port)) for number in range(30)]
    await upstream.holding(4)
    await eventually(lambda: sum(task.done() for task in tasks) == 26, "all others are refused")
    refused = [task.result() for task in tasks if task.done()]
    assert {(one.status, one.error["type"]) for one in refused} == {(429, "concurrency")}
    go_on.set()
    assert sum(one.status == 200 for one in await asyncio.gather(*tasks)) == 4
    assert upstream.most_in_flight == 4


async def test_a_place_comes_back_for_the_other_when_a_client_leaves(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer
) -> None:
    pair = await two(start_gateway, sharing(upstream.url, redis, {"concurrency": 1}))
    upstream.reply([sse_head(), frame(piece("x")), NEVER])
    client = await RawClient.open(pair[0].port)
    await client.request("POST", CHAT, S0, [AUTH])
    await client.chunk(await client.head())
    assert (await asked(pair[1].port)).status == 429
    await client.close()
    async with asyncio.timeout(5):
        while (await asked(pair[1].port)).status != 200:
            await asyncio.sleep(0.01)


async def test_a_budget_is_one(upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer) -> None:
    config = sharing(upstream.url, redis, {"usd_per_day": 1}, price=PRICE)
    pair = await two(start_gateway, config)
    upstream.always(used(1, 100))
    body = {**C0, "max_tokens": 100}
    answers = await asyncio.gather(*(asked(pair[number % 2].port, body) for number in range(30)))
    passed = [answer for answer in answers if answer.status == 200]
    assert {one.error["code"] for one in answers if one.status != 200} == {"insufficient_quota"}
    assert len(passed) == len(upstream.calls) == 4  # four times 0.201 USD; a fifth might be too much


async def test_workers_share_it_too(upstream: FaultUpstream, redis: RedisServer, tmp_path: Path) -> None:
    config = sharing(upstream.url, redis, {"rpm": 5}, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        answers = await asyncio.gather(*(asked(gateway.port) for _ in range(60)))
        assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 55
        metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_redis_up") == 1
        assert metrics.value("sluice_limit_rejections_total", key="team-a", limit="rpm") == 55


async def without(gateway: InProcessGateway, redis: RedisServer, how: str) -> None:
    """Takes Redis away, and sees the gateway notice."""
    redis.kill() if how == "killed" else redis.pause()
    await gateway.counted("sluice_redis_up", 0)


@pytest.mark.parametrize("how", ["killed", "paused"])
@pytest.mark.parametrize(("policy", "statuses"), [("open", {200}), ("closed", {503})])
async def test_redis_is_away(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    redis: RedisServer,
    how: str,
    policy: str,
    statuses: set[int],
) -> None:
    away = {"on_failure": policy, "timeout": "100ms"}
    gateway = await start_gateway(sharing(upstream.url, redis, {"rpm": 3}, redis=away))
    await gateway.counted("sluice_redis_up", 1)
    assert (await asked(gateway.port)).status == 200
    await without(gateway, redis, how)
    answers = await asyncio.gather(*(asked(gateway.port) for _ in range(10)))
    assert {one.status for one in answers} == statuses
    if policy == "closed":
        assert {one.error["code"] for one in answers} == {"limits_unavailable"}
        assert {one.header("retry-after") for one in answers} == {"1"}
        assert len(upstream.calls) == 1
    assert (await gateway.metrics()).value("sluice_redis_errors_total") > 0
    if how == "killed":
        redis.start()
    else:
        redis.resume()
    await gateway.counted("sluice_redis_up", 1)
    assert (await asked(gateway.port)).status in (200, 429)


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_alone_each_has_its_share(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer, how: str
) -> None:
    config = sharing(upstream.url, redis, {"rpm": 10}, redis={"timeout": "100ms"})
    pair = await two(start_gateway, config)
    shared = [one._gateway._accounts._shared for one in pair]
    await eventually(lambda: all(one.processes == 2 for one in shared), "each knows of the other")
    redis.kill() if how == "killed" else redis.pause()
    for one in pair:
        await one.counted("sluice_redis_up", 0)
    answers = await asyncio.gather(*(asked(pair[number % 2].port) for number in range(40)))
    assert sum(answer.status == 200 for answer in answers) == 10
    assert len(upstream.calls) == 10
    redis.start() if how == "killed" else redis.resume()
    for one in pair:
        await one.counted("sluice_redis_up", 1)
    await eventually(lambda: not any(one.link.backlog for one in shared), "nothing is left to enter")
    # What was admitted alone is in the shared account: nobody gets the limit twice, a newcomer neither.
    third = await start_gateway(config)
    assert {(await asked(one.port)).status for one in (third, *pair)} == {429}
    assert len(upstream.calls) == 10


async def test_usage_in_redis_is_one_report(
    upstream: FaultUpstream, start_gateway: StartGateway, redis: RedisServer
) -> None:
    config = sharing(upstream.url, redis, {"rpm": 100}, usage={"store": "redis"})
    pair = await two(start_gateway, config)
    for one in pair:
        assert (await asked(one.port)).status == 200
    rows: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while not rows or rows[0]["requests"] < 2:
            rows = (await call(pair[0].admin_port, "GET", "/admin/usage")).json()
    assert len(rows) == 1
    assert (rows[0]["key"], rows[0]["input"], rows[0]["output"]) == ("team-a", 10, 4)


@pytest.mark.parametrize("on_failure", ["local", "closed"])
async def test_rate_02_eight_keys_in_a_cluster_whose_other_nodes_the_url_names(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, on_failure: str
) -> None:
    with RedisCluster(tmp_path) as cluster:
        names = [f"team-{number}" for number in range(8)]
        section = {"password": None, "on_failure": on_failure}
        config = sharing(upstream.url, cluster.nodes[0], {"rpm": 6}, section, usage={"store": "redis"})
        config["keys"] = [{"name": name, "key": f"sk-cluster-{name}", "limits": {"rpm": 6}} for name in names]
        config["cache"] = {"enabled": True, "store": "redis"}
        pair = await two(start_gateway, config)
        for name in names:
            key = ("authorization", f"Bearer sk-cluster-{name}")
            bodies = [{**C0, "user": f"{name}-{number}", "temperature": 1} for number in range(16)]
            answers = [await asked(pair[number % 2].port, body, key=key) for number, body in enumerate(bodies)]
            assert sorted(answer.status for answer in answers) == [200] * 6 + [429] * 10
        for one in pair:
            await one.counted("sluice_redis_up", 1)
