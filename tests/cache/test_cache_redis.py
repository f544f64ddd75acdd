"""The Redis store: shared, bounded, and never waiting for an unavailable Redis."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from doubles.redis_server import RedisServer

from gateway.cache.redis_store import LARGEST, RedisCacheStore
from gateway.cache.store import CacheEntry, CacheUnavailable
from gateway.core.call import TokenUsage
from gateway.core.units import Secret

ENTRY = CacheEntry(b'{"a":"\xc3\xa9"}', TokenUsage(1, 2, 3, 4), 5)


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
async def store(redis_server: RedisServer, counted: Counter[str]) -> AsyncIterator[RedisCacheStore]:
    def on_error(kind: str) -> None:
        counted[kind] += 1

    store = RedisCacheStore(Secret(redis_server.url), 2.0, "test", on_error, lambda: 1000.0)
    await store.start()
    yield store
    await store.stop()


async def test_processes_share_entries(store: RedisCacheStore, redis_server: RedisServer) -> None:
    many = [(b"%d" % number, CacheEntry(b"%d" % number, TokenUsage(number), None)) for number in range(200)]
    await store.put([(b"k", ENTRY), *many], 60.0)
    other = RedisCacheStore(Secret(redis_server.url), 2.0, "test", lambda _: None, lambda: 1020.0)
    await other.start()
    hits = await other.get([b"k", b"nothing", *(key for key, _ in many)])
    await other.stop()
    assert hits[0] is not None
    assert (hits[0].entry, hits[0].age, hits[0].expires_in) == (ENTRY, 20.0, 40.0)
    assert hits[1] is None
    assert [hit.entry for hit in hits[2:] if hit is not None] == [entry for _, entry in many]


async def test_entries_expire_in_redis(store: RedisCacheStore, redis_server: RedisServer) -> None:
    await store.put([(b"k", ENTRY)], 12.5)
    left = redis_server.command("PTTL", f"test:{{cache}}:{b'k'.hex()}")
    assert 11_000 < int(left[1:]) <= 12_500
    assert redis_server.command("DBSIZE") in (b":1\r\n", b":2\r\n")  # the probe's own key


async def test_prefixes_share_nothing(store: RedisCacheStore, redis_server: RedisServer) -> None:
    await store.put([(b"k", ENTRY)], 60.0)
    other = RedisCacheStore(Secret(redis_server.url), 2.0, "other", lambda _: None)
    await other.start()
    assert await other.get([b"k"]) == [None]
    await other.stop()


async def test_oversized_and_foreign_entries_are_misses(store: RedisCacheStore, redis_server: RedisServer) -> None:
    await store.put([(b"large", ENTRY._replace(body=b"x" * (LARGEST + 1))), (b"k", ENTRY)], 60.0)
    redis_server.command("SET", f"test:{{cache}}:{b'other'.hex()}", "nonsense")
    large, ours, other = await store.get([b"large", b"k", b"other"])
    assert (large, other) == (None, None)
    assert ours is not None


async def test_a_frozen_redis_is_asked_once(redis_server: RedisServer, counted: Counter[str]) -> None:
    def on_error(kind: str) -> None:
        counted[kind] += 1

    store = RedisCacheStore(Secret(redis_server.url), 0.05, "test", on_error)
    await store.start()
    redis_server.pause()
    try:
        with pytest.raises(CacheUnavailable):
            await store.get([b"k"])
        assert counted["timeout"] == 1
        for _ in range(100):  # fails at once, without a turn of the loop
            with pytest.raises(CacheUnavailable):
                store.get([b"k"]).send(None)
            with pytest.raises(CacheUnavailable):
                store.put([(b"k", ENTRY)], 1.0).send(None)
    finally:
        redis_server.resume()
        await store.stop()


async def test_answers_of_all_sizes_come_back_in_order(store: RedisCacheStore) -> None:
    """Small ones at once, large ones once their size is known; together far more than one command carries."""
    sizes = [10, 100_000, 20, LARGEST, 16_000, 700_000, 700_000, 0, 30]
    entries = [(b"%d" % number, ENTRY._replace(body=b"%d" % number * size)) for number, size in enumerate(sizes)]
    await store.put(entries, 60.0)
    hits = await store.get([b"nothing", *(key for key, _ in entries)])
    assert hits[0] is None
    assert [hit.entry for hit in hits[1:] if hit is not None] == [entry for _, entry in entries]


async def test_a_foreign_key_of_another_kind_is_a_miss(
    store: RedisCacheStore, redis_server: RedisServer, counted: Counter[str]
) -> None:
    redis_server.command("RPUSH", f"test:{{cache}}:{b'list'.hex()}", "x")
    assert await store.get([b"list"]) == [None]
    assert not counted
