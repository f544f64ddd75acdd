"""Answers kept in Redis: shared, bounded, and nobody waits for a Redis that is away."""

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
    def failed(kind: str) -> None:
        counted[kind] += 1

    one = RedisCacheStore(Secret(redis_server.url), 2.0, "test", failed, lambda: 1000.0)
    await one.start()
    yield one
    await one.stop()


async def test_another_process_finds_them(store: RedisCacheStore, redis_server: RedisServer) -> None:
    many = [(b"%d" % number, CacheEntry(b"%d" % number, TokenUsage(number), None)) for number in range(200)]
    await store.put([(b"k", ENTRY), *many], 60.0)
    other = RedisCacheStore(Secret(redis_server.url), 2.0, "test", lambda _: None, lambda: 1020.0)
    await other.start()
    found = await other.get([b"k", b"nothing", *(key for key, _ in many)])
    await other.stop()
    assert found[0] is not None
    assert (found[0].entry, found[0].age, found[0].left) == (ENTRY, 20.0, 40.0)
    assert found[1] is None
    assert [kept.entry for kept in found[2:] if kept is not None] == [entry for _, entry in many]


async def test_redis_itself_forgets_them(store: RedisCacheStore, redis_server: RedisServer) -> None:
    await store.put([(b"k", ENTRY)], 12.5)
    left = redis_server.command("PTTL", f"test:{{cache}}:{b'k'.hex()}")
    assert 11_000 < int(left[1:]) <= 12_500
    assert redis_server.command("DBSIZE") in (b":1\r\n", b":2\r\n")  # the probe's own key


async def test_a_prefix_of_its_own(store: RedisCacheStore, redis_server: RedisServer) -> None:
    await store.put([(b"k", ENTRY)], 60.0)
    other = RedisCacheStore(Secret(redis_server.url), 2.0, "other", lambda _: None)
    await other.start()
    assert await other.get([b"k"]) == [None]
    await other.stop()


async def test_what_is_too_large_or_not_ours_is_not_there(
    store: RedisCacheStore, redis_server: RedisServer
) -> None:
    await store.put([(b"large", ENTRY._replace(body=b"x" * (LARGEST + 1))), (b"k", ENTRY)], 60.0)
    redis_server.command("SET", f"test:{{cache}}:{b'other'.hex()}", "nonsense")
    large, ours, other = await store.get([b"large", b"k", b"other"])
    assert (large, other) == (None, None)
    assert ours is not None


async def test_a_redis_that_is_frozen_is_asked_once(redis_server: RedisServer, counted: Counter[str]) -> None:
    def failed(kind: str) -> None:
        counted[kind] += 1

    store = RedisCacheStore(Secret(redis_server.url), 0.05, "test", failed)
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
