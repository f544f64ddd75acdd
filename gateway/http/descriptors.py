"""File descriptors: some are kept for upstreams and the admin port, and idle clients give way first.

The kernel hands out the lowest free number, so the number of a new descriptor says how many are open: nothing
has to be counted, and whatever else the process has open counts too.
"""

import asyncio
import os
import resource
from collections.abc import Callable
from typing import Final

from gateway.core.clock import Clock, monotonic
from gateway.telemetry.logging import logger

DESCRIPTOR_TRIES: Final = 8
"""Attempts at a connection while descriptors are short, each after an idle client was closed."""
_MOST_KEPT: Final = 512
_LOG_EVERY_S: Final = 60.0
_TURNS: Final = 3
"""Turns of the event loop after which a closed connection's descriptor is free."""

CloseIdle = Callable[[int], int]
"""Closes up to that many idle client connections, longest idle first, and returns how many it has closed."""


class Descriptors:
    """The descriptors of this process. A quarter of those that it has when it starts, at most 512, is kept."""

    def __init__(self, limit: Callable[[], int] | None = None, clock: Clock = monotonic) -> None:
        """`limit`: by default that of the process (`ulimit -n`), as it is at the time; 0 for none."""
        self._limit = limit or _soft_limit
        self._in_use = _lowest_free()
        self._clock = clock
        self._close_idle: CloseIdle = _nothing_to_close
        self._logged_at = -_LOG_EVERY_S
        self._closed = 0
        self._excess = 0  # idle clients to close in the next turn
        self._waiting = 0  # callers of `relieve`
        self._freed = 0  # connections closed for them

    def on_shortage(self, close_idle: CloseIdle) -> None:
        """What closes idle clients."""
        self._close_idle = close_idle

    def admit_client(self, number: int) -> bool:
        """Whether a new client with this descriptor may stay; idle clients are closed for it."""
        left, kept = self._left_above(number), self._kept()
        if left is None or left >= kept:
            return True
        self._shrink_soon(kept - left)
        return left >= kept // 2 or self._relieve(1) > 0

    def note_upstream(self, number: int) -> None:
        """A new upstream connection has this descriptor; idle clients are closed if few are left."""
        left, least = self._left_above(number), self._kept() // 2
        if left is not None and left < least:
            self._shrink_soon(least - left)

    async def relieve(self) -> bool:
        """No descriptor was left: close idle clients. Whether it is worth trying again."""
        self._waiting += 1
        try:
            if self._waiting > self._freed:  # else others have closed enough
                self._freed += self._relieve(1)
            if self._waiting > self._freed:
                return False
            for _ in range(_TURNS):
                await asyncio.sleep(0)  # noqa: TID251 - a descriptor is free only after the loop has closed it
        finally:
            self._waiting -= 1
            self._freed = self._freed - 1 if self._waiting else 0
        return True

    def _shrink_soon(self, excess: int) -> None:
        """Close that many idle clients, once for all that come until their descriptors are free."""
        if not self._excess:
            asyncio.get_running_loop().call_soon(self._shrink, _TURNS)
        self._excess = max(self._excess, excess)

    def _shrink(self, turns: int) -> None:
        if turns == _TURNS:
            self._relieve(self._excess)
        if turns:
            asyncio.get_running_loop().call_soon(self._shrink, turns - 1)
        else:
            self._excess = 0

    def _left_above(self, number: int) -> int | None:
        limit = self._limit()
        return limit - number - 1 if limit else None

    def _kept(self) -> int:
        return min((self._limit() - self._in_use) // 4, _MOST_KEPT)

    def _relieve(self, count: int) -> int:
        closed = self._close_idle(count)
        self._closed += closed
        now = self._clock()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            logger.warning(
                "out of file descriptors: idle clients are closed, or new ones refused; raise ulimit -n",
                extra={"limit": self._limit(), "closed_clients": self._closed},
            )
        return closed


def _nothing_to_close(count: int) -> int:
    return 0


def _soft_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else max(0, soft)


def _lowest_free() -> int:
    """How many descriptors are open, nearly."""
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return 0
    os.close(number)
    return number
