"""Mixed calls, each answer checked: whole answers, whole streams, streams whose client leaves.

For `benchmarks.soak`.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from time import perf_counter

from benchmarks import probe
from benchmarks.client import Connection, drive
from benchmarks.contender import Contender
from benchmarks.scenarios import Scenario
from gateway.cli.bench.client import TimedCall

CALLERS = 64
EVENTS = 16
PLAIN = Scenario("plain", CALLERS, 0.0)
STREAM = Scenario("stream", CALLERS, 0.0, chunks=EVENTS, pace=0.001)
TEN = ("plain",) * 5 + ("whole",) * 2 + ("left",) * 3


class MixedTraffic:
    """Clients whose connections stay open until they leave in the middle of an answer."""

    def __init__(self, gateway: Contender, rng: random.Random, seen: Counter[str]) -> None:
        """`seen` counts the calls by kind, with what was wrong."""
        self._port, self._rng, self._seen = gateway.port, rng, seen
        self._plain, self._stream = probe.request(PLAIN, gateway), probe.request(STREAM, gateway)
        self._idle: list[Connection] = []

    async def run(self, calls: int) -> None:
        """Make the calls, `CALLERS` at once, and wait until all have ended."""
        await drive(self._timed, mixture(calls, self._rng), concurrency=CALLERS)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._idle:
            connection.close()

    async def _timed(self, kind: str, due: float) -> TimedCall:
        connection = self._idle.pop() if self._idle else Connection(self._port)
        try:
            async with asyncio.timeout(30):
                fault = await self._call(connection, kind)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            connection.close()
        self._idle.append(connection)
        self._seen[f"{kind}: {fault}" if fault else kind] += 1
        return TimedCall(due, perf_counter(), error=fault)

    async def _call(self, connection: Connection, kind: str) -> str:
        before, after = self._plain if kind == "plain" else self._stream
        request = before + probe.number() + after
        if kind == "left" and (events := self._rng.randrange(EVENTS - 1)) == 0:
            await connection.send(request)
            self._leave(connection)
            return ""
        response = await connection.begin(request)
        if response.status != 200:
            return f"status {response.status}"
        if kind == "left":
            for _ in range(events):
                await connection.event()
            self._leave(connection)
            return ""
        body = await connection.rest(response)
        if kind == "plain":
            return "" if json.loads(body)["choices"] else "no choices"
        complete = b"data: [DONE]" in body and body.count(b"data: {") == EVENTS
        return "" if complete else "incomplete"

    def _leave(self, connection: Connection) -> None:
        connection.abort(reset=self._rng.random() < 0.5)


def mixture(count: int, rng: random.Random) -> Iterator[str]:
    """Kinds of `count` calls in random order but exact shares."""
    kinds = [TEN[n % len(TEN)] for n in range(count)]
    rng.shuffle(kinds)
    return iter(kinds)
