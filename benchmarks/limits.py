"""`python -m benchmarks.limits`: the cost of limits for one call, and the cost of a rejected call.

First without sockets: all kinds of keys take turns in short rounds, so that other load on the machine affects
them equally; printed is the median difference to a key without limits in the same round. With redis-server
installed, the same with Redis, including its time: the path then waits for one round trip. Then the CPU time of
a real gateway process for a call, sockets included, under a closed loop of 8 connections.
"""

import asyncio
import shutil
import statistics
from time import perf_counter

import uvloop

from benchmarks.arguments import arguments
from benchmarks.call_path import Path
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import Client, Limited, Redis
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
    """The keys that take turns; the first is the baseline."""
    found = {
        "no limits": Path(stream=False),
        "rpm, concurrency": Path(stream=False, limits=cfg.LimitsConfig(rpm=_MANY, concurrency=_MANY)),
        "tpm": Path(stream=False, limits=cfg.LimitsConfig(tpm=_MANY)),
        "all four": Path(stream=False, limits=_ALL, price=_PRICE),
        "refused by rpm": Path(stream=False, limits=_ONE, refused=True),
        "refused by rpm, with tpm": Path(stream=False, limits=cfg.LimitsConfig(rpm=1, tpm=_MANY), refused=True),
        "refused by tpm": Path(stream=False, limits=cfg.LimitsConfig(tpm=_ONE_CALL), refused=True),
    }
    if redis is not None:
        found["rpm, in Redis"] = Path(stream=False, limits=cfg.LimitsConfig(rpm=_MANY), redis=redis)
        found["all four, in Redis"] = Path(stream=False, limits=_ALL, price=_PRICE, redis=redis)
        found["refused by rpm, in Redis"] = Path(stream=False, limits=_ONE, redis=redis, refused=True)
    return found


async def measure(paths: dict[str, Path]) -> dict[str, list[float]]:
    """Microseconds per call by kind, the mean of each turn."""
    for path in paths.values():
        await path.start()
        for _ in range(20):
            await path.once()
    durations: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(TURNS):
        for name, path in paths.items():
            begin = perf_counter()
            for _ in range(CALLS):
                await path.once()
            durations[name].append((perf_counter() - begin) / CALLS * 1e6)
    for path in paths.values():
        await path.stop()
    return durations


KEYS: dict[str, dict[str, float]] = {
    "no limits": {},
    "rpm, concurrency": {"rpm": _MANY, "concurrency": _MANY},
    "tpm": {"tpm": _MANY},
    "refused by rpm": {"rpm": 1},
    "refused by rpm, with tpm": {"rpm": 1, "tpm": _MANY},
    "refused by tpm": {"tpm": _ONE_CALL},
}
ROUNDS, RUN_S = 5, 1.5


async def process() -> None:
    """Print the CPU time of a call by kind of key, the median of some runs."""
    server, port = await start_timed()
    keys = {name.translate({32: "-", 44: None}): limits for name, limits in KEYS.items()}
    gateway = Limited(port, keys)
    durations: dict[str, list[float]] = {name: [] for name in keys}
    try:
        await asyncio.to_thread(gateway.start, 1)
        for _ in range(ROUNDS):
            for name, times in durations.items():
                times.append(await _cpu(gateway, name))
    finally:
        gateway.stop()
        server.close()
    base = statistics.median(durations["no-limits"])
    print("\n| key | CPU µs a call | share |\n| --- | --: | --: |")
    for shown, times in zip(KEYS, durations.values(), strict=True):
        print(f"| {shown} | {statistics.median(times):.1f} | {statistics.median(times) / base:.0%} |")


async def _cpu(gateway: Limited, key: str) -> float:
    """CPU microseconds of a call with this key."""
    clients = [Client(gateway.port, key, "word " * 120) for _ in range(8)]
    end, calls, before = perf_counter() + RUN_S, 0, cpu_seconds(tree(gateway.pid))

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
        durations = uvloop.run(measure(kinds(section)))
        scripts = b"" if redis is None else redis.ask("INFO commandstats")
    finally:
        if redis is not None:
            redis.stop()
    base = next(iter(durations.values()))
    print("| key | µs a call | added µs | share of a call without limits |\n| --- | --: | --: | --: |")
    for name, times in durations.items():
        added = statistics.median(one - other for one, other in zip(times, base, strict=True))
        share = statistics.median(one / other for one, other in zip(times, base, strict=True))
        print(f"| {name} | {statistics.median(times):.1f} | {added:+.1f} | {share:.0%} |")
    if redis is not None:
        calls = int(scripts.partition(b"cmdstat_evalsha:calls=")[2].partition(b",")[0])
        print(f"\nscripts run in Redis: {calls}, for {3 * (TURNS * CALLS + 20)} calls, a third of them refused")
    uvloop.run(process())


if __name__ == "__main__":
    arguments(__doc__)
    main()
