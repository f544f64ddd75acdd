"""The one connection of a process to Redis: what is asked together travels together.

A single task owns the connection. It gathers everything that was asked since its last round into one pipeline
and hands the replies out in order, so a caller that leaves abandons its own reply only, and no reply reaches
another caller. A connection that failed in any way is thrown away.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

from gateway.core.units import Secret
from gateway.redis import errors as redis_trouble
from gateway.redis.command import Command, RedisFailure, Script
from gateway.telemetry.logging import logger

# A round is done by Redis in 2 ms, so that several processes' rounds fit into one time-out.
_ASKS: Final = 64
_POSTS: Final = 64
# A timer that fires this late says that this process was busy, not Redis; what has arrived is read first.
_LATE: Final = 0.005
_CONNECT: Final = 1.0
_FLUSH: Final = 1.0


class PipelinedRedis:
    """Redis as long as it answers within `timeout` seconds a round; while it does not, calls fail at once."""

    def __init__(
        self,
        url: Secret,
        timeout: float,
        scripts: Sequence[Script],
        probe: Callable[[], Command],
        count: Callable[[str], None],
        *,
        beat: float = 1.0,
        rest: float = 0.25,
        room: int = 10_000,
    ) -> None:
        """`probe` makes a call that writes, sent each `beat` seconds and to find out whether Redis is back.

        `count` is told the kind of each failure. `rest` is the pause between two attempts, in seconds; `room`
        is how many posted calls are kept for a Redis that is away.
        """
        pool = ConnectionPool.from_url(url.reveal(), protocol=2, driver_info=None, socket_timeout=None)
        self._dial: Callable[[], AbstractConnection] = pool.make_connection  # untyped there
        self._timeout = timeout
        self._scripts = scripts
        self._probe = probe
        self._count = count
        self._beat = beat
        self._rest = rest
        self._room = room
        self._connection: AbstractConnection | None = None
        self._asks: deque[Command] = deque()
        self._first: deque[Command] = deque()
        self._posts: deque[Command] = deque()
        self._flight: list[Command] = []
        self._work = asyncio.Event()
        self._tried = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._told: set[str] = set()
        self._told_down = False
        self.up = False
        self.on_up: list[Callable[[], None]] = []
        """Called when Redis is back, before anything is asked of it."""

    async def start(self) -> None:
        """Starts the task and waits until Redis is up, or its first attempt has failed: a second at most."""
        self._task = asyncio.create_task(self._run())
        self._work.set()
        await self._tried.wait()

    async def stop(self) -> None:
        """Sends what was posted, as far as Redis takes it within a second, and closes the connection."""
        self._stopping = True
        self._work.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_FLUSH)
            self._task.cancel()
            await asyncio.wait([self._task])

    def request(self, command: Command) -> None:
        """Sends it with the next round. Raises Trouble at once while Redis is away."""
        if not self.up:
            raise RedisFailure("down", sent=False)
        self._asks.append(command)
        self._work.set()

    def enqueue(self, command: Command, *, first: bool = False) -> None:
        """Sends it when Redis takes it, once or more (so it must be idempotent), oldest first.

        `first` puts it before everything else that waits, asked calls included.
        """
        queue = self._first if first else self._posts
        if len(queue) >= self._room:
            self._no_room(command)
            return
        queue.append(command)
        if self.up:
            self._work.set()

    @property
    def backlog(self) -> int:
        """Posted calls that wait for Redis."""
        return len(self._first) + len(self._posts)

    async def _run(self) -> None:
        try:
            while not self._stopping or (self.up and (self._asks or self.backlog)):
                await self._work.wait()
                self._work.clear()
                await self._round()
                self._tried.set()
        finally:
            self._tried.set()
            self._end()
            await self._drop()

    async def _round(self) -> None:
        batch = self._flight = self._take() if self.up else []
        try:
            if not self.up:
                async with _Within(_CONNECT):  # nobody waits for it
                    await self._connected()
                batch = [self._probe()]
            async with _Within(self._timeout):
                await self._exchange(await self._connected(), batch)
        except TimeoutError:
            await self._fall(redis_trouble.TIMEOUT, f"no answer within {self._timeout * 1000:.0f} ms", batch)
        # A server that speaks no RESP makes the parser raise ValueError.
        except (RedisError, OSError, ValueError) as error:
            await self._fall(redis_trouble.kind_of(error), str(error), batch)
        else:
            self._rise()
            if self._asks or self.backlog:
                self._work.set()

    def _take(self) -> list[Command]:
        """What travels together. A call whose caller has left is never sent."""
        if self._first:
            return _some(self._first, _ASKS)
        batch = _some(self._posts, _POSTS)
        batch += [one for one in _some(self._asks, _ASKS) if one.waiter is None or not one.waiter.cancelled()]
        return batch

    async def _connected(self) -> AbstractConnection:
        # Readable before anything was asked: closed by the other side, or replies nobody waits for.
        if self._connection is not None and await self._connection.can_read():
            await self._drop()
        if self._connection is None:
            self._connection = self._dial()
            await self._connection.send_packed_command(
                [one.load for one in self._scripts], check_health=False
            )
            for _ in self._scripts:
                await self._connection.read_response(disable_decoding=True)
        return self._connection

    async def _exchange(self, connection: AbstractConnection, batch: list[Command]) -> None:
        """One pipeline; a second one for the scripts that Redis has lost."""
        by_text = False
        while batch:
            await connection.send_packed_command([one.wire(by_text) for one in batch], check_health=False)
            unknown: list[Command] = []
            halted: ResponseError | None = None
            for one in batch:
                try:
                    reply = await connection.read_response(disable_decoding=True)
                except NoScriptError:
                    unknown.append(one)
                except ResponseError as error:
                    if redis_trouble.halts(error):
                        halted = error
                    else:
                        self._refused(one, error)
                else:
                    one.finish(reply)
            if halted is not None:
                raise halted
            if unknown:
                self._count(redis_trouble.NOSCRIPT)
            batch, by_text = unknown, True

    def _refused(self, command: Command, error: ResponseError) -> None:
        kind, code = redis_trouble.kind_of(error), redis_trouble.code_of(error)
        self._count(kind)
        if code not in self._told:
            self._told.add(code)
            logger.error("redis refuses a script", extra={"code": code, "error": str(error)})
        command.finish(RedisFailure(kind, sent=False))

    def _rise(self) -> None:
        self._flight = []
        if self.up:
            return
        self._schedule(self._beat, self._pulse)
        self.up = True
        self._told_down = False
        logger.info("redis is up")
        for hook in self.on_up:
            hook()

    async def _fall(self, kind: str, error: str, batch: list[Command]) -> None:
        was_up, self.up, self._flight = self.up, False, []
        self._count(kind)
        if not self._told_down:
            self._told_down = True
            logger.error("redis is down", extra={"kind": kind, "error": error})
        for one in reversed(batch):
            if not one.done and one.waiter is None:
                self._posts.appendleft(one)
        while len(self._posts) > self._room:
            self._no_room(self._posts.pop())
        for one in batch:
            if not one.done and one.waiter is not None:
                one.finish(RedisFailure(kind, sent=True))
        while self._asks:
            self._asks.popleft().finish(RedisFailure(kind, sent=False))
        await self._drop()
        # A connection that was closed may be open again at once; one that is slow is not asked again so soon.
        at_once = was_up and kind == redis_trouble.CONNECTION
        self._schedule(0.0 if at_once else self._rest, self._work.set)

    def _no_room(self, command: Command) -> None:
        self._count(redis_trouble.BACKLOG)
        command.finish(RedisFailure(redis_trouble.BACKLOG, sent=False))

    def _end(self) -> None:
        self.up = False
        if self._timer is not None:
            self._timer.cancel()
        for one in (*self._flight, *self._asks, *self._first, *self._posts):
            if not one.done:
                one.finish(RedisFailure("stopped", sent=one in self._flight))

    def _pulse(self) -> None:
        self._schedule(self._beat, self._pulse)
        self.enqueue(self._probe(), first=True)

    def _schedule(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _some(queue: deque[Command], most: int) -> list[Command]:
    return [queue.popleft() for _ in range(min(len(queue), most))]


class _Within:
    """asyncio.timeout that does not blame Redis for a loop that was late itself."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        await self._timeout.__aenter__()
        due = loop.time() + self._seconds
        self._timer = loop.call_at(due, self._overdue, loop, due)

    async def __aexit__(self, *raised: Any) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(*raised)

    def _overdue(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._timeout.reschedule(now + _LATE if now - due > _LATE else now)
