"""The memory store: expiry, eviction, and sizes exact to the byte."""

from random import Random

import pytest

from gateway.cache.memory_store import OVERHEAD, MemoryCacheStore
from gateway.cache.store import CacheEntry
from gateway.core.call import TokenUsage

ROOM = 10 * (OVERHEAD + 100)


class Shelf:
    """A store with a fake clock, and the sizes it has reported."""

    def __init__(self, max_bytes: int = ROOM) -> None:
        self.now = 100.0
        self.entries = self.bytes = 0
        self.store = MemoryCacheStore(max_bytes, lambda: self.now, self._on_change)

    def _on_change(self, entries: int, size: int) -> None:
        self.entries += entries
        self.bytes += size

    async def put(self, key: bytes, size: int = 100, ttl: float = 60.0) -> None:
        """Store an answer of this size."""
        await self.store.put([(key, CacheEntry(b"x" * size, TokenUsage(1), 2))], ttl)

    async def has(self, key: bytes) -> bool:
        """Whether the store has this key."""
        return (await self.store.get([key]))[0] is not None


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


async def test_an_entry_comes_back_with_its_age(shelf: Shelf) -> None:
    await shelf.put(b"a")
    shelf.now += 20.0
    [hit, missing] = await shelf.store.get([b"a", b"b"])
    assert hit is not None
    assert (hit.entry, hit.age, hit.expires_in) == (CacheEntry(b"x" * 100, TokenUsage(1), 2), 20.0, 40.0)
    assert missing is None


async def test_an_entry_expires_after_its_ttl(shelf: Shelf) -> None:
    await shelf.put(b"a", ttl=60.0)
    shelf.now += 59.999
    assert await shelf.has(b"a")
    shelf.now += 0.001
    assert not await shelf.has(b"a")
    assert (shelf.entries, shelf.bytes, shelf.store.bytes) == (0, 0, 0)


async def test_only_a_new_answer_resets_the_age(shelf: Shelf) -> None:
    await shelf.put(b"a")
    shelf.now += 50.0
    await shelf.put(b"a")
    shelf.now += 50.0
    assert await shelf.has(b"a")
    assert shelf.entries == 1


async def test_the_least_recently_used_entry_is_evicted_first(shelf: Shelf) -> None:
    for number in range(10):
        await shelf.put(b"%d" % number)
    assert await shelf.has(b"0")
    await shelf.put(b"new")
    assert not await shelf.has(b"1")
    assert await shelf.has(b"0")
    assert len(shelf.store) == shelf.entries == 10
    assert shelf.bytes == ROOM


async def test_one_entry_takes_at_most_an_eighth_of_the_store(shelf: Shelf) -> None:
    await shelf.put(b"a")
    await shelf.put(b"large", size=ROOM // 8 + 1)
    assert await shelf.has(b"a")
    assert not await shelf.has(b"large")
    await shelf.put(b"large", size=ROOM // 8)
    assert await shelf.has(b"large")


async def test_a_smaller_limit_applies_at_once(shelf: Shelf) -> None:
    for number in range(10):
        await shelf.put(b"%d" % number)
    shelf.store.resize(ROOM // 2)
    assert (len(shelf.store), shelf.bytes) == (5, ROOM // 2)
    assert await shelf.has(b"9")
    shelf.store.resize(0)
    await shelf.put(b"late")
    assert (shelf.entries, shelf.bytes, len(shelf.store)) == (0, 0, 0)


async def test_sizes_stay_exact_under_random_use(shelf: Shelf) -> None:
    random, sizes, largest = Random(7), {}, 0
    for _ in range(2000):
        key = b"%d" % random.randrange(40)
        shelf.now += random.random() * 4
        if random.random() < 0.6:
            sizes[key] = random.randrange(ROOM // 6)
            await shelf.put(key, sizes[key], ttl=30.0)
        else:
            await shelf.has(key)
        held = [key for key in sizes if key in shelf.store._entries]
        actual = sum(len(shelf.store._entries[key].entry.body) + OVERHEAD for key in held)
        assert shelf.store.bytes == shelf.bytes == actual <= ROOM
        assert len(shelf.store) == shelf.entries == len(held)
        largest = max(largest, actual)
    assert largest > ROOM * 0.8
