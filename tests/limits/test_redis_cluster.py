"""Limits, cache and usage in a cluster of real servers and behind a sentinel, also while a master dies."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from accounts import DAY, Clocks, Process
from doubles.redis_cluster import RedisCluster, RedisSentinel, cluster_node, until
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from kit.usage import rows

from gateway.cache.redis_store import RedisCacheStore
from gateway.cache.store import CacheEntry
from gateway.cli.check_redis import ask_redis
from gateway.config.model import RedisConfig
from gateway.core.call import TokenUsage
from gateway.core.caller import KeyLimits
from gateway.core.units import Secret
from gateway.limits.account import Denial, Reservation, ReservationRequest
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.store import UsageBatch, UsageRow, UsageUnavailable

NAMES = [f"team-{number}" for number in range(8)]
ROW = UsageRow(DAY, "team-a", "small", "local", 1, 10, 5, 4, 2, 1000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as one:
        yield one


async def reserved(process: Process, name: str, limits: KeyLimits, count: int) -> int:
    """How many of `count` calls of a key one process lets through."""
    account = process.limits.account(name, limits)
    request = ReservationRequest(committed=1, expected=1)
    outcomes = [await account.reserve(request, DAY, process.limits._shared.clock()) for _ in range(count)]
    assert all(isinstance(one, Reservation | Denial) for one in outcomes)
    return sum(isinstance(one, Reservation) for one in outcomes)


@pytest.mark.parametrize("node", [0, 1, 2])
async def test_limits_hold_for_every_key_whatever_node_the_url_names(cluster: RedisCluster, node: int):
    clocks = Clocks()
    clocks.now += 1000 * node
    limits = KeyLimits(rpm=6)
    processes = [Process(cluster.nodes[one].url, clocks) for one in (node, (node + 1) % 3)]
    for process in processes:
        await process.limits.start()
        assert process.limits.link.up
    for name in NAMES:
        assert sum([await reserved(process, f"{name}-{node}", limits, 6) for process in processes]) == 6
    for process in processes:
        assert set(process.counted) <= {"noscript"}
        await process.limits.stop()


@pytest.mark.parametrize("node", [0, 1, 2])
async def test_the_cache_and_usage_work_on_every_node(cluster: RedisCluster, node: int):
    counted: Counter[str] = Counter()
    cache = RedisCacheStore(Secret(cluster.nodes[node].url), 0.5, "t", lambda kind: counted.update([kind]))
    await cache.start()
    entry = CacheEntry(b"answer", TokenUsage(1, 2, 0, 0), None)
    await cache.put([(b"key%d" % node, entry)], 60.0)
    hits = await cache.get([b"key%d" % node, b"none"])
    assert hits[0] is not None
    assert hits[0].entry.body == b"answer"
    await cache.stop()
    usage = RedisUsageStore(Secret(cluster.nodes[node].url), f"n{node}", 5.0)
    await usage.open()
    await asyncio.gather(*(usage.add(UsageBatch(str(number), (ROW,))) for number in range(4)))
    assert [row.requests for row in await rows(usage, DAY, DAY)] == [4]
    assert len((await usage.summary(DAY, DAY)).keys.rows) == 1
    await usage.close()
    assert set(counted) <= {"noscript"}


async def test_check_takes_a_cluster_and_says_when_it_does_not_serve(cluster: RedisCluster, tmp_path: Path):
    assert await ask_redis(RedisConfig(url=Secret(cluster.nodes[1].url))) is None
    wrong = await ask_redis(RedisConfig(url=Secret(cluster.nodes[1].url.removesuffix("0") + "1")))
    assert "is a node of a cluster, which has only database 0" in str(wrong)
    with cluster_node(tmp_path, "lonely") as lonely:
        assert "(cluster_state:fail)" in str(await ask_redis(RedisConfig(url=Secret(lonely.url))))


async def test_a_master_that_dies_is_replaced_and_limits_hold(tmp_path: Path):
    clocks = Clocks()
    with RedisCluster(tmp_path, replicas=True) as cluster:
        master = cluster.owner("test:{limits}:processes")
        # The URL names another node, and later this one is the one that is gone.
        urls = [next(node.url for node in cluster.nodes if node is not master), master.url]
        processes = [Process(url, clocks) for url in urls]
        for process in processes:
            await process.limits.start()
        limits = KeyLimits(rpm=6)
        assert sum([await reserved(process, "before", limits, 4) for process in processes]) == 6
        await eventually(lambda: all(one.limits.processes == 2 for one in processes), "both count two", 10)
        master.kill()
        await eventually(lambda: not any(one.limits.link.up for one in processes), "both have noticed", 10)
        # Meanwhile each has its share, as for any Redis that is away.
        assert sum([await reserved(process, "during", limits, 6) for process in processes]) == 6
        await eventually(lambda: all(one.limits.link.up for one in processes), "the replica serves", 30)
        assert sum([await reserved(process, "after", limits, 6) for process in processes]) == 6
        for process in processes:
            await process.limits.stop()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer, RedisSentinel]]:
    """A master, its replica, and the sentinel that watches them."""
    folders = [tmp_path / name for name in ("master", "replica", "sentinel")]
    for folder in folders[:2]:
        folder.mkdir()
    login = ("--requirepass", "p@ss/w0rd", "--masterauth", "p@ss/w0rd")
    with (
        RedisServer(folders[0], *login) as master,
        RedisServer(folders[1], *login, "--replicaof", f"127.0.0.1 {master.port}") as replica,
        RedisSentinel(folders[2], "mymaster", master, "p@ss/w0rd") as sentinel,
    ):
        until(
            lambda: (
                f"slave0:ip=127.0.0.1,port={replica.port}".encode() in sentinel.command("INFO")
                or b"slaves=1" in sentinel.command("INFO", "sentinel")
            )
        )
        yield master, replica, sentinel


async def test_sentinels_name_the_master_also_after_a_failover(
    watched: tuple[RedisServer, RedisServer, RedisSentinel], tmp_path: Path
):
    master, _, sentinel = watched
    config = RedisConfig(
        url=Secret(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/mymaster/0"),
        password=Secret("p@ss/w0rd"),
    )
    assert await ask_redis(config) is None
    process = Process(config.address().reveal(), Clocks())
    usage = RedisUsageStore(config.address(), "sluice", 5.0)
    await process.limits.start()
    assert process.limits.link.up
    limits = KeyLimits(rpm=6)
    assert await reserved(process, "before", limits, 8) == 6
    await usage.add(UsageBatch("1", (ROW,)))
    master.kill()
    await eventually(lambda: not process.limits.link.up, "it has noticed", 10)
    await eventually(lambda: process.limits.link.up, "the replica is master", 30)
    assert await reserved(process, "after", limits, 8) == 6
    with contextlib.suppress(UsageUnavailable):  # its connection was that of the dead master
        await usage.add(UsageBatch("2", (ROW,)))
    await usage.add(UsageBatch("2", (ROW,)))
    # A master that dies may take its last write with it.
    assert [row.requests for row in await rows(usage, DAY, DAY)] in ([1], [2])
    await usage.close()
    await process.limits.stop()


async def test_a_name_that_no_sentinel_knows_is_said(watched: tuple[RedisServer, RedisServer, RedisSentinel]):
    at = f"127.0.0.1:{watched[2].port}"
    wrong = await ask_redis(RedisConfig(url=Secret(f"redis+sentinel://:p%40ss@{at}/other")))
    assert wrong == (
        f"no sentinel ({at}) knows a living master named other; check the sentinels and the name in redis.url"
    )
    wrong = await ask_redis(RedisConfig(url=Secret(f"redis+sentinel://:wrong@{at}/mymaster")))
    assert wrong is not None
    assert "rejected the login" in wrong
