"""One coarse timer shared by everything with a deadline, instead of one timer object per call.

Objects that must act on silence (heartbeats, idle streams, stalled readers) register while they live and are
called a few times a second. Deadlines are accurate to one tick. The idea is Netty's `HashedWheelTimer`,
without the wheel.
"""

import asyncio
from typing import Protocol

from gateway.core.clock import Clock
from gateway.telemetry.logging import logger


class Tickable(Protocol):
    """An object with a deadline."""

    def tick(self, now: float) -> None:
        """Act if a deadline has passed. Must not raise."""


class Ticker:
    """Calls its members every `interval` seconds; costs nothing while it has none."""

    def __init__(self, interval: float, clock: Clock) -> None:
        """Must be created inside the event loop."""
        self._interval = interval
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._members: set[Tickable] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Tickable) -> None:
        """Call this object too, from the next tick on."""
        self._members.add(member)
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval, self._tick)

    def discard(self, member: Tickable) -> None:
        """Stop calling this object."""
        self._members.discard(member)

    def _tick(self) -> None:
        now = self._clock()
        for member in tuple(self._members):
            try:
                member.tick(now)
            except Exception:  # noqa: BLE001 - a bug in one member must not stop the clock of all others
                logger.exception("bug in the gateway; dropped a member of the ticker")
                self._members.discard(member)
        self._timer = self._loop.call_later(self._interval, self._tick) if self._members else None

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def interval_for(shortest: float) -> float:
    """The tick interval for deadlines of `shortest` seconds: a fifth of it, from 10 ms to 500 ms."""
    return min(0.5, max(0.01, shortest / 5))
