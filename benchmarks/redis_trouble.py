"""`python -m benchmarks.redis_trouble`: shared limits at 2,000 calls a second while Redis stutters, stops or forgets.

The accounts of two gateways in one process share a key with all four limits, none of which the load reaches. For
each trouble: the calls, how many were refused while it lasted and from one second after it, the settlements that were
given up, and the slots, tokens and dollars that Redis still counts as taken at the end and should not.
"""

import asyncio
import signal
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from benchmarks.arguments import parser_of
from benchmarks.limited import Redis
from gateway.core.caller import KeyLimits
from gateway.core.clock import monotonic
from gateway.core.units import Secret
from gateway.limits.account import Denial, Reservation, ReservationRequest
from gateway.limits.shared_limits import SharedAccount, SharedLimits

DAY = "2026-11-29"
LIMITS = KeyLimits(rpm=10**9, tpm=10**12, concurrency=400, usd_per_day=10**15)
CALL = ReservationRequest(committed=100, committed_cost=1000)
COST = 700
HOLD_S = 0.02
GATEWAYS = 2
STOPPED_S, RUNNING_S = 0.06, 0.5
_MOST_AT_ONCE = 20
WORK_S = 200e-6
"""CPU time that a gateway spends on a call besides its limits."""


class Load:
    """Calls in an open loop, and what became of them in the current phase."""

    def __init__(self, accounts: list[SharedAccount], rate: float) -> None:
        self._accounts = accounts
        self._rate = rate
        self._rng = Random(1)
        self.cost = 0
        self.outcomes: Counter[str] = Counter()
        self.under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start calls at the rate, evenly over the gateways, without end; what a busy machine delays is left out."""
        begin, started = monotonic(), 0
        while True:
            await asyncio.sleep(0.001)
            due = int((monotonic() - begin) * self._rate)
            started = max(started, due - _MOST_AT_ONCE)
            while started < due:
                task = asyncio.create_task(self._call(self._accounts[started % len(self._accounts)]))
                self.under_way.add(task)
                task.add_done_callback(self.under_way.discard)
                started += 1

    async def _call(self, account: SharedAccount) -> None:
        spin(WORK_S)
        outcome = await account.reserve(CALL, DAY, monotonic())
        if not isinstance(outcome, Reservation):
            self.outcomes[outcome.limit if isinstance(outcome, Denial) else "unavailable"] += 1
            return
        self.outcomes["admitted"] += 1
        await asyncio.sleep(HOLD_S * self._rng.uniform(0.5, 1.5))
        self.cost += COST
        account.settle(outcome, 80, COST, monotonic())


def spin(seconds: float) -> None:
    """Keep the event loop busy."""
    end = monotonic() + seconds
    while monotonic() < end:
        pass


async def stutter(redis: Redis, seconds: float) -> None:
    """Redis is stopped for 60 ms of every 560 ms."""
    end = monotonic() + seconds
    while monotonic() < end:
        redis.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        redis.signal(signal.SIGCONT)
        await asyncio.sleep(RUNNING_S)


async def stop(redis: Redis, seconds: float) -> None:
    """Redis is stopped once."""
    redis.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    redis.signal(signal.SIGCONT)


async def flush(redis: Redis, seconds: float) -> None:
    """Redis is emptied each second."""
    for _ in range(int(seconds)):
        await asyncio.to_thread(redis.ask, "FLUSHALL")
        await asyncio.sleep(1)


async def fail_over(redis: Redis, seconds: float) -> None:
    """Redis is killed and an empty one takes its port."""
    await asyncio.to_thread(redis.kill)
    await asyncio.sleep(seconds / 2)
    await asyncio.to_thread(redis.start, 0)
    await asyncio.sleep(seconds / 2)


TROUBLES: dict[str, Callable[[Redis, float], Awaitable[None]]] = {
    "stutters": stutter,
    "stops": stop,
    "is emptied": flush,
    "fails over": fail_over,
}


async def measure(name: str, rate: float, seconds: float) -> str:
    """The table's row of one trouble."""
    redis = Redis(0)
    await asyncio.to_thread(redis.start, 0)
    counted: Counter[str] = Counter()
    gateways = [
        SharedLimits(Secret(redis.section["url"]), 0.02, "bench", "local", count_in(counted), processes=GATEWAYS)
        for _ in range(GATEWAYS)
    ]
    for gateway in gateways:
        await gateway.start()
    load = Load([gateway.account("key", LIMITS) for gateway in gateways], rate)
    calls = asyncio.create_task(load.run())
    await asyncio.sleep(2)
    load.outcomes.clear()
    await TROUBLES[name](redis, seconds)
    await asyncio.sleep(1)
    during, load.outcomes = load.outcomes, Counter()
    await asyncio.sleep(5)
    after = load.outcomes
    calls.cancel()
    await asyncio.gather(*load.under_way)
    await asyncio.sleep(1.5)
    slots = int(redis.ask("ZCARD " + key_of(redis, "places"))[1:]) if key_of(redis, "places") else 0
    _, spent = redis.ask("GET " + key_of(redis, f"usd:{DAY}")).split(b"\r\n", 1)
    excess = struct.unpack("<dd", spent[:16])[0] - load.cost
    for gateway in gateways:
        await gateway.stop()
    redis.stop()
    refused = [sum(each.values()) - each["admitted"] for each in (during, after)]
    return (
        f"| {name} | {sum(during.values()) + sum(after.values()):,} | {refused[0]:,} | {refused[1]:,} "
        f"| {counted['backlog']:,} | {slots:,} | {excess / COST:+,.1f} |"
    )


def count_in(counted: Counter[str]) -> Callable[[str], None]:
    """Counts Redis errors by kind."""

    def count(kind: str) -> None:
        counted[kind] += 1

    return count


def key_of(redis: Redis, end: str) -> str:
    """The name of the only key that ends so; empty if Redis has none."""
    names = redis.ask(f"KEYS *:{end}").split(b"\r\n")
    return names[2].decode() if len(names) > 2 else ""


async def main() -> None:
    """Print a row for each trouble."""
    parser = parser_of(__doc__)
    parser.add_argument("--rate", type=float, default=2000, metavar="N", help="calls a second; default 2000")
    parser.add_argument("--seconds", type=float, default=8, metavar="N", help="of each trouble; default 8")
    parser.add_argument("--only", choices=TROUBLES, help="one trouble")
    given = parser.parse_args()
    print(
        "| Redis | calls | refused meanwhile | refused later | settlements lost | slots left | dollars off, in calls |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in [given.only] if given.only else TROUBLES:
        print(await measure(name, given.rate, given.seconds), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
