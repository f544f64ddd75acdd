"""`python -m benchmarks.redis_pause`: a Redis that is stopped (SIGSTOP) for a minute under full load.

16 connections call in a closed loop, with a key whose limits are in Redis and never reached. For each phase:
calls a second, latencies, peak memory, `sluice_redis_up`, and the time from SIGCONT until it is 1.
"""

import asyncio
import signal
from collections import Counter
from time import monotonic

from benchmarks.arguments import parser_of
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import Client, Limited, Redis
from benchmarks.measure import memory_bytes, tree

CONNECTIONS = 16


class Load:
    """Latencies and statuses of the current phase."""

    def __init__(self) -> None:
        self.durations: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, client: Client) -> None:
        """Call in an endless loop."""
        while True:
            status, _, seconds = await client.ask()
            self.durations.append(seconds)
            self.statuses[status] += 1

    def begin(self) -> None:
        """Begin a new phase."""
        self.durations, self.statuses = [], Counter()


async def phase(name: str, seconds: float, load: Load, gateway: Limited) -> float:
    """Wait for the phase, print its row, return its p99 in seconds."""
    load.begin()
    end, most, up = monotonic() + seconds, 0, set()
    await asyncio.sleep(min(1.0, seconds / 2))
    while monotonic() < end:
        most = max(most, memory_bytes(tree(gateway.pid)))
        up.add(await gateway.gauge("sluice_redis_up"))
        await asyncio.sleep(0.5)
    durations = sorted(load.durations)
    p50, p99, longest = durations[len(durations) // 2], durations[len(durations) * 99 // 100], durations[-1]
    print(
        f"| {name} | {len(durations) / seconds:,.0f} | {p50 * 1000:.2f} | {p99 * 1000:.2f} "
        f"| {longest * 1000:.1f} | {most / 1e6:.1f} | {sorted(up)} | {dict(load.statuses)} |",
        flush=True,
    )
    return p99


async def run(load: Load, redis: Redis, gateway: Limited, seconds: float) -> None:
    """The phases before, during and after the pause."""
    callers = [asyncio.create_task(load.run(Client(gateway.port, "rate", "x"))) for _ in range(CONNECTIONS)]
    print("| Redis | calls/s | p50 ms | p99 ms | longest ms | memory MB | redis_up | statuses |")
    print("| --- | --: | --: | --: | --: | --: | --- | --- |")
    before = await phase("well", 10, load, gateway)
    redis.signal(signal.SIGSTOP)
    while_away = await phase("stopped", seconds, load, gateway)
    redis.signal(signal.SIGCONT)
    begin = monotonic()
    while not await gateway.gauge("sluice_redis_up"):  # noqa: ASYNC110 - it is another process's
        await asyncio.sleep(0.02)
    back = monotonic() - begin
    await phase("well again", 10, load, gateway)
    print(f"\nadded p99 {(while_away - before) * 1000:+.2f} ms; back {back:.2f} s after SIGCONT")
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)


async def main() -> None:
    """Start everything, run, end everything."""
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of the pause; default 60")
    parser.add_argument("--on-failure", default="local", choices=["local", "open", "closed"])
    given = parser.parse_args()
    server, port = await start_timed()
    redis = Redis(0)
    limits: dict[str, float] = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}
    gateway = Limited(port, {"rate": limits}, redis)
    gateway.config["redis"]["on_failure"] = given.on_failure
    try:
        await asyncio.to_thread(redis.start, 0)
        await asyncio.to_thread(gateway.start, 1)
        await run(Load(), redis, gateway, given.seconds)
    finally:
        for one in (gateway, redis):
            one.stop()
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
