"""Lets lines go: into the room that live calls leave, at the hours of batches, as the limits of keys allow."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.batch_jobs.room import UpstreamRoom
from gateway.batch_jobs.traffic import LineOwner, LineTraffic
from gateway.batch_jobs.windows import OpenHours
from gateway.core.clock import Clock

_POLL_S: Final = 0.02
"""Seconds between two looks at the room: live calls that end wake nobody here."""
_SLOW_POLL_S: Final = 0.5


class SendGate:
    """The gate of all batches of one process."""

    def __init__(
        self, traffic: LineTraffic, hours: OpenHours | None, minute_of_day: Callable[[], int], clock: Clock
    ) -> None:
        self._traffic = traffic
        self._hours = hours
        self.closed = ""
        """Why no line may go at all; empty if lines may."""
        self._minute_of_day = minute_of_day
        self._clock = clock
        self._rooms: dict[str, UpstreamRoom] = {}
        self._held: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()

    def hold(self, kind: str, name: str, seconds: float) -> None:
        """Let no line of this key or model go for a while."""
        until = self._clock() + seconds
        self._held[kind, name] = max(until, self._held.get((kind, name), 0.0))

    def room(self, upstream: str) -> UpstreamRoom:
        """The room at an upstream."""
        return self._rooms.setdefault(upstream, UpstreamRoom())

    def enter(self, owner: LineOwner, model: str) -> tuple[UpstreamRoom | None, float]:
        """Take a place for a line; without one, the seconds after which to look again."""
        now = self._clock()
        if self.closed:
            return None, _SLOW_POLL_S
        if self._hours is not None and not self._hours.open(self._minute_of_day()):
            return None, _SLOW_POLL_S
        for held in (("key", owner.key), ("model", model)):
            if (wait := self._held.get(held, 0.0) - now) > 0:
                return None, min(wait, _SLOW_POLL_S)
        if (wait := self._traffic.wait_for(owner)) > 0:
            return None, min(wait, _SLOW_POLL_S)
        for upstream in self._traffic.upstreams(model):
            room = self.room(upstream)
            if room.free(self._traffic.admission(upstream), now) > 0:
                room.lines += 1
                return room, 0.0
        if not self._traffic.upstreams(model):  # a reload has removed the model: the line gets the error of a live call
            return UpstreamRoom(), 0.0
        return None, _POLL_S

    def leave(self, room: UpstreamRoom) -> None:
        """Return a line's place."""
        room.lines -= 1
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait until a place was returned, or for so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
