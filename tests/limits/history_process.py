"""One process of the history check: saturates two limits and tells when it was admitted, one line each.

`python history_process.py URL`: time runs SPEED times as fast as the clock of the machine, in Redis too. The
lines are `rpm TIME`, and `in TIME ID` and `out TIME ID` for a place.
"""

import asyncio
import sys
import time

from gateway.core.caller import KeyLimits
from gateway.core.units import Secret
from gateway.limits import shared_account as redis_account
from gateway.limits.account import Denial, Reservation, ReservationRequest
from gateway.limits.shared_limits import SharedAccount, SharedLimits
from gateway.redis.command import Script

SPEED = 60.0
CALLERS = 4
RPM, PLACES = 600, 6
DAY = "2026-11-29"
_TIME = b"time[1] - EPOCH + time[2] / 1000000"


class HurriedScript(Script):
    """A script of the store for which a second of Redis's clock is a minute."""

    def __init__(self, text: bytes) -> None:
        assert _TIME in text
        super().__init__(text.replace(_TIME, b"(%b) * %d" % (_TIME, SPEED)))


def hurry() -> None:
    """Lets the scripts of this process run on the fast clock."""
    scripts = {"RESERVE": "reserve", "SETTLE": "settle", "RENEW": "renew", "PUSH": "merge_local"}
    for constant, name in scripts.items():
        script = HurriedScript.named("gateway.limits.lua", "account", name)
        setattr(redis_account, f"_{constant}", script)


def now() -> float:
    """The clock that all processes of the machine share, faster."""
    return time.monotonic() * SPEED


class Process:
    """Callers that do what `retry-after` tells them."""

    def __init__(self, url: str) -> None:
        self.limits = SharedLimits(
            Secret(url), 0.3, "history", "local", _ignore, processes=4, clock=now, settling=0.5 * SPEED
        )
        self.rate = self.limits.account("rate", KeyLimits(rpm=RPM))
        self.places = self.limits.account("places", KeyLimits(concurrency=PLACES))

    async def reserve(self, account: SharedAccount) -> Reservation:
        while True:
            outcome = await account.reserve(ReservationRequest(), DAY, now())
            if isinstance(outcome, Reservation):
                return outcome
            assert isinstance(outcome, Denial)
            await asyncio.sleep(min(outcome.wait / SPEED, 0.1))

    async def ask_for_rate(self) -> None:
        while True:
            taken = await self.reserve(self.rate)
            print(f"rpm {now()}", flush=True)
            self.rate.settle(taken, 0, 0, now())

    async def hold_places(self) -> None:
        while True:
            taken = await self.reserve(self.places)
            print(f"in {now()} {taken.id}", flush=True)
            await asyncio.sleep(0.05)
            print(f"out {now()} {taken.id}", flush=True)
            self.places.settle(taken, 0, 0, now())
            await asyncio.sleep(0.03)  # or it would take its own place again before the others ask

    async def run(self) -> None:
        await self.limits.start()
        callers = [self.ask_for_rate, self.hold_places] * CALLERS
        await asyncio.gather(*(caller() for caller in callers))


def _ignore(_: str) -> None:
    pass


if __name__ == "__main__":
    hurry()
    asyncio.run(Process(sys.argv[1]).run())
