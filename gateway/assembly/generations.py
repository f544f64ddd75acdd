"""What reloads leave behind: closed when the last call that may still use it has ended."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from gateway.assembly.builder import Pipeline
from gateway.http.server.generation import Generation


class _Closes(Protocol):
    async def close(self) -> None:
        """Let go of everything."""


class GenerationReaper:
    """Watcher over the calls of generations that have been replaced."""

    def __init__(self, open_calls: Mapping[Any, Generation]) -> None:
        """`open_calls` has the generation that each call goes by."""
        self._open_calls = open_calls
        self._used: list[tuple[int, _Closes]] = []  # and the first generation that does without it
        self._closing: set[asyncio.Task[None]] = set()

    def replaced(self, before: Pipeline, after: Pipeline) -> None:
        """New calls go by `after`."""
        used = {one.transport for one in after.upstreams.values()}
        number = after.generation.number
        pools = [one.transport for one in before.upstreams.values() if one.transport not in used]
        leaving: list[_Closes] = [before.batching, before.offers, *pools]
        self._used += [(number, one) for one in leaving]
        if before.reachability is not after.reachability:
            self._close(before.reachability.close())
        if before.engines is not after.engines:
            self._close(before.engines.close())

    def tick(self, now: float) -> None:
        """Watcher: who is left?"""
        if not self._used:
            return
        newest = self._used[-1][0]
        oldest = min((one.number for one in self._open_calls.values()), default=newest)
        for number, one in self._used:
            if number <= oldest:
                self._close(one.close())
        self._used = [one for one in self._used if one[0] > oldest]

    async def close(self) -> None:
        """At once."""
        for _, one in self._used:
            self._close(one.close())
        self._used.clear()
        await asyncio.gather(*self._closing)

    def _close(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
