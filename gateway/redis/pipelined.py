"""A pipelining connection to Redis: what is requested at about the same time travels together.

One task owns the connection. It sends everything requested since its last round as one pipeline and hands out
the replies in order. A caller that leaves abandons only its own reply, and no reply reaches another caller. A
connection that failed in any way is discarded; tenacity makes new ones until Redis answers.

redis-py provides the connection, its parser and the commands that are sent once. Its client is not used: that
takes a connection and a round trip for each command, and the key limits of every call need one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from gateway.core.units import Secret
from gateway.redis.command import Command, RedisFailure, Script
from gateway.redis.errors import CONNECTION, NOSCRIPT, TIMEOUT, code_of, halts, kind_of
from gateway.redis.explain import explained
from gateway.redis.servers import MAX_HOPS, RedisServers
from gateway.telemetry.logging import logger

# Redis handles a round in 2 ms, so the rounds of several processes fit into one timeout.
_MAX_REQUESTS: Final = 64
_MAX_QUEUED: Final = 64
_MAX_BYTES: Final = 512 * 1024
"""Bytes of the requests of one round and their replies; a larger request has a round of its own."""
_BYTES_PER_S: Final = 10e6
"""The slowest transfer that is no trouble yet, this process's own share of the work included."""
# If a timer fires this late, this process was busy, not Redis: replies that have arrived are read first.
_LATE_S: Final = 0.005
_CONNECT_S: Final = 1.0
_FLUSH_S: Final = 1.0
_QUIET_S: Final = 10.0
"""Seconds without a second log line about the same trouble, when Redis goes up and down with it."""
_ERRORS: Final = (RedisError, OSError, ValueError)
"""What ends a connection. The parser raises ValueError at a server that does not speak RESP."""


