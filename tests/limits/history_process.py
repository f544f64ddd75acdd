"""One process of the history check: saturates two limits and prints a line for each admission.

`python history_process.py URL`: time runs SPEED times as fast as the clock of the machine, in Redis too. The
lines are `rpm TIME`, and `in TIME ID` and `out TIME ID` for a concurrency slot.
"""

import asyncio
import sys
import time

from gateway.core.caller import KeyLimits
from gateway.core.units import Secret
from gateway.limits import shared_account
from gateway.limits.account import Denial, Reservation, ReservationRequest
from gateway.limits.shared_limits import SharedAccount, SharedLimits
from gateway.redis.command import Script

SPEED = 60.0
CALLERS = 4
RPM, SLOTS = 600, 6
DAY = "2026-11-29"
_TIME = b"time[1] - EPOCH + time[2] / 1000000"


class HurriedScript(Script):
    """A script for which a second of Redis's clock is a minute."""

    def __init__(self, text: bytes) -> None:
        assert _TIME in text
        super().__init__(text.replace(_TIME, b"(%b) * %d" % (_TIME, SPEED)))


def hurry() -> None:
    """Make the scripts of this process run on the fast clock."""
    scripts = {"RESERVE": "reserve", "SETTLE": "settle", "RENEW": "renew", "MERGE_LOCAL": "merge_local"}
    for constant, name in scripts.items():
        script = HurriedScript.named("gateway.limits.lua", "account", name)
        setattr(shared_account, f"_{constant}", script)


def now() -> float:
    """The monotonic clock that all processes share, SPEED times as fast."""
    return time.monotonic() * SPEED


class Process:
    """Callers that obey `retry-after`."""

    def __init__(self, url: str) -> None:
        self.limits = SharedLimits(
            Secret(url), 0.3, "history", "local", _ignore, processes=4, clock=now, settling=0.5 * SPEED
        )
        self.rate = self.limits.account("rate", KeyLimits(rpm=RPM))
        self.slots = self.limits.account("places", KeyLimits(concurrency=SLOTS))

    async def reserve(self, account: SharedAccount) -> Reservation:
        while True:
            outcome = await account.reserve(ReservationRequest(), DAY, now())
            if isinstance(outcome, Reservation):
                return outcome
            assert isinstance(outcome, Denial)
            await asyncio.sleep(min(outcome.wait / SPEED, 0.1))

    async def use_rate(self) -> None:
        while True:
            reservation = await self.reserve(self.rate)
            print(f"rpm {now()}", flush=True)
            self.rate.settle(reservation, 0, 0, now())

    async def hold_slots(self) -> None:
        while True:
            reservation = await self.reserve(self.slots)
            print(f"in {now()} {reservation.id}", flush=True)
            await asyncio.sleep(0.05)
            print(f"out {now()} {reservation.id}", flush=True)
            self.slots.settle(reservation, 0, 0, now())
            await asyncio.sleep(0.03)  # otherwise it would take its own slot again before the others try

    async def run(self) -> None:
        await self.limits.start()
        callers = [self.use_rate, self.hold_slots] * CALLERS
        await asyncio.gather(*(caller() for caller in callers))


def _ignore(_: str) -> None:
    pass


if __name__ == "__main__":
    hurry()
    asyncio.run(Process(sys.argv[1]).run())
