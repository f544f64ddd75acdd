"""Cache store in Redis, shared by any number of processes and machines.

It uses a separate connection, so that a large answer in transit does not delay the limits of keys. While
Redis does not answer in time, `PipelinedRedis` fails requests at once, so no call waits for it twice.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

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
_SMALL: Final = 16 * 1024
"""Bytes of answers that are returned at once; what is more is asked for with its size known."""
_BYTES_PER_COMMAND: Final = 1024 * 1024
_LENGTH: Final = struct.Struct(">I")
_LEFT_OUT: Final = 1 << 31
_PROBE_MS: Final = b"5000"
_Item = TypeVar("_Item")


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

    @property
    def up(self) -> bool:
        """Whether Redis answers."""
        return self._link.up

    async def start(self) -> None:
        """Connect; keeps retrying in the background if Redis does not answer."""
        await self._link.start()

    async def stop(self) -> None:
        """Close the connection."""
        await self._link.stop()

    async def get(self, keys: Sequence[bytes]) -> list[CacheHit | None]:
        """Return one result per key: one round trip per 64 keys, and one more per MiB of large answers."""
        values: dict[bytes, bytes] = {}
        large: list[tuple[bytes, int]] = []
        for start in range(0, len(keys), _KEYS_PER_COMMAND):
            asked = keys[start : start + _KEYS_PER_COMMAND]
            reply = await self._request(_GET, asked, (b"%d" % _SMALL,), _SMALL)
            for key, value in zip(asked, _split(reply), strict=True):
                if isinstance(value, int):
                    large.append((key, value))
                else:
                    values[key] = value
        for group in _by_size(large, lambda one: one[1]):
            asked = [key for key, _ in group]
            reply = await self._request(_GET, asked, (b"",), sum([size for _, size in group]))
            values |= zip(asked, [value for value in _split(reply) if isinstance(value, bytes)], strict=True)
        now = self._clock()
        return [_hit(values[key], now) for key in keys]

    async def put(self, entries: Sequence[tuple[bytes, CacheEntry]], ttl: float) -> None:
        """Store these, except entries over the size limit."""
        now = self._clock()
        fitting = [(key, entry) for key, entry in entries if len(entry.body) <= LARGEST]
        for group in _by_size(fitting, lambda one: len(one[1].body)):
            records = [_encode(_Record(now, ttl, entry.body, entry.tokens, entry.cost)) for _, entry in group]
            await self._request(_PUT, [key for key, _ in group], (b"%d" % max(1, ttl * 1000), *records))

    async def _request(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes], reply_size: int = 0
    ) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        head = Head.of([self._prefix + key.hex().encode() for key in keys])
        then = partial(_resolve, waiter)
        try:
            self._link.request(Command(script, head, arguments, then, waiter, reply_size))
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


def _split(reply: bytes) -> list[bytes | int]:
    """The answers in a reply; for one that was left out, its size."""
    values: list[bytes | int] = []
    at = 0
    while at < len(reply):
        size, start = _LENGTH.unpack_from(reply, at)[0], at + _LENGTH.size
        if size >= _LEFT_OUT:
            values.append(size - _LEFT_OUT)
            at = start
        else:
            at = start + size
            values.append(reply[start:at])
    return values


def _by_size(items: Sequence[_Item], size_of: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """The items in groups that fit one command each."""
    group: list[_Item] = []
    size = 0
    for item in items:
        if group and (len(group) == _KEYS_PER_COMMAND or size + size_of(item) > _BYTES_PER_COMMAND):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group


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
