"""Processes that share a Redis, in one event loop: limits whose clocks only move when a test moves them."""

import asyncio
from collections import Counter
from typing import Any

from gateway.core.units import Secret
from gateway.limits.membership import HEARTBEAT
from gateway.limits.shared_limits import OnFailure, SharedLimits
from gateway.redis.command import Command, Head

DAY = "2026-11-29"


class Clocks:
    """The time of Redis and that of the processes, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One process. `counted` has its Redis errors by kind."""

    def __init__(
        self, url: str, clocks: Clocks, on_failure: OnFailure = "local", timeout: float = 0.5, **options: Any
    ) -> None:
        """The timeout is long because the machine may be busy; tests of the timeout set a shorter one."""
        self.counted: Counter[str] = Counter()
        options = {"clock": clocks, "redis_time": clocks, "settling": 0.0, **options}
        self.limits = SharedLimits(Secret(url), timeout, "test", on_failure, self._count, **options)

    async def sent(self) -> None:
        """Wait until all commands enqueued before have been executed."""
        done = asyncio.get_running_loop().create_future()
        self.limits.link.enqueue(
            Command(HEARTBEAT, Head.of([b"test:{limits}:nothing"], b"x", b"5"), (), done.set_result)
        )
        await done

    def _count(self, kind: str) -> None:
        self.counted[kind] += 1
