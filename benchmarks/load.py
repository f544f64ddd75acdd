"""A lean load generator: keep-alive connections, each with one call under way, every answer checked."""

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

import httptools
import uvloop

from benchmarks import probe
from benchmarks.contender import Contender
from benchmarks.measure import Reading
from benchmarks.pacer import Pacer
from benchmarks.pulse import pulse
from benchmarks.scenarios import Scenario

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Tally:
    """What arrived within the measured time."""

    answers: int = 0
    body_bytes: int = 0
    reads: int = 0
    latencies: list[float] = field(default_factory=list)  # seconds; of a stream: to its first event


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measured window between two readings, and how all the calls of the run ended."""

    tally: Tally
    before: Reading
    after: Reading
    seconds: float
    right: int
    errors: Counter[str]
    lags: list[float]  # of the pulse, seconds


class Connection(asyncio.Protocol):
    """One client. The httptools callbacks are the `on_` methods."""

    __slots__ = ("asked", "first", "fresh", "load", "parser", "size", "tail", "transport", "waiting")

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.waiting = False
        self.fresh = True  # no answer has begun yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is not a subclass of it
        self.parser = httptools.HttpResponseParser(self)
        self.load.open.add(self)
        self.ask()

    def ask(self, since: float = 0.0) -> None:
        """Send the call; its time counts from `since`, when it was due, or from now."""
        self.size, self.tail = 0, b""
        self.waiting = True
        self.load.under_way += 1
        self.asked = since or perf_counter()
        before, after = self.load.request
        self.transport.writelines((before, probe.number(), after))

    def data_received(self, data: bytes) -> None:
        self.load.tally.reads += 1
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.load.errors[type(error).__name__] += 1
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        if not self.size:
            self.first = perf_counter()
            if self.fresh:
                self.fresh = False
                self.load.begun += 1
        self.size += len(body)
        self.load.tally.body_bytes += len(body)
        self.tail = body if len(body) >= len(DONE) else self.tail + body

    def on_message_complete(self) -> None:
        self.waiting = False
        load = self.load
        if fault := load.fault(self.parser.get_status_code(), self.size, self.tail):
            load.errors[fault] += 1
        else:
            load.right += 1
            load.tally.answers += 1
            load.tally.latencies.append((self.first if load.streams else perf_counter()) - self.asked)
        load.under_way -= 1
        if not load.again or not self.parser.should_keep_alive():
            self.transport.close()
        elif load.owed:
            self.ask(load.owed.popleft())
        elif load.parked is not None:
            load.parked.append(self)
        else:
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting:
            self.load.under_way -= 1
            self.load.errors["closed before the answer's end"] += 1
        self.load.lost(self)


class Load:
    """One scenario against one contender: a closed loop, or an open one of `rate` calls a second.

    `size` is that of a correct answer.
    """

    def __init__(self, scenario: Scenario, contender: Contender, size: int, rate: float = 0.0) -> None:
        self.scenario, self.port, self.size, self.rate = scenario, contender.port, size, rate
        self.request = probe.request(scenario, contender)
        self.streams = scenario.chunks > 0
        self.again = not scenario.once
        self.tally = Tally()
        self.right = self.under_way = self.begun = 0
        self.errors: Counter[str] = Counter()
        self.lags: list[float] = []
        self.open: set[Connection] = set()
        # Those that have had an answer and wait: for the others to connect, or (open loop) for a call.
        # Paced streams need not wait: they are spread over time, and none of them starves another.
        self.parked: deque[Connection] | None = None if scenario.pace else deque()
        self.owed: deque[float] = deque()  # when calls were due that found no free connection
        self.tasks: set[asyncio.Task[None]] = set()

    def fault(self, status: int, size: int, tail: bytes) -> str:
        """The fault of an answer; empty for a correct one."""
        if status != 200:
            return f"status {status}"
        if size != self.size:
            return "wrong length"
        return "no [DONE]" if self.streams and not tail.endswith(DONE) else ""

    def connect(self) -> None:
        """Open one more connection, which sends a call at once."""
        task = asyncio.get_running_loop().create_task(self._connect())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        except OSError as error:
            self.errors[type(error).__name__] += 1

    def lost(self, connection: Connection) -> None:
        """A connection has ended; while the load runs, another takes its place."""
        self.open.discard(connection)
        if self.parked is not None and connection in self.parked:
            self.parked.remove(connection)
        if self.again:
            self.connect()

    async def _all_begun(self) -> None:
        await self._until(lambda: self.begun >= self.scenario.connections)

    def _close_the_loop(self) -> None:
        # Only now: a server takes about one new connection a turn of its loop, and under full load the last
        # ones would stand in its backlog for seconds. So all connect before the first asks again.
        parked, self.parked = self.parked or (), None
        self.begun -= len(parked)
        for connection in parked:
            connection.fresh = True
            connection.ask()

    def _due(self) -> None:
        if self.parked:
            self.parked.popleft().ask()
        else:
            self.owed.append(perf_counter())

    async def _until(self, done: Callable[[], bool]) -> None:
        # Polled: an event would cost time on the measured path.
        give_up = perf_counter() + self.scenario.longest
        while not done() and perf_counter() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def _open_all(self) -> None:
        step = self.scenario.ramp / self.scenario.connections
        begin = perf_counter()
        for i in range(self.scenario.connections):
            await asyncio.sleep(max(0.0, begin + i * step - perf_counter()))
            self.connect()
        await self._all_begun()
        if not self.rate:
            self._close_the_loop()
            await self._all_begun()

    async def _pulse(self, port: int, path: str) -> None:
        try:
            await pulse(port, path, self.scenario.pulse, self.lags)
        except (OSError, EOFError, ValueError) as error:
            self.errors[f"pulse: {error}"] += 1

    async def run(self, read: Callable[[], Reading], beside: tuple[int, str]) -> Outcome:
        """Start the connections one by one, let them settle, measure, let every open call end.

        `beside` is the port and path of the pulse, where the scenario has one.
        """
        beat = asyncio.create_task(self._pulse(*beside)) if self.scenario.pulse else None
        await self._open_all()
        with Pacer(self.rate, self._due) if self.rate else nullcontext():
            await asyncio.sleep(0.5)
            before, start = read(), perf_counter()
            self.tally = Tally()
            await asyncio.sleep(self.scenario.window)
            tally, self.tally = self.tally, Tally()
            seconds, after = perf_counter() - start, read()
        self.again = False
        await self._until(lambda: not self.under_way and not self.tasks)
        if unfinished := self.under_way + len(self.tasks):
            self.errors["never ended"] += unfinished
        for connection in list(self.open):
            connection.waiting = False
            connection.transport.abort()
        await self._until(lambda: not self.open)
        if beat is not None:
            beat.cancel()
            await asyncio.wait([beat])
        return Outcome(tally, before, after, seconds, self.right, self.errors, self.lags)


def run(load: Load, read: Callable[[], Reading], beside: tuple[int, str]) -> Outcome:
    """Run a load on a new event loop, without the collector's pauses in its latencies."""
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(load.run(read, beside))
    finally:
        gc.enable()
