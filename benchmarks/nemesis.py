"""`python -m benchmarks.nemesis`: shared limits while one Redis and four gateways are broken; takes five minutes.

Two keys are saturated through all gateways: one is limited in requests per minute, one in concurrency. The
upstream records its calls. Real time, real processes, the default config.
"""

import asyncio
import itertools
import signal
from collections import Counter
from time import monotonic

from benchmarks.arguments import arguments
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import Client, Limited, Redis

RPM, PLACES, GATEWAYS = 600, 8, 4
HOLD_S = 0.5
LEASE_S = 30.0


class Watch:
    """The times of the upstream's calls, from `begin` on."""

    def __init__(self) -> None:
        self.begin = monotonic()
        self.rates: list[float] = []
        self.steps: list[tuple[float, int]] = []

    def now(self) -> float:
        """Seconds since the begin."""
        return monotonic() - self.begin

    def seen(self, body: bytes) -> None:
        """Record the begin of a call."""
        if b"place" in body:
            self.steps.append((self.now(), 1))
        else:
            self.rates.append(self.now())

    def gone(self, body: bytes) -> None:
        """Record its end."""
        if b"place" in body:
            self.steps.append((self.now(), -1))

    def excess(self, start: float = 0.0, end: float = 1e9) -> float:
        """The largest excess of calls over the rate, of any window between these times."""
        worst, lowest = 0.0, float("inf")
        for number, at in enumerate(at for at in self.rates if start <= at < end):
            value = number - at * RPM / 60
            lowest = min(lowest, value)
            worst = max(worst, value - lowest + 1)
        return worst

    def passed(self, start: float, end: float) -> int:
        """The number of calls in this time."""
        return sum(start <= at < end for at in self.rates)

    def most(self, start: float, end: float) -> tuple[int, float]:
        """The maximum and mean of concurrent calls of the limited key in this time."""
        level = itertools.accumulate(step for _, step in self.steps)
        spans = list(zip((at for at, _ in self.steps), level, strict=True))
        inside = [(at, high) for at, high in spans if start <= at < end]
        ends = [at for at, _ in inside[1:]] + [min(end, self.now())]
        area = sum((till - at) * high for (at, high), till in zip(inside, ends, strict=True))
        return max((high for _, high in inside), default=0), area / max(1e-9, end - start)


async def saturate(client: Client, errors: list[str]) -> None:
    """Call in a loop, and wait as long as a rejection asks (at most a quarter of a second)."""
    while True:
        try:
            status, headers, _ = await client.ask()
        except (OSError, EOFError) as error:
            errors.append(type(error).__name__)
            await asyncio.sleep(0.25)
            continue
        if status == 429:
            await asyncio.sleep(min(0.25, int(headers["retry-after-ms"]) / 1000))
        elif status != 200:
            errors.append(str(status))
            await asyncio.sleep(0.05)


async def run(watch: Watch, redis: Redis, gateways: list[Limited]) -> None:
    """The load and the nemesis."""
    errors: list[str] = []
    callers = [
        asyncio.create_task(saturate(Client(gateway.port, key, text), errors))
        for gateway in gateways
        for key, text, number in (("rate", "x", 3), ("places", "place", 4))
        for _ in range(number)
    ]

    async def until(second: float) -> float:
        await asyncio.sleep(max(0.0, second - watch.now()))
        return watch.now()

    await until(60)
    print_phase(watch, "well", 60, await until(120))
    begin = await until(120)
    redis.signal(signal.SIGSTOP)
    await until(130)
    redis.signal(signal.SIGCONT)
    print_phase(watch, "SIGSTOP for 10 s", begin, await until(150))
    begin = watch.now()
    redis.kill()
    await until(155)
    await asyncio.to_thread(redis.start, 0)
    print_phase(watch, "kill -9, empty after 5 s", begin, await until(175))
    begin = watch.now()
    for second in range(5):
        redis.ask("FLUSHALL")
        await until(begin + second + 1)
    print_phase(watch, "FLUSHALL five times", begin, await until(195))
    begin = watch.now()
    await until(195)
    killed = gateways[-1].process
    assert killed is not None
    killed.kill()
    killed.wait()
    print_phase(watch, "kill -9 of a gateway", begin, await until(195 + LEASE_S + 5))
    print_phase(watch, "after its lease", watch.now(), await until(290))
    print(f"\nall windows: {watch.excess():.0f} at most (limit {RPM})")
    print(f"not answered: {dict(sorted(Counter(errors).items()))}")
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)


def print_phase(watch: Watch, what: str, start: float, end: float) -> None:
    """Print a row of the table."""
    share = watch.passed(start, end) / ((end - start) * RPM / 60)
    most, mean = watch.most(start, end)
    print(
        f"| {what} | {start:.0f} to {end:.0f} s | {share:.1%} | {watch.excess(start, end):.1f} | {most} | {mean:.1f} |",
        flush=True,
    )


async def main() -> None:
    """Start everything, run, end everything."""
    watch = Watch()
    server, port = await start_timed(lambda body: HOLD_S if b"place" in body else 0.0, watch.seen, watch.gone)
    redis = Redis(0)
    keys: dict[str, dict[str, float]] = {"rate": {"rpm": RPM}, "places": {"concurrency": PLACES}}
    gateways = [Limited(port, keys, redis) for _ in range(GATEWAYS)]
    try:
        await asyncio.to_thread(redis.start, 0)
        for number, gateway in enumerate(gateways):
            await asyncio.to_thread(gateway.start, number % 2)
        print("| phase | time | of the rate | beyond the rate, calls | most places | mean places |")
        print("| --- | --- | --: | --: | --: | --: |", flush=True)
        watch.begin = monotonic()
        await run(watch, redis, gateways)
    finally:
        for one in (*gateways, redis):
            one.stop()
        server.close()


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(main())
