"""Connections to the Redis of a test, with one-line scripts."""

import asyncio
from collections import Counter
from collections.abc import Callable

from gateway.core.units import Secret
from gateway.redis.command import Command, Head, RedisFailure, Script
from gateway.redis.pipelined import PipelinedRedis

ECHO = Script(b"return ARGV[1]")
APPEND = Script(b"redis.call('RPUSH', KEYS[1], ARGV[1]) return ARGV[1]")
TOUCH = Script(b"redis.call('SET', KEYS[1], '1', 'PX', 1000) return '1'")


def link_to(url: str, counted: Counter[str], *, timeout: float = 0.5, **options: float | int) -> PipelinedRedis:
    """A connection that counts its errors in `counted`. Its timeout is long for tests of other things."""

    def probe() -> Command:
        return Command(TOUCH, Head.of([b"probe"]), (), lambda _: None)

    def count(kind: str) -> None:
        counted[kind] += 1

    return PipelinedRedis(Secret(url), timeout, [ECHO, TOUCH], probe, count, **options)


async def ask(link: PipelinedRedis, text: bytes, script: Script = ECHO, key: bytes = b"list") -> bytes:
    """The reply to one script; raises its RedisFailure."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    link.request(Command(script, Head.of([key]), [text], _into(future), future))
    return await future


def post(link: PipelinedRedis, text: bytes, *, first: bool = False) -> asyncio.Future[bytes]:
    """Enqueue an append to a list; the future gets its reply."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    link.enqueue(Command(APPEND, Head.of([b"list"]), [text], _into(future)), first=first)
    return future


def _into(future: asyncio.Future[bytes]) -> Callable[[bytes | RedisFailure], None]:
    def then(outcome: bytes | RedisFailure) -> None:
        if future.done():
            return
        if isinstance(outcome, RedisFailure):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return then
