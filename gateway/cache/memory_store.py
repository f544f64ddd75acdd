"""Answers in this process's memory: the ones used last, as many as a number of bytes holds."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.cache.store import CacheEntry, CacheHit
from gateway.core.clock import Clock

OVERHEAD: Final = 512
"""Bytes that one entry takes beyond its answer: key, numbers, and the objects that hold them."""

_LARGEST_PART: Final = 8
"""No answer may take more than this part of the room from all others."""


class _Stored(NamedTuple):
    entry: CacheEntry
    at: float
    ttl: float


class MemoryCacheStore:
    """An `Answers` store. What has expired makes room when it is asked for, or when it is its turn."""

    def __init__(self, max_bytes: int, clock: Clock, grown: Callable[[int, int], None]) -> None:
        """`grown(entries, bytes)` is told each change of what is held."""
        self.max_bytes = max_bytes
        self.largest = max_bytes // _LARGEST_PART
        self.bytes = 0
        self._clock = clock
        self._grown = grown
        self._entries: OrderedDict[bytes, _Stored] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """One for each key."""
        now = self._clock()
        return [self._get(key, now) for key in keys]

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Keep these; those used longest ago go."""
        now = self._clock()
        for key, entry in entries:
            if len(entry.body) <= self.largest:
                self._drop(key)
                self._entries[key] = _Stored(entry, now, ttl)
                self._count(1, entry)
        self._make_room()

    def resize(self, max_bytes: int) -> None:
        """Have so much room from now on; 0 forgets everything and takes nothing."""
        self.max_bytes, self.largest = max_bytes, max_bytes // _LARGEST_PART
        self._make_room()

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

    def _make_room(self) -> None:
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
        self._grown(sign, size)
