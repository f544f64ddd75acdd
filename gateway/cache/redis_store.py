"""Answers in Redis, which any number of processes and machines share.

They have a connection of their own: a large answer on its way must not hold up a key's limits. While Redis
does not answer in time, nothing is asked of it (`redis_link.Link`), so nobody waits for it twice.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from gateway.cache.store import CacheEntry, CacheHit, CacheUnavailable
from gateway.core.call import TokenUsage
from gateway.core.clock import Clock, unix
from gateway.core.units import Secret
from gateway.redis.command import Command, Head, RedisFailure, Script
from gateway.redis.pipelined import PipelinedRedis

LARGEST: Final = 1024 * 1024
"""Bytes of one answer; more would hold up all that come behind it."""

_GET: Final = Script.named("gateway.cache.lua", "get")
_PUT: Final = Script.named("gateway.cache.lua", "put")
_AT_ONCE: Final = 64  # keys that one command names
_LENGTH: Final = struct.Struct(">I")
_PROBE_MS: Final = b"5000"


class _Record(msgspec.Struct, array_like=True):
    at: float
    ttl: float
    body: bytes
    tokens: tuple[int, ...]
    cost: int | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Record).decode


class RedisCacheStore:
    """An `Answers` store. `start` it, and `stop` it at the end."""

    def __init__(
        self, url: Secret, timeout: float, prefix: str, failed: Callable[[str], None], clock: Clock = unix
    ) -> None:
        """`timeout` in seconds; `failed` is told the kind of each error.

        `clock` gives wall-clock seconds: machines that share answers have no other clock in common.
        """
        self.largest = LARGEST
        self._prefix = f"{prefix}:{{cache}}:".encode()
        self._clock = clock
        self._link = PipelinedRedis(url, timeout, [_GET, _PUT], self._probe, failed)

    async def start(self) -> None:
        """Connect; a Redis that does not answer is looked for in the background."""
        await self._link.start()

    async def stop(self) -> None:
        """Close the connection."""
        await self._link.stop()

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """One for each key, in one round trip or a few."""
        found: list[CacheHit | None] = []
        now = self._clock()
        for start in range(0, len(keys), _AT_ONCE):
            reply = await self._ask(_GET, keys[start : start + _AT_ONCE], ())
            found += [_kept(value, now) for value in _split(reply)]
        return found

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Keep these."""
        now = self._clock()
        fitting = [one for one in entries if len(one[1].body) <= LARGEST]
        for start in range(0, len(fitting), _AT_ONCE):
            some = fitting[start : start + _AT_ONCE]
            records = [_encode(_Record(now, ttl, one.body, one.tokens, one.cost)) for _, one in some]
            await self._ask(_PUT, [key for key, _ in some], (b"%d" % max(1, ttl * 1000), *records))

    async def _ask(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        head = Head.of([self._prefix + key.hex().encode() for key in keys])
        try:
            self._link.request(Command(script, head, arguments, partial(_told, waiter), waiter))
            return await waiter
        except RedisFailure as trouble:
            raise CacheUnavailable(trouble.kind) from None

    def _probe(self) -> Command:
        head = Head.of([self._prefix + b"probe"])
        return Command(_PUT, head, (_PROBE_MS, b""), lambda _: None)


def _told(waiter: asyncio.Future[bytes], reply: bytes | RedisFailure) -> None:
    if waiter.done():
        return
    if isinstance(reply, RedisFailure):
        waiter.set_exception(reply)
    else:
        waiter.set_result(reply)


def _split(reply: bytes) -> list[bytes]:
    values, at = [], 0
    while at < len(reply):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(reply, at)[0]
        values.append(reply[start:at])
    return values


def _kept(value: bytes, now: float) -> CacheHit | None:
    try:
        record = _decode(value) if value else None
    except msgspec.DecodeError:  # another version's
        return None
    if record is None:
        return None
    age = max(0.0, now - record.at)
    entry = CacheEntry(record.body, TokenUsage(*record.tokens), record.cost)
    return CacheHit(entry, age, max(0.0, record.ttl - age))
