"""`python -m benchmarks.redis_pause`: a Redis that is stopped (SIGSTOP) for a minute under full load.

16 connections ask as fast as they are answered, with a key whose limits are in Redis and out of the way. For
each phase: calls a second, latencies, the most memory, `sluice_redis_up`, and how soon after SIGCONT it is 1.
"""

import asyncio
import signal
from collections import Counter
from time import monotonic

from benchmarks.arguments import parser_of
from benchmarks.limited import Client, Counting, Limited, Redis
from benchmarks.measure import memory_bytes, tree

CONNECTIONS = 16


class Load:
    """Latencies and statuses of the phase that is under way."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, client: Client) -> None:
        """Ask for ever."""
        while True:
            status, _, seconds = await client.ask()
            self.taken.append(seconds)
            self.statuses[status] += 1

    def begin(self) -> None:
        """A new phase."""
        self.taken, self.statuses = [], Counter()


async def phase(name: str, seconds: float, load: Load, gateway: Limited) -> float:
    """Let it last, print its line, give its p99 in seconds."""
    load.begin()
    end, most, up = monotonic() + seconds, 0, set()
    await asyncio.sleep(min(1.0, seconds / 2))
    while monotonic() < end:
        most = max(most, memory_bytes(tree(gateway.pid)))
        up.add(await gateway.gauge("sluice_redis_up"))
        await asyncio.sleep(0.5)
    taken = sorted(load.taken)
    p50, p99, longest = taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1]
    print(
        f"| {name} | {len(taken) / seconds:,.0f} | {p50 * 1000:.2f} | {p99 * 1000:.2f} "
        f"| {longest * 1000:.1f} | {most / 1e6:.1f} | {sorted(up)} | {dict(load.statuses)} |",
        flush=True,
    )
    return p99


async def run(load: Load, redis: Redis, gateway: Limited, seconds: float) -> None:
    """Before, while and after."""
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
    server = await asyncio.get_running_loop().create_server(
        lambda: Counting(lambda _: 0.0, lambda _: None, lambda _: None), "127.0.0.1", 0
    )
    redis = Redis(0)
    limits: dict[str, float] = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}
    gateway = Limited(server.sockets[0].getsockname()[1], {"rate": limits}, redis)
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
