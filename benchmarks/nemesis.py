"""`python -m benchmarks.nemesis`: four gateways, one Redis, and somebody who breaks both; takes five minutes.

Two keys are saturated through all gateways: one has requests a minute, one places. The upstream says when it
was asked. Real time, real processes, the config's defaults.
"""

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import Callable
from time import monotonic

from benchmarks.arguments import arguments
from benchmarks.limited import Client, Counting, Limited, Redis

RPM, PLACES, GATEWAYS = 600, 8, 4
HOLD_S = 0.5
LEASE_S = 30.0


class Watch:
    """When the upstream was asked for what, from `begin` on."""

    def __init__(self) -> None:
        self.begin = monotonic()
        self.rates: list[float] = []
        self.steps: list[tuple[float, int]] = []

    def now(self) -> float:
        """Seconds since the begin."""
        return monotonic() - self.begin

    def seen(self, body: bytes) -> None:
        """A call has come."""
        if b"place" in body:
            self.steps.append((self.now(), 1))
        else:
            self.rates.append(self.now())

    def gone(self, body: bytes) -> None:
        """It is over."""
        if b"place" in body:
            self.steps.append((self.now(), -1))

    def excess(self, start: float = 0.0, end: float = 1e9) -> float:
        """The most calls that any window between held beyond rate times its length."""
        worst, lowest = 0.0, float("inf")
        for number, at in enumerate(at for at in self.rates if start <= at < end):
            value = number - at * RPM / 60
            lowest = min(lowest, value)
            worst = max(worst, value - lowest + 1)
        return worst

    def passed(self, start: float, end: float) -> int:
        """Calls in this time."""
        return sum(start <= at < end for at in self.rates)

    def most(self, start: float, end: float) -> tuple[int, float]:
        """Calls of the key with places under way in this time: the most, and the mean."""
        level = itertools.accumulate(step for _, step in self.steps)
        spans = list(zip((at for at, _ in self.steps), level, strict=True))
        inside = [(at, high) for at, high in spans if start <= at < end]
        ends = [at for at, _ in inside[1:]] + [min(end, self.now())]
        area = sum((till - at) * high for (at, high), till in zip(inside, ends, strict=True))
        return max((high for _, high in inside), default=0), area / max(1e-9, end - start)


async def saturate(client: Client, errors: list[str]) -> None:
    """Ask, wait as told (a quarter of a second at most), and ask again."""
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
    told(watch, "well", 60, await until(120))
    begin = await until(120)
    redis.signal(signal.SIGSTOP)
    await until(130)
    redis.signal(signal.SIGCONT)
    told(watch, "SIGSTOP for 10 s", begin, await until(150))
    begin = watch.now()
    redis.kill()
    await until(155)
    await asyncio.to_thread(redis.start, 0)
    told(watch, "kill -9, empty after 5 s", begin, await until(175))
    begin = watch.now()
    for second in range(5):
        redis.ask("FLUSHALL")
        await until(begin + second + 1)
    told(watch, "FLUSHALL five times", begin, await until(195))
    begin = watch.now()
    await until(195)
    killed = gateways[-1].process
    assert killed is not None
    killed.kill()
    killed.wait()
    told(watch, "kill -9 of a gateway", begin, await until(195 + LEASE_S + 5))
    told(watch, "after its lease", watch.now(), await until(290))
    print(f"\nall windows: {watch.excess():.0f} at most (limit {RPM})")
    print(f"not answered: {dict(sorted(Counter(errors).items()))}")
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)


def told(watch: Watch, what: str, start: float, end: float) -> None:
    """One line of the table."""
    share = watch.passed(start, end) / ((end - start) * RPM / 60)
    most, mean = watch.most(start, end)
    print(
        f"| {what} | {start:.0f} to {end:.0f} s | {share:.1%} | {watch.excess(start, end):.1f} "
        f"| {most} | {mean:.1f} |",
        flush=True,
    )


async def main() -> None:
    """Start everything, run, end everything."""
    watch = Watch()
    make: Callable[[], Counting] = lambda: Counting(  # noqa: E731
        lambda body: HOLD_S if b"place" in body else 0.0, watch.seen, watch.gone
    )
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
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
