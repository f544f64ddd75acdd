"""`python -m benchmarks.limits`: what limits add to one call, and what a refused call costs.

First without sockets: all kinds of a key take turns in short stretches, so that what else the machine does
hits them alike; given is the median over the stretches of the difference to a key without limits in the same
turn. With redis-server installed the same with Redis, whose own time is in it: the path then waits for one
round trip. Then the CPU time of a real gateway process for a call, sockets and all, under a closed loop of 8
connections.
"""

import asyncio
import shutil
import statistics
from time import perf_counter

import uvloop

from benchmarks.arguments import arguments
from benchmarks.call_path import Path
from benchmarks.limited import Client, Counting, Limited, Redis
from benchmarks.measure import cpu_seconds, tree
from gateway.config import model as cfg
from gateway.core.units import Secret

TURNS = 60
CALLS = 100
"""Calls of one kind in one turn."""

_MANY = 10**9
_PRICE = cfg.PriceConfig(input=280_000_000, output=420_000_000)
_ALL = cfg.LimitsConfig(rpm=_MANY, tpm=_MANY, concurrency=_MANY, usd_per_day=10**15)
_ONE = cfg.LimitsConfig(rpm=1)
_ONE_CALL = 200
"""Tokens a minute of which a call needs most, so that the next one waits for most of a minute."""


def kinds(redis: cfg.RedisConfig | None) -> dict[str, Path]:
    """The keys that take turns; the first is the measure of the others."""
    found = {
        "no limits": Path(stream=False),
        "rpm, concurrency": Path(stream=False, limits=cfg.LimitsConfig(rpm=_MANY, concurrency=_MANY)),
        "tpm": Path(stream=False, limits=cfg.LimitsConfig(tpm=_MANY)),
        "all four": Path(stream=False, limits=_ALL, price=_PRICE),
        "refused by rpm": Path(stream=False, limits=_ONE, refused=True),
        "refused by rpm, with tpm": Path(
            stream=False, limits=cfg.LimitsConfig(rpm=1, tpm=_MANY), refused=True
        ),
        "refused by tpm": Path(stream=False, limits=cfg.LimitsConfig(tpm=_ONE_CALL), refused=True),
    }
    if redis is not None:
        found["rpm, in Redis"] = Path(stream=False, limits=cfg.LimitsConfig(rpm=_MANY), redis=redis)
        found["all four, in Redis"] = Path(stream=False, limits=_ALL, price=_PRICE, redis=redis)
        found["refused by rpm, in Redis"] = Path(stream=False, limits=_ONE, redis=redis, refused=True)
    return found


async def measure(paths: dict[str, Path]) -> dict[str, list[float]]:
    """Microseconds a call by kind, a mean for each turn."""
    for path in paths.values():
        await path.start()
        for _ in range(20):
            await path.once()
    taken: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(TURNS):
        for name, path in paths.items():
            begin = perf_counter()
            for _ in range(CALLS):
                await path.once()
            taken[name].append((perf_counter() - begin) / CALLS * 1e6)
    for path in paths.values():
        await path.stop()
    return taken


KEYS: dict[str, dict[str, float]] = {
    "no limits": {},
    "rpm, concurrency": {"rpm": _MANY, "concurrency": _MANY},
    "tpm": {"tpm": _MANY},
    "refused by rpm": {"rpm": 1},
    "refused by rpm, with tpm": {"rpm": 1, "tpm": _MANY},
    "refused by tpm": {"tpm": _ONE_CALL},
}
ROUNDS, STRETCH_S = 5, 1.5


async def process() -> None:
    """Print the CPU time of a call by kind of key, the median of some stretches."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Counting(lambda _: 0.0, lambda _: None, lambda _: None), "127.0.0.1", 0
    )
    keys = {name.translate({32: "-", 44: None}): limits for name, limits in KEYS.items()}
    gateway = Limited(server.sockets[0].getsockname()[1], keys)
    taken: dict[str, list[float]] = {name: [] for name in keys}
    try:
        await asyncio.to_thread(gateway.start, 1)
        for _ in range(ROUNDS):
            for name, times in taken.items():
                times.append(await _cpu(gateway, name))
    finally:
        gateway.stop()
        server.close()
    base = statistics.median(taken["no-limits"])
    print("\n| key | CPU µs a call | share |\n| --- | --: | --: |")
    for shown, times in zip(KEYS, taken.values(), strict=True):
        print(f"| {shown} | {statistics.median(times):.1f} | {statistics.median(times) / base:.0%} |")


async def _cpu(gateway: Limited, key: str) -> float:
    """Microseconds of CPU for a call of this key."""
    clients = [Client(gateway.port, key, "word " * 120) for _ in range(8)]
    end, calls, before = perf_counter() + STRETCH_S, 0, cpu_seconds(tree(gateway.pid))

    async def ask(client: Client) -> None:
        nonlocal calls
        while perf_counter() < end:
            await client.ask()
            calls += 1
        client.close()

    await asyncio.gather(*map(ask, clients))
    return (cpu_seconds(tree(gateway.pid)) - before) / calls * 1e6


def main() -> None:
    """Print the tables."""
    redis = Redis(0) if shutil.which("redis-server") else None
    if redis is not None:
        redis.start(0)
    try:
        section = None if redis is None else cfg.RedisConfig(url=Secret(redis.section["url"]), prefix="bench")
        taken = uvloop.run(measure(kinds(section)))
        scripts = b"" if redis is None else redis.ask("INFO commandstats")
    finally:
        if redis is not None:
            redis.stop()
    base = next(iter(taken.values()))
    print("| key | µs a call | added µs | share of a call without limits |\n| --- | --: | --: | --: |")
    for name, times in taken.items():
        added = statistics.median(one - other for one, other in zip(times, base, strict=True))
        share = statistics.median(one / other for one, other in zip(times, base, strict=True))
        print(f"| {name} | {statistics.median(times):.1f} | {added:+.1f} | {share:.0%} |")
    if redis is not None:
        calls = int(scripts.partition(b"cmdstat_evalsha:calls=")[2].partition(b",")[0])
        print(
            f"\nscripts run in Redis: {calls}, for {3 * (TURNS * CALLS + 20)} calls, a third of them refused"
        )
    uvloop.run(process())


if __name__ == "__main__":
    arguments(__doc__)
    main()
