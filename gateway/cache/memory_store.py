"""Cache store in process memory: least recently used eviction, bounded in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.cache.store import CacheEntry, CacheHit
from gateway.core.clock import Clock

OVERHEAD: Final = 512
"""Estimated bytes of one entry beyond its body: the key, the numbers and their objects."""

_LARGEST_DIVISOR: Final = 8
"""One entry may use at most an eighth of the store."""


class _Stored(NamedTuple):
    entry: CacheEntry
    at: float
    ttl: float


class MemoryCacheStore:
    """A `CacheStore`. Expired entries are dropped when they are requested, or evicted like any other."""

    def __init__(self, max_bytes: int, clock: Clock, on_change: Callable[[int, int], None]) -> None:
        """`on_change(entries, bytes)` receives every change of the number and size of entries."""
        self.max_bytes = max_bytes
        self.largest = max_bytes // _LARGEST_DIVISOR
        self.up: Final = True
        self.bytes = 0
        self._clock = clock
        self._on_change = on_change
        self._entries: OrderedDict[bytes, _Stored] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """Return one result per key."""
        now = self._clock()
        return [self._get(key, now) for key in keys]

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Store these, and evict the least recently used ones beyond the limit."""
        now = self._clock()
        for key, entry in entries:
            if len(entry.body) <= self.largest:
                self._drop(key)
                self._entries[key] = _Stored(entry, now, ttl)
                self._count(1, entry)
        self._evict()

    def resize(self, max_bytes: int) -> None:
        """Set the limit in bytes; 0 drops everything and stores nothing."""
        self.max_bytes, self.largest = max_bytes, max_bytes // _LARGEST_DIVISOR
        self._evict()

    def _get(self, key: bytes, now: float) -> CacheHit | None:
        stored = self._entries.get(key)
        if stored is None:
            return None
        age = now - stored.at
        if age >= stored.ttl:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return CacheHit(stored.entry, age, stored.ttl - age)

    def _evict(self) -> None:
        while self.bytes > self.max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._count(-1, oldest.entry)

    def _drop(self, key: bytes) -> None:
        stored = self._entries.pop(key, None)
        if stored is not None:
            self._count(-1, stored.entry)

    def _count(self, sign: int, entry: CacheEntry) -> None:
        size = sign * (len(entry.body) + OVERHEAD)
        self.bytes += size
        self._on_change(sign, size)
