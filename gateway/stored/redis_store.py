"""What is remembered of stored responses in Redis, for all gateways that share it."""

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from gateway.core.units import Secret
from gateway.redis.command import Command, Head, RedisFailure, Script
from gateway.redis.pipelined import PipelinedRedis
from gateway.stored.records import LIFETIME_S, StoredResponse

_GET: Final = Script.named("gateway.stored.lua", "get")
_PUT: Final = Script.named("gateway.stored.lua", "put")
_LIFETIME_MS: Final = b"%d" % (LIFETIME_S * 1000)
_PROBE_MS: Final = b"5000"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredResponse).decode


class RedisResponseStore:
    """The responses of all gateways, by id. Call `start` first, and `stop` at the end. Methods raise RedisFailure."""

    def __init__(self, url: Secret, timeout: float, prefix: str, on_error: Callable[[str], None]) -> None:
        """`timeout` in seconds; `on_error` receives the kind of each error."""
        self._prefix = f"{prefix}:{{responses}}:".encode()
        self._link = PipelinedRedis(url, timeout, [_GET, _PUT], self._probe, on_error)

    async def start(self) -> None:
        """Connect; keeps retrying in the background if Redis does not answer."""
        await self._link.start()

    async def stop(self) -> None:
        """Close the connection."""
        await self._link.stop()

    async def find(self, name: str) -> StoredResponse | None:
        """The response of this id."""
        value = await self._request(_GET, name)
        try:
            return _decode(value) if value else None
        except msgspec.DecodeError:  # written by another version
            return None

    async def put(self, name: str, record: StoredResponse) -> None:
        """Remember a response."""
        await self._request(_PUT, name, _LIFETIME_MS, _encode(record))

    async def forget(self, name: str) -> None:
        """The response has been deleted."""
        await self._request(_PUT, name, _LIFETIME_MS, b"")

    async def _request(self, script: Script, name: str, *arguments: bytes) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        # An id comes from a client or an upstream, and may be of any length.
        head = Head.of([self._prefix + hashlib.sha256(name.encode()).hexdigest().encode()])
        self._link.request(Command(script, head, arguments, partial(_resolve, waiter), waiter))
        return await waiter

    def _probe(self) -> Command:
        return Command(_PUT, Head.of([self._prefix + b"probe"]), (_PROBE_MS, b"1"), lambda _: None)


def _resolve(waiter: asyncio.Future[bytes], reply: bytes | RedisFailure) -> None:
    if waiter.done():
        return
    if isinstance(reply, RedisFailure):
        waiter.set_exception(reply)
    else:
        waiter.set_result(reply)
