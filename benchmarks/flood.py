"""`python -m benchmarks.flood`: the effect on a key of another key that floods the gateway.

The upstream serves 8 calls at a time, each in 20 to 60 ms: 200 a second. First `light` calls at random times,
using 40 % of that; then `flood` joins with ten times the capacity; then `flood` calls alone.
"""

import asyncio
import itertools
import random
import statistics
from collections import Counter
from collections.abc import Awaitable
from time import perf_counter

from benchmarks.arguments import arguments
from benchmarks.client import Pool, drive
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import Limited, chat
from gateway.cli.bench.client import TimedCall

SLOTS, SECONDS_LOW, SECONDS_HIGH = 8, 0.02, 0.06
CAPACITY = SLOTS / ((SECONDS_LOW + SECONDS_HIGH) / 2)
LIGHT, FLOOD = 0.4 * CAPACITY, 10 * CAPACITY
WAITING = 256
PHASE_S = 20.0


class Key:
    """Calls of one key at random times, and their results."""

    def __init__(self, port: int, name: str, rate: float) -> None:
        self._pool, self._rate = Pool(port), rate
        self._request = chat(name, "x", max_tokens=60)
        self.durations: list[float] = []
        self.queued: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, seconds: float) -> None:
        """Call for that long, and wait until all calls have ended."""
        await drive(self._call, itertools.repeat(self._request), rate=self._rate, seconds=seconds)
        self._pool.close()

    async def _call(self, request: bytes, due: float) -> TimedCall:
        sent = perf_counter()
        response = await self._pool.request(request)
        ended = perf_counter()
        self.statuses[response.status] += 1
        if response.status == 200:
            self.durations.append(ended - sent)
            self.queued.append(float(response.headers["x-sluice-queue-ms"]))
        return TimedCall(due, ended)


async def main() -> None:
    """Start everything, run, end everything."""
    source, served = random.Random(2), Counter[str]()

    def count(_: bytes) -> None:
        served["all"] += 1

    server, port = await start_timed(lambda _: source.uniform(SECONDS_LOW, SECONDS_HIGH), ended=count)
    gateway = Limited(port, {"light": {}, "flood": {}}, slots=SLOTS, waiting=WAITING)
    print("| phase | served/s | key | answered | p50 ms | in the queue, p50 ms | refused |")
    print("| --- | --: | --- | --: | --: | --: | --: |")
    try:
        await asyncio.to_thread(gateway.start, 1)
        for phase in (("light",), ("light", "flood"), ("flood",)):
            rates = {"light": LIGHT, "flood": FLOOD}
            keys = {name: Key(gateway.port, name, rates[name]) for name in phase}
            served.clear()
            begin = perf_counter()
            running: list[Awaitable[None]] = [key.run(PHASE_S) for key in keys.values()]
            every = asyncio.gather(*running)
            await asyncio.sleep(PHASE_S)
            rate = served["all"] / (perf_counter() - begin)
            await every
            for name, key in keys.items():
                refused = sum(key.statuses.values()) - len(key.durations)
                print(
                    f"| {' and '.join(phase)} | {rate:.1f} | {name} | {len(key.durations)} "
                    f"| {statistics.median(key.durations) * 1000:.1f} | {statistics.median(key.queued):.1f} "
                    f"| {refused} |",
                    flush=True,
                )
    finally:
        gateway.stop()
        server.close()


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(main())
