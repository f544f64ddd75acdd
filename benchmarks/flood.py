"""`python -m benchmarks.flood`: what a key notices of another one that floods the gateway.

The upstream serves 8 calls at a time, each in 20 to 60 ms: 200 a second. `light` asks at random times, for
40 % of that; then `flood` asks beside it, at 20 times its own half; then `flood` alone.
"""

import asyncio
import random
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic

from benchmarks.arguments import arguments
from benchmarks.limited import Client, Counting, Limited

SLOTS, SECONDS_LOW, SECONDS_HIGH = 8, 0.02, 0.06
CAPACITY = SLOTS / ((SECONDS_LOW + SECONDS_HIGH) / 2)
LIGHT, FLOOD = 0.4 * CAPACITY, 10 * CAPACITY
WAITING = 256
PHASE_S = 20.0


class Key:
    """Calls of one key at random times, and what became of them."""

    def __init__(self, port: int, name: str, rate: float) -> None:
        self._port, self._name, self._rate = port, name, rate
        self._free: list[Client] = []
        self._open: set[asyncio.Task[None]] = set()
        self.taken: list[float] = []
        self.queued: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, seconds: float) -> None:
        """Ask for so long, and let all end."""
        source, at = random.Random(1), monotonic()
        end = at + seconds
        while at < end:
            at += source.expovariate(self._rate)
            await asyncio.sleep(max(0.0, at - monotonic()))
            task = asyncio.create_task(self._ask())
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        while self._open:
            await asyncio.wait(set(self._open))
        for client in self._free:
            client.close()

    async def _ask(self) -> None:
        client = self._free.pop() if self._free else Client(self._port, self._name, "x", max_tokens=60)
        status, headers, seconds = await client.ask()
        self._free.append(client)
        self.statuses[status] += 1
        if status == 200:
            self.taken.append(seconds)
            self.queued.append(float(headers["x-sluice-queue-ms"]))


async def main() -> None:
    """Start everything, run, end everything."""
    source, served = random.Random(2), Counter[str]()

    def count(_: bytes) -> None:
        served["all"] += 1

    make: Callable[[], Counting] = lambda: Counting(  # noqa: E731
        lambda _: source.uniform(SECONDS_LOW, SECONDS_HIGH), lambda _: None, count
    )
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gateway = Limited(port, {"light": {}, "flood": {}}, slots=SLOTS, waiting=WAITING)
    print("| phase | served/s | key | answered | p50 ms | in the queue, p50 ms | refused |")
    print("| --- | --: | --- | --: | --: | --: | --: |")
    try:
        await asyncio.to_thread(gateway.start, 1)
        for phase in (("light",), ("light", "flood"), ("flood",)):
            rates = {"light": LIGHT, "flood": FLOOD}
            keys = {name: Key(gateway.port, name, rates[name]) for name in phase}
            served.clear()
            begin = monotonic()
            running: list[Awaitable[None]] = [key.run(PHASE_S) for key in keys.values()]
            every = asyncio.gather(*running)
            await asyncio.sleep(PHASE_S)
            rate = served["all"] / (monotonic() - begin)
            await every
            for name, key in keys.items():
                refused = sum(key.statuses.values()) - len(key.taken)
                print(
                    f"| {' and '.join(phase)} | {rate:.1f} | {name} | {len(key.taken)} "
                    f"| {statistics.median(key.taken) * 1000:.1f} | {statistics.median(key.queued):.1f} "
                    f"| {refused} |",
                    flush=True,
                )
    finally:
        gateway.stop()
        server.close()


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(main())