class PipelinedRedis:
    """Redis, as long as it answers each round within `timeout` seconds; otherwise requests fail at once.

    Large commands and replies have more time, by their size.
    """

    def __init__(
        self,
        url: Secret,
        timeout: float,
        scripts: Sequence[Script],
        probe: Callable[[], Command],
        count: Callable[[str], None],
        *,
        heartbeat_s: float = 1.0,
        retry_s: float = 0.25,
    ) -> None:
        """`probe` makes a command that writes; it is sent as a heartbeat and to find out if Redis is back.

        `count(kind)` counts each failure. `retry_s` is the pause between attempts to connect.
        """
        self._servers = RedisServers(url, protocol=2, driver_info=None, socket_timeout=None)
        self._timeout = timeout
        self._scripts = scripts
        self._probe = probe
        self._count = count
        self._heartbeat_s = heartbeat_s
        self._retry_s = retry_s
        self._connection: AbstractConnection | None = None
        self._requests: deque[Command] = deque()
        self._first: deque[Command] = deque()
        self._queued: deque[Command] = deque()
        self._flight: list[Command] = []
        self._flight_first = 0  # how many of them were enqueued as first
        self._work = asyncio.Event()
        self._tried = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting = True
        self._logged: set[str] = set()
        self._logged_down = False
        self._last_logged = ("", 0.0)
        self.up = False
        self.on_up: list[Callable[[], None]] = []
        """Called when Redis is back, before any request is sent."""

    async def start(self) -> None:
        """Starts the task and waits until Redis is up or the first attempt failed: a second at most."""
        self._task = asyncio.create_task(self._run())
        await self._tried.wait()

    async def stop(self) -> None:
        """Sends what is enqueued, as far as Redis accepts it within a second, and closes the connection."""
        self._stopping.set()
        self._work.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_FLUSH_S)
            self._task.cancel()
            await asyncio.wait([self._task])

    def request(self, command: Command) -> None:
        """Sends the command with the next round. Raises RedisFailure at once while Redis is away."""
        if not self.up:
            raise RedisFailure("down", sent=False)
        self._requests.append(command)
        self._work.set()

    def enqueue(self, command: Command, *, first: bool = False) -> None:
        """Sends the command when Redis accepts it, oldest first; maybe twice, so it must be idempotent.

        `first` puts it before everything else that waits, requests included. Nothing is dropped while Redis is
        away: the caller bounds what it enqueues.
        """
        (self._first if first else self._queued).append(command)
        if self.up:
            self._work.set()

    @property
    def backlog(self) -> int:
        """Enqueued commands that wait for Redis."""
        return len(self._first) + len(self._queued)

    async def _run(self) -> None:
        lost: Exception | None = None
        try:
            while not self._stopping.is_set():
                # A connection that was closed may be opened again at once; a slow Redis gets a pause.
                if lost is not None and _kind(lost) != CONNECTION and not isinstance(lost, MovedError):
                    await self._pause(self._retry_s)
                await self._connect()
                if self.up:
                    lost = await self._serve()
        finally:
            self._tried.set()
            self._end()
            await self._disconnect()

    async def _connect(self) -> None:
        """Tries until Redis has executed a probe, or until `stop`."""
        await AsyncRetrying(
            retry=retry_if_exception_type(_ERRORS),
            wait=wait_fixed(self._retry_s),
            after=self._connecting_failed,
            sleep=self._pause,
        )(self._try_to_connect)

    async def _try_to_connect(self) -> None:
        if self._stopping.is_set():
            return
        for hop in range(MAX_HOPS):
            try:
                await self._try_to_reach()
            except MovedError as error:
                await self._disconnect()
                self._servers.follow(error)
                if hop == MAX_HOPS - 1:
                    raise
            except _ERRORS:
                await self._disconnect()
                raise
            else:
                self._rise()
                return

    async def _try_to_reach(self) -> None:
        self._connecting = True
        async with _Within(_CONNECT_S):
            await self._servers.locate()
            connection = await self._connected()
        self._connecting = False
        async with _Within(self._timeout):
            await self._exchange(connection, [self._probe()])
        async with _Within(_CONNECT_S):
            await self._servers.learn(connection)

    def _connecting_failed(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Exception):
            text = _text(error, self._timeout)
            if self._connecting:
                waited = f"{_CONNECT_S:g} s"
                text = explained(error, self._servers.where, tls=self._servers.tls, waited=waited)
            self._record_down(error, text)
            if _kind(error) in (CONNECTION, TIMEOUT):
                self._servers.give_up()
        self._tried.set()

    async def _pause(self, seconds: float) -> None:
        """Sleeps, but not longer than until `stop`."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _serve(self) -> Exception | None:
        """One round after another until a round fails, which returns the error, or until `stop`."""
        while not self._stopping.is_set() or self._requests or self.backlog:
            await self._work.wait()
            self._work.clear()
            batch = self._flight = self._take()
            try:
                async with _Within(self._timeout + sum([command.size for command in batch]) / _BYTES_PER_S):
                    await self._exchange(await self._connected(), batch)
            except _ERRORS as error:
                await self._fall(error, batch)
                return error
            self._flight = []
            if self._requests or self.backlog:
                self._work.set()
        return None

    def _take(self) -> list[Command]:
        """The commands of the next round. A request whose caller has left is dropped."""
        batch = _pop(self._first, _MAX_QUEUED)
        self._flight_first = len(batch)
        batch += _pop(self._queued, _MAX_QUEUED)
        if self._first:
            return batch
        requests, count, size = self._requests, 0, 0
        while requests and count < _MAX_REQUESTS and (not size or size + requests[0].size <= _MAX_BYTES):
            command = requests.popleft()
            if command.waiter is None or not command.waiter.cancelled():
                batch.append(command)
                count, size = count + 1, size + command.size
        return batch

    async def _connected(self) -> AbstractConnection:
        # Readable before anything was sent: closed by the server, or holding replies that nobody waits for.
        if self._connection is not None and await self._connection.can_read():
            await self._disconnect()
        if self._connection is None:
            connection = self._connection = self._servers.connection()
            loads = connection.pack_commands([("SCRIPT", "LOAD", script.text) for script in self._scripts])
            await connection.send_packed_command(loads, check_health=False)
            for _ in self._scripts:
                await connection.read_response(disable_decoding=True)
        return self._connection

    async def _exchange(self, connection: AbstractConnection, batch: list[Command]) -> None:
        """One pipeline, and a second one for the scripts that Redis has lost."""
        by_text = False
        while batch:
            await connection.send_packed_command([command.wire(by_text) for command in batch], check_health=False)
            unknown: list[Command] = []
            halted: ResponseError | None = None
            for command in batch:
                try:
                    reply = await connection.read_response(disable_decoding=True)
                except NoScriptError:
                    unknown.append(command)
                except ResponseError as error:
                    if halts(error):
                        halted = error
                    else:
                        self._fail(command, error)
                else:
                    command.finish(reply)
            if halted is not None:
                raise halted
            if unknown:
                self._count(NOSCRIPT)
            batch, by_text = unknown, True

    def _fail(self, command: Command, error: ResponseError) -> None:
        kind, code = kind_of(error), code_of(error)
        self._count(kind)
        if code not in self._logged:
            self._logged.add(code)
            logger.error("redis refuses a script", extra={"code": code, "error": str(error)})
        command.finish(RedisFailure(kind, sent=False))

    def _rise(self) -> None:
        self.up = True
        self._schedule_heartbeat()
        if self._logged_down or not self._last_logged[0]:
            logger.info("redis is up", extra={"at": self._servers.where})
        self._logged_down = False
        for hook in self.on_up:
            hook()
        if self._requests or self.backlog:
            self._work.set()
        self._tried.set()

    async def _fall(self, error: Exception, batch: list[Command]) -> None:
        """Fails the requests and puts enqueued commands back."""
        self.up, self._flight = False, []
        self._cancel_heartbeat()
        if isinstance(error, MovedError):
            self._servers.follow(error)
        kind = self._record_down(error, _text(error, self._timeout))
        for number, command in reversed(list(enumerate(batch))):
            if not command.done and command.waiter is None:
                (self._first if number < self._flight_first else self._queued).appendleft(command)
        for command in batch:
            if not command.done and command.waiter is not None:
                command.finish(RedisFailure(kind, sent=True))
        while self._requests:
            self._requests.popleft().finish(RedisFailure(kind, sent=False))
        await self._disconnect()

    def _record_down(self, error: Exception, text: str) -> str:
        """Counts the error, logs the first of a row, and returns its kind."""
        kind = _kind(error)
        self._count(kind)
        now = asyncio.get_running_loop().time()
        last, at = self._last_logged
        if not self._logged_down and (kind != last or kind == CONNECTION or now - at >= _QUIET_S):
            self._logged_down, self._last_logged = True, (kind, now)
            logger.error("redis is down", extra={"kind": kind, "error": text})
        return kind

    def _end(self) -> None:
        self.up = False
        self._cancel_heartbeat()
        for command in (*self._flight, *self._requests, *self._first, *self._queued):
            if not command.done:
                command.finish(RedisFailure("stopped", sent=command in self._flight))

    def _heartbeat(self) -> None:
        self._schedule_heartbeat()
        self.enqueue(self._probe(), first=True)

    def _schedule_heartbeat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat_s, self._heartbeat)

    def _cancel_heartbeat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _pop(queue: deque[Command], most: int) -> list[Command]:
    return [queue.popleft() for _ in range(min(len(queue), most))]


def _text(error: Exception, timeout: float) -> str:
    return f"no answer within {timeout * 1000:.0f} ms" if isinstance(error, TimeoutError) else str(error)


def _kind(error: Exception) -> str:
    return TIMEOUT if isinstance(error, TimeoutError) else kind_of(error)


class _Within:
    """`asyncio.timeout` that does not blame Redis if the event loop itself was late."""

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
        self._timeout.reschedule(now + _LATE_S if now - due > _LATE_S else now)
