"""`python -m benchmarks.isolation`: what others notice of one upstream or model that fails.

A real gateway with its defaults. Callers ask two sound models 100 times a second, and a third one 20 times a
second. Well and ill phases alternate. In each ill one the third model is another one that

- `name`: is at an upstream whose host name hangs in its lookup. Every call opens a connection, and so looks a name up.
- `model`: fails with a 500, at the upstream of the others.

Prints the calls to the sound models that were answered, and their latency, in both kinds of phases. Takes three
minutes.
"""

import asyncio
import itertools
import json
import random
import sys
from collections import Counter
from contextlib import suppress
from time import perf_counter
from typing import Any

from benchmarks.arguments import arguments
from benchmarks.client import Pool, drive
from benchmarks.contender import Contender, free_port, serving
from benchmarks.hanging_names import DOMAIN, HANGS
from benchmarks.limited import chat
from gateway.cli.bench.client import TimedCall

PHASES, PHASE_S = 12, 6.0
SOUND_RATE, THIRD_RATE = 100.0, 20.0
SECONDS_LOW, SECONDS_HIGH = 0.01, 0.03
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


class Engine:
    """An upstream in this process that answers after 10 to 30 ms; models that are named `ill-...` fail with a 500."""

    def __init__(self, *, closes: bool) -> None:
        """`closes`: each connection ends with its answer."""
        self.port = 0
        self._closes = closes
        self._random = random.Random(3)

    async def start(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
                model = json.loads(await reader.readexactly(size))["model"]
                await asyncio.sleep(self._random.uniform(SECONDS_LOW, SECONDS_HIGH))
                fails = model.startswith("ill-")
                status = "500 Fails" if fails else "200 OK"
                body = json.dumps({"error": {"message": "no"}} if fails else {**ANSWER, "model": model})
                lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}"]
                if self._closes:
                    lines.append("connection: close")
                writer.write(("\r\n".join(lines) + f"\r\n\r\n{body}").encode())
                if self._closes:
                    break
        writer.close()


class Gateway(Contender):
    """A gateway with these models, each at the upstream of a host."""

    name = "sluice"

    def __init__(self, engine_port: int, hosts: dict[str, str]) -> None:
        """`hosts` is by model."""
        super().__init__(engine_port)
        upstreams = {host: {"base_url": f"http://{host}:{engine_port}/v1"} for host in set(hosts.values())}
        self.config: dict[str, Any] = {
            "server": {"port": self.port},
            "admin": {"port": free_port()},
            "upstreams": upstreams,
            "models": {model: {"candidates": [{"upstream": host}]} for model, host in hosts.items()},
            "usage": {"store": "off"},
            "log": {"level": "error"},
        }

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.hanging_names", *serving(self.folder, self.config)[3:]]


class Calls:
    """Calls for some models at random times, and their results."""

    def __init__(self, port: int, rate: float, *models: str) -> None:
        self._pool, self._rate = Pool(port), rate
        self._requests = [chat("any", "x", model=model) for model in models]
        self.statuses: Counter[int] = Counter()
        self.durations: list[float] = []

    async def run(self, seconds: float) -> None:
        """Call for that long, and wait until all calls have ended."""
        await drive(self._call, itertools.cycle(self._requests), rate=self._rate, seconds=seconds)
        self._pool.close()

    async def _call(self, request: bytes, due: float) -> TimedCall:
        sent = perf_counter()
        response = await self._pool.request(request)
        ended = perf_counter()
        self.statuses[response.status] += 1
        self.durations.append(ended - sent)
        return TimedCall(due, ended)


async def measured(scenario: str) -> None:
    """Run one scenario and print its rows."""
    engine = Engine(closes=scenario == "name")
    server = await engine.start()
    hosts = dict.fromkeys(("one", "two", "three"), f"sound{DOMAIN}")
    for phase in range(PHASES):
        hosts[f"ill-{phase}"] = f"{HANGS}-{phase}{DOMAIN}" if scenario == "name" else f"sound{DOMAIN}"
    gateway = Gateway(engine.port, hosts)
    sound: dict[str, list[Calls]] = {"well": [], "ill": []}
    third: dict[str, list[Calls]] = {"well": [], "ill": []}
    try:
        await asyncio.to_thread(gateway.start, 1)
        await Calls(gateway.port, SOUND_RATE, "one", "two", "three").run(2.0)
        for phase in range(PHASES):
            kind = "ill" if phase % 2 else "well"
            calls = Calls(gateway.port, SOUND_RATE, "one", "two")
            others = Calls(gateway.port, THIRD_RATE, f"ill-{phase}" if kind == "ill" else "three")
            await asyncio.gather(calls.run(PHASE_S), others.run(PHASE_S))
            sound[kind].append(calls)
            third[kind].append(others)
    finally:
        gateway.stop()
        server.close()
    p99 = {}
    for kind, runs in sound.items():
        times = sorted(duration for each in runs for duration in each.durations)
        p50, p99[kind] = (times[int(share * len(times))] * 1000 for share in (0.5, 0.99))
        answered = sum(each.statuses[200] for each in runs)
        statuses = sum((each.statuses for each in third[kind]), Counter[int]())
        print(
            f"| {scenario} | {kind} | {len(times)} | {answered} | {p50:.1f} | {p99[kind]:.1f} | {dict(statuses)} |",
            flush=True,
        )
    print(f"p99 of the sound models, ill over well: {p99['ill'] / p99['well']:.2f}", flush=True)


async def run(scenarios: list[str]) -> None:
    """Run them one after the other."""
    print("| trouble | phases | requests to sound models | answered | p50 ms | p99 ms | statuses of the third model |")
    print("| --- | --- | --: | --: | --: | --: | --- |")
    for scenario in scenarios:
        await measured(scenario)


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(run(["name", "model"]))
