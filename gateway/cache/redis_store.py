"""Cache store in Redis, shared by any number of processes and machines.

It uses a separate connection, so that a large answer in transit does not delay the limits of keys. While
Redis does not answer in time, `PipelinedRedis` fails requests at once, so no call waits for it twice.
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
"""Bytes of one entry; larger ones would delay everything behind them on the connection."""

_GET: Final = Script.named("gateway.cache.lua", "get")
_PUT: Final = Script.named("gateway.cache.lua", "put")
_KEYS_PER_COMMAND: Final = 64
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
    """A `CacheStore`. Call `start` first, and `stop` at the end."""

    def __init__(
        self, url: Secret, timeout: float, prefix: str, on_error: Callable[[str], None], clock: Clock = unix
    ) -> None:
        """`timeout` in seconds; `on_error` receives the kind of each error.

        `clock` returns wall-clock seconds, the only clock that machines have in common.
        """
        self.largest = LARGEST
        self._prefix = f"{prefix}:{{cache}}:".encode()
        self._clock = clock
        self._link = PipelinedRedis(url, timeout, [_GET, _PUT], self._probe, on_error)

    async def start(self) -> None:
        """Connect; keeps retrying in the background if Redis does not answer."""
        await self._link.start()

    async def stop(self) -> None:
        """Close the connection."""
        await self._link.stop()

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """Return one result per key, with one round trip per 64 keys."""
        hits: list[CacheHit | None] = []
        now = self._clock()
        for start in range(0, len(keys), _KEYS_PER_COMMAND):
            reply = await self._request(_GET, keys[start : start + _KEYS_PER_COMMAND], ())
            hits += [_hit(value, now) for value in _split(reply)]
        return hits

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Store these, except entries over the size limit."""
        now = self._clock()
        fitting = [(key, entry) for key, entry in entries if len(entry.body) <= LARGEST]
        for start in range(0, len(fitting), _KEYS_PER_COMMAND):
            chunk = fitting[start : start + _KEYS_PER_COMMAND]
            records = [_encode(_Record(now, ttl, entry.body, entry.tokens, entry.cost)) for _, entry in chunk]
            await self._request(_PUT, [key for key, _ in chunk], (b"%d" % max(1, ttl * 1000), *records))

    async def _request(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        head = Head.of([self._prefix + key.hex().encode() for key in keys])
        try:
            self._link.request(Command(script, head, arguments, partial(_resolve, waiter), waiter))
            return await waiter
        except RedisFailure as failure:
            raise CacheUnavailable(failure.kind) from None

    def _probe(self) -> Command:
        head = Head.of([self._prefix + b"probe"])
        return Command(_PUT, head, (_PROBE_MS, b""), lambda _: None)


def _resolve(waiter: asyncio.Future[bytes], reply: bytes | RedisFailure) -> None:
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


def _hit(value: bytes, now: float) -> CacheHit | None:
    try:
        record = _decode(value) if value else None
    except msgspec.DecodeError:  # written by another version
        return None
    if record is None:
        return None
    age = max(0.0, now - record.at)
    entry = CacheEntry(record.body, TokenUsage(*record.tokens), record.cost)
    return CacheHit(entry, age, max(0.0, record.ttl - age))
