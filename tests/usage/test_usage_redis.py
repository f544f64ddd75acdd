"""Usage in Redis: several writers, time-outs that leave the outcome open, servers that refuse."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from kit.usage import rows

from gateway.core.units import Secret
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.store import UsageBatch, UsageRow, UsageUnavailable

DAY = "2026-11-29"
NEXT_DAY = "2026-11-30"
ONE = UsageRow(DAY, "team-a", "small", "local", 1, 10, 5, 4, 2, 1000)


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisUsageStore]:
    one = RedisUsageStore(Secret(redis_server.url), "sluice", 5.0)
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def hasty(redis_server: RedisServer) -> AsyncIterator[RedisUsageStore]:
    """A store that waits for no answer long."""
    one = RedisUsageStore(Secret(redis_server.url), "sluice", 0.02)
    yield one
    await one.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may end or bend."""
    with RedisServer(tmp_path) as one:
        yield one


def times(row: UsageRow, count: int) -> UsageRow:
    return UsageRow(*row[:4], *[number * count for number in row[4:]])


async def test_rows_add_up(store: RedisUsageStore):
    odd = ONE._replace(key='{a}:"b"\\ ü\x1f', model="org/large:{x}", reasoning=0, cost=7)
    await store.add(UsageBatch("1", (ONE, odd, ONE._replace(day=NEXT_DAY))))
    await store.add(UsageBatch("2", (ONE, ONE._replace(day="2026-11-01"))))
    assert set(await rows(store, DAY, DAY)) == {times(ONE, 2), odd}
    assert sorted(await rows(store, "2026-11-02", NEXT_DAY)) == sorted([times(ONE, 2), odd, ONE._replace(day=NEXT_DAY)])
    assert await store.spent(DAY) == {"team-a": 2000, odd.key: 7}
    assert await store.spent("2026-11-28") == {}


async def test_large_numbers_stay_exact(store: RedisUsageStore):
    large = ONE._replace(input=10**15 - 1, cost=2**53 + 1)
    await store.add(UsageBatch("1", (large,)))
    assert await rows(store, DAY, DAY) == [large]


async def test_a_batch_counts_once_however_often_it_is_sent(store: RedisUsageStore):
    batch = UsageBatch("same", (ONE, ONE._replace(day=NEXT_DAY)))
    for _ in range(3):
        await store.add(batch)
    assert sorted(await rows(store, DAY, NEXT_DAY)) == [ONE, ONE._replace(day=NEXT_DAY)]


async def test_several_writers_lose_nothing(store: RedisUsageStore, redis_server: RedisServer):
    stores = [RedisUsageStore(Secret(redis_server.url), "sluice") for _ in range(4)]
    await asyncio.gather(
        *(one.add(UsageBatch(f"{name}-{number}", (ONE,))) for name, one in enumerate(stores) for number in range(25))
    )
    assert await rows(store, DAY, DAY) == [times(ONE, 100)]
    await asyncio.gather(*(one.close() for one in stores))


async def test_a_paused_server_counts_what_timed_out_once(
    store: RedisUsageStore, hasty: RedisUsageStore, redis_server: RedisServer
):
    await hasty.open()  # so that the batch is on its way before the server stops answering
    batch = UsageBatch("unsure", (ONE,))
    redis_server.pause()
    try:
        with pytest.raises(UsageUnavailable):
            await hasty.add(batch)
        with pytest.raises(UsageUnavailable):
            await hasty.add(batch)
    finally:
        redis_server.resume()
    await store.add(batch)
    assert await rows(store, DAY, DAY) == [ONE]


async def test_an_unavailable_server_raises_until_it_is_back(own_redis: RedisServer):
    store = RedisUsageStore(Secret(own_redis.url), "sluice")
    await store.open()
    own_redis.stop()
    for ask in (store.open(), store.spent(DAY), rows(store, DAY, DAY), store.add(UsageBatch("1", (ONE,)))):
        with pytest.raises(UsageUnavailable, match="redis: "):
            await ask
    own_redis.start()
    await store.add(UsageBatch("1", (ONE,)))
    assert await rows(store, DAY, DAY) == [ONE]
    await store.close()


@pytest.mark.parametrize(
    ("bend", "mend"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ],
    ids=["full", "no replicas", "read-only"],
)
async def test_a_server_that_rejects_writes_stores_all_or_nothing(
    own_redis: RedisServer, bend: tuple[str, ...], mend: tuple[str, ...]
):
    store = RedisUsageStore(Secret(own_redis.url), "sluice")
    await store.add(UsageBatch("1", (ONE,)))
    assert own_redis.command(*bend).startswith(b"+OK")
    batch = UsageBatch("2", (ONE, ONE._replace(model="large")))
    with pytest.raises(UsageUnavailable):
        await store.add(batch)
    assert own_redis.command(*mend).startswith(b"+OK")
    assert await rows(store, DAY, DAY) == [ONE]
    await store.add(batch)
    assert set(await rows(store, DAY, DAY)) == {times(ONE, 2), ONE._replace(model="large")}
    await store.close()


async def test_a_flushed_script_is_sent_again(store: RedisUsageStore, redis_server: RedisServer):
    await store.add(UsageBatch("1", (ONE,)))
    redis_server.command("SCRIPT", "FLUSH")
    await store.add(UsageBatch("2", (ONE,)))
    assert await rows(store, DAY, DAY) == [times(ONE, 2)]


async def test_a_cluster_finds_all_keys_in_one_slot(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bus = free.getsockname()[1]  # its usual place, 10,000 above the port, may be no port at all
    with RedisServer(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(bus)) as server:
        assert server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383").startswith(b"+OK")
        await eventually(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"), "a cluster", 10)
        store = RedisUsageStore(Secret(server.url), "sluice")
        await store.add(UsageBatch("1", (ONE,)))
        assert await rows(store, DAY, DAY) == [ONE]
        await store.close()


async def test_only_batch_markers_expire(store: RedisUsageStore, redis_server: RedisServer):
    await store.add(UsageBatch("1", (ONE,)))
    ages = {key: redis_server.command("TTL", key) for key in _keys(redis_server)}
    assert len(ages) == 3
    assert {key for key, age in ages.items() if age != b":-1\r\n"} == {f"sluice:{{usage}}:batch:1:{DAY}"}


def _keys(server: RedisServer) -> list[str]:
    return [line for line in server.command("KEYS", "*").decode().splitlines() if line.startswith("sluice")]


async def test_no_secret_is_in_a_message(own_redis: RedisServer):
    address = f"redis://user:hunter2-hunter2@127.0.0.1:{own_redis.port}/0"
    store = RedisUsageStore(Secret(address), "sluice")
    with pytest.raises(UsageUnavailable) as denied:
        await store.open()
    own_redis.stop()
    with pytest.raises(UsageUnavailable) as away:
        await store.open()
    assert "hunter2" not in f"{denied.value} {away.value}"
    await store.close()
