"""Limits shared by all processes with the same Redis: the accounts of one process, and their upkeep."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final

from gateway.core.caller import KeyLimits
from gateway.core.clock import Clock, monotonic
from gateway.core.units import Secret
from gateway.limits.membership import HEARTBEAT, Membership
from gateway.limits.shared_account import SCRIPTS, OnFailure, Shared, SharedAccount, Unavailable
from gateway.redis.pipelined import PipelinedRedis

__all__ = ["LEASE_S", "OnFailure", "SharedAccount", "SharedLimits", "Unavailable"]

LEASE_S: Final = 30.0
"""Seconds after which the concurrency slots of a killed process are free again."""

SETTLING_S: Final = 0.5
"""Seconds within which all processes notice that Redis is back."""


class SharedLimits:
    """Creates the accounts, renews their leases, and merges local fallbacks when Redis is back."""

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
        """`timeout`, `lease` and `settling` are in seconds; `failed(kind)` counts each error.

        `processes` is how many certainly share the limits: the divisor of a share before Redis has answered.
        """
        membership = Membership(prefix, processes)
        scripts = [*SCRIPTS, HEARTBEAT]
        self.link: Final = PipelinedRedis(url, timeout, scripts, membership.heartbeat, failed)
        self.link.on_up.append(self._on_reconnect)
        self._shared = Shared(self.link, membership, prefix, on_failure, lease, clock, redis_time, count(1))
        self._accounts: dict[SharedAccount, None] = {}
        self._released: list[SharedAccount] = []
        self._settling = settling
        self._started = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def processes(self) -> int:
        """Living processes that share the limits, as last counted."""
        return self._shared.membership.count

    def account(self, name: str, limits: KeyLimits) -> SharedAccount:
        """A new account for the key with this name."""
        account = SharedAccount(name, limits, self._shared)
        self._accounts[account] = None
        return account

    def release(self, account: SharedAccount) -> None:
        """Forget this account as soon as no call needs it."""
        self._released.append(account)

    async def start(self) -> None:
        """Connect; if Redis does not answer in time, keep trying in the background."""
        await self.link.start()
        self._started = True
        self._tend()

    async def stop(self) -> None:
        """Send the last settlements and close the connection."""
        if self._timer is not None:
            self._timer.cancel()
        await self.link.stop()

    def _tend(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._shared.lease / 3, self._tend)
        now = self._shared.clock()
        if self.link.up:
            for account in self._accounts:
                account.renew(now)
                account.leave_fallback(now)
        released, self._released = self._released, []
        for account in released:
            if account.idle:
                del self._accounts[account]
            else:
                self._released.append(account)

    def _on_reconnect(self) -> None:
        now = self._shared.clock()
        for account in self._accounts:
            account.on_reconnect(now, self._settling if self._started else 0.0)
