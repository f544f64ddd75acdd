"""A piece of the pipeline in virtual time: layers above the queues of upstreams that the test plays."""

import asyncio
import math
from collections.abc import Iterable

from gateway.core.call import Call, Handler, Reply
from gateway.core.errors import Rejection
from gateway.queueing.layer import QueueLayer
from gateway.queueing.pacing import Pace
from gateway.queueing.upstream_queue import UpstreamQueue
from gateway.queueing.waiting_room import WaitingRoom


class PipelineScene:
    """The queues of these upstreams, on the running loop.

    A subclass sets `handle`, whose last layer is `queue_layer`. `waits` are the seconds that calls waited.
    """

    handle: Handler

    def __init__(
        self,
        upstreams: Iterable[str] = ("local",),
        *,
        permits: int = 1,
        max_queue: int = 100,
        pace: Pace | None = None,
        total_s: float = math.inf,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.started = self.loop.time()
        self.waits: list[float] = []
        self.queues = {name: UpstreamQueue(name, permits, pace, total_s) for name in upstreams}
        room = WaitingRoom(max_queue)
        self.queue_layer = QueueLayer(
            room, self.queues, self.loop.time, lambda upstream: self.waits.append, lambda call: None
        )

    async def served(self, call: Call) -> Reply | Rejection:
        """Handle the call and settle it, as the server does."""
        try:
            return await self.handle(call)
        finally:
            call.lease.settle(call, self.loop.time())

    async def settled(self) -> None:
        """Run everything that is ready."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def at(self, seconds: float) -> None:
        """Sleep until `seconds` after the start."""
        await asyncio.sleep(max(0.0, self.started + seconds - self.loop.time()))
        await self.settled()

    def timers(self) -> list[asyncio.TimerHandle]:
        """Timers that will fire."""
        return [timer for timer in self.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    def idle(self) -> bool:
        """Whether no call waits or holds a permit."""
        return not any((*self.queue_layer.depth().values(), *self.queue_layer.in_flight().values()))
