"""One coarse timer for everything that watches the time, instead of a timer object for each call.

Whoever must act when nothing happens (heartbeats, idle streams, stuck readers) is added while it lives and
is asked a few times a second. Deadlines are met with the accuracy of one tick.
"""

import asyncio
from typing import Protocol

from gateway.core.clock import Clock
from gateway.telemetry.logging import logger


class Tickable(Protocol):
    """Something with a deadline."""

    def tick(self, now: float) -> None:
        """Act if it is time. Must not raise."""


class Ticker:
    """Asks its watchers every `interval` seconds; costs nothing while there are none."""

    def __init__(self, interval: float, clock: Clock) -> None:
        """Must be created inside the event loop."""
        self._interval = interval
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._watchers: set[Tickable] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watcher: Tickable) -> None:
        """Ask this one too, from the next tick on."""
        self._watchers.add(watcher)
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval, self._tick)

    def discard(self, watcher: Tickable) -> None:
        """Ask it no more."""
        self._watchers.discard(watcher)

    def _tick(self) -> None:
        now = self._clock()
        for watcher in tuple(self._watchers):
            try:
                watcher.tick(now)
            except Exception:  # noqa: BLE001 - one watcher's bug must not stop everybody's clock
                logger.exception("bug in the gateway; a watcher is given up")
                self._watchers.discard(watcher)
        self._timer = self._loop.call_later(self._interval, self._tick) if self._watchers else None

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def interval_for(shortest: float) -> float:
    """A tick that keeps deadlines of `shortest` seconds within a fifth: between 10 ms and half a second."""
    return min(0.5, max(0.01, shortest / 5))
