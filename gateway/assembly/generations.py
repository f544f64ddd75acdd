"""Closes what reloads leave behind, once the last call that may use it has ended."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from gateway.assembly.builder import Pipeline
from gateway.http.server.generation import Generation


class _Closeable(Protocol):
    async def close(self) -> None:
        """Release everything."""


class GenerationReaper:
    """Tickable that closes the parts of drained generations, as nginx and Envoy do."""

    def __init__(self, open_calls: Mapping[Any, Generation]) -> None:
        """`open_calls` has the generation of each call in flight."""
        self._open_calls = open_calls
        self._used: list[tuple[int, _Closeable]] = []  # with the first generation that does not use it
        self._closing: set[asyncio.Task[None]] = set()

    def replaced(self, before: Pipeline, after: Pipeline) -> None:
        """New calls use `after`; close what only `before` needs when its calls have ended."""
        used = {client.transport for client in after.upstreams.values()}
        number = after.generation.number
        pools = [client.transport for client in before.upstreams.values() if client.transport not in used]
        leaving: list[_Closeable] = [before.batching, before.offers, *pools]
        self._used += [(number, part) for part in leaving]
        if before.reachability is not after.reachability:
            self._close(before.reachability.close())
        if before.engines is not after.engines:
            self._close(before.engines.close())

    def tick(self, now: float) -> None:
        """Tickable: close what no open call can use any more."""
        if not self._used:
            return
        newest = self._used[-1][0]
        oldest = min((generation.number for generation in self._open_calls.values()), default=newest)
        for number, part in self._used:
            if number <= oldest:
                self._close(part.close())
        self._used = [entry for entry in self._used if entry[0] > oldest]

    async def close(self) -> None:
        """Close everything now."""
        for _, part in self._used:
            self._close(part.close())
        self._used.clear()
        await asyncio.gather(*self._closing)

    def _close(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
