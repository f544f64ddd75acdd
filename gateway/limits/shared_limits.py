"""Limits that all processes with the same Redis share: the accounts of one process, and their upkeep."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final

from gateway.core.caller import KeyLimits
from gateway.core.clock import Clock, monotonic
from gateway.core.units import Secret
from gateway.limits.membership import ANNOUNCE, Membership
from gateway.limits.shared_account import SCRIPTS, OnFailure, Shared, SharedAccount, Unavailable
from gateway.redis.pipelined import PipelinedRedis

__all__ = ["LEASE_S", "OnFailure", "SharedAccount", "SharedLimits", "Unavailable"]

LEASE_S: Final = 30.0
"""After so many seconds the places of a killed process are free again."""

SETTLING_S: Final = 0.5
"""Within so many seconds of each other all processes notice that Redis is back."""


class SharedLimits:
    """Makes the accounts, renews their leases, and brings them back together when Redis is back."""

    def __init__(
        self,
        url: Secret,
        timeout: float,
        prefix: str,
        on_failure: OnFailure,
        failed: Callable[[str], None],
        *,
        processes: int = 1,
        lease: float = LEASE_S,
        settling: float = SETTLING_S,
        clock: Clock = monotonic,
        redis_time: Callable[[], float] | None = None,
    ) -> None:
        """`timeout`, `lease`, `settling` in seconds; `failed` is told the kind of each error.

        `processes` is how many share the limits for sure: what a share is before Redis has told more.
        """
        presence = Membership(prefix, processes)
        self.link: Final = PipelinedRedis(url, timeout, [*SCRIPTS, ANNOUNCE], presence.probe, failed)
        self.link.on_up.append(self._back)
        self._shared = Shared(self.link, presence, prefix, on_failure, lease, clock, redis_time, count(1))
        self._accounts: list[SharedAccount] = []
        self._settling = settling
        self._started = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def processes(self) -> int:
        """Living processes that share the limits, as last heard."""
        return self._shared.presence.count

    def account(self, name: str, terms: KeyLimits) -> SharedAccount:
        """The account of the key with this name."""
        self._accounts.append(SharedAccount(name, terms, self._shared))
        return self._accounts[-1]

    async def start(self) -> None:
        """Connects; a Redis that does not answer in time is looked for in the background."""
        await self.link.start()
        self._started = True
        self._tend()

    async def stop(self) -> None:
        """Sends the last settlements and closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        await self.link.stop()

    def _tend(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._shared.lease / 3, self._tend)
        now = self._shared.clock()
        if self.link.up:
            for one in self._accounts:
                one.renew(now)
                one.leave_fallback(now)

    def _back(self) -> None:
        now = self._shared.clock()
        for one in self._accounts:
            one.on_reconnect(now, self._settling if self._started else 0.0)
