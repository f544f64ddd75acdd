"""What calls have used since it was last written down, and the task that writes it down.

A settled call costs the hot path one update of a dict. About once a second a task hands the sums to the
store, and again until the store has taken them: what is in memory is bounded, for days, keys, models and
upstreams are few. Nothing but that task writes, and nothing cancels it, so no write is ever left half known.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gateway.core.call import TokenUsage
from gateway.telemetry.logging import logger
from gateway.usage.savings import Alternative, Saving, SavingsTotals
from gateway.usage.store import (
    UsageBatch,
    UsageEntry,
    UsageRefused,
    UsageRow,
    UsageSnapshot,
    UsageStore,
    UsageUnavailable,
    flat,
    summed,
)

_Place = tuple[str, str, str, str]
# More than any call uses, and far below what the stores' 64 bits hold: an upstream that lies about its tokens
# must not make a row that no store takes.
_MOST = 10**15


class Ledger:
    """Usage by day, key, model and upstream: `start`, then `add` what each call used, then `stop`."""

    def __init__(
        self, store: UsageStore, interval: float = 1.0, failed: Callable[[], object] = lambda: None
    ) -> None:
        """`interval` is the time between two writes in seconds: what a process that is killed may lose.

        `failed` is told of each write that failed; the next one has the same in it.
        """
        self._store = store
        self._interval = interval
        self._failed = failed
        self._sums: dict[_Place, list[int]] = {}
        self.savings = SavingsTotals()
        """What is noted beside usage, of calls that `add` is told of; another one after each write."""

        self._in_transit: UsageBatch | None = (
            None  # handed to the store, which has not said yet that it took it
        )
        self._name = os.urandom(8).hex()
        self._written = 0
        self._troubled = False
        # Held while a batch may or may not be in the store, so that no reader sees it twice or not at all.
        self._write_lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store and begin to write. UsageRefused where the store must not be used.

        Any other trouble is logged, and usage kept in memory until it is over.
        """
        try:
            await self._store.open()
        except UsageRefused:
            raise
        except UsageUnavailable as error:
            self._log_trouble(error)
        self._writer = asyncio.create_task(self._write_on())

    def add(
        self,
        day: str,
        key: str,
        model: str,
        upstream: str,
        tokens: TokenUsage,
        cost: int | None,
        *,
        last: bool = True,
        estimated: bool = False,
    ) -> None:
        """What an attempt used, and its cost in nano-dollars, None where that is not known.

        `last`: it ended its call, which counts as one request.
        """
        place = (day, key, model, upstream)
        sums = self._sums.get(place)
        if sums is None:
            sums = self._sums[place] = [0] * len(UsageRow._fields[4:])
        given, output, cached, reasoning, written, _ = tokens
        sums[0] += last
        sums[1] += given
        sums[2] += output
        sums[3] += cached
        sums[4] += reasoning
        sums[6] += written
        sums[7] += estimated
        if cost is not None:
            sums[5] += cost
        elif given + output > 0:
            sums[8] += 1

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key, with what is not written yet. UsageTrouble when they cannot be read."""
        async with self._write_lock:
            spent = Counter(await self._store.spent(day))
            for row in self._unwritten().rows:
                if row.day == day:
                    spent[row.key] += row.cost
        return dict(spent)

    async def rows(self, first_day: str, last_day: str) -> list[UsageRow]:
        """The rows of these days, with what is not written yet. UsageTrouble when they cannot be read."""
        async with self._write_lock:
            kept = await self._store.rows(first_day, last_day)
            return summed(UsageRow, [*kept, *_of(self._unwritten().rows, first_day, last_day)])

    async def books(self, first_day: str, last_day: str) -> UsageSnapshot:
        """All of these days, with what is not written yet. UsageTrouble when it cannot be read."""
        async with self._write_lock:
            kept, ours = await self._store.books(first_day, last_day), self._unwritten()
            return UsageSnapshot(
                summed(UsageRow, [*kept.rows, *_of(ours.rows, first_day, last_day)]),
                summed(Saving, [*kept.savings, *_of(ours.savings, first_day, last_day)]),
                summed(Alternative, [*kept.alternatives, *_of(ours.alternatives, first_day, last_day)]),
            )

    async def stop(self) -> None:
        """Try once to write what is left, and close the store. Logs what is lost.

        For a ledger that could not start too.
        """
        self._stopping.set()
        if self._writer is not None:
            await self._writer
        await self._store.close()
        lost = self._unwritten().rows
        if lost:
            requests, cost = sum(row.requests for row in lost), sum(row.cost for row in lost)
            logger.error("usage is lost", extra={"requests": requests, "nano_usd": cost})

    async def _write_on(self) -> None:
        last = False
        while not last:
            try:
                async with asyncio.timeout(self._interval):
                    last = await self._stopping.wait()
            except TimeoutError:
                pass
            async with self._write_lock:
                await self._write()

    async def _write(self) -> None:
        """Hand over what an earlier trouble has left, unchanged, and then the sums there are.

        What calls add meanwhile waits for the next time: under load there is always some, and a writer that
        went on until there is none would never rest.
        """
        if (self._in_transit is None or await self._handed_over()) and self._sums:
            self._written += 1
            self._in_transit = self._batch(f"{self._name}-{self._written}")
            self._sums, self.savings = {}, SavingsTotals()
            await self._handed_over()

    async def _handed_over(self) -> bool:
        """Whether the store has taken what is leaving."""
        assert self._in_transit is not None
        try:
            await self._store.add(self._in_transit)
        except UsageUnavailable as error:
            self._log_trouble(error)
            return False
        self._in_transit = None
        if self._troubled:
            self._troubled = False
            logger.info("usage is written again")
        return True

    def _batch(self, name: str) -> UsageBatch:
        compared = self.savings
        return UsageBatch(
            name,
            tuple(_bounded(UsageRow, ((*place, *sums) for place, sums in self._sums.items()))),
            tuple(_bounded(Saving, map(flat, compared.savings.values()))),
            tuple(_bounded(Alternative, map(flat, compared.alternatives.values()))),
        )

    def _unwritten(self) -> UsageSnapshot:
        batches = [self._batch("")] if self._in_transit is None else [self._in_transit, self._batch("")]
        return UsageSnapshot(
            [one for batch in batches for one in batch.rows],
            [one for batch in batches for one in batch.savings],
            [one for batch in batches for one in batch.alternatives],
        )

    def _log_trouble(self, error: UsageUnavailable) -> None:
        """Once for each trouble, however long it lasts."""
        self._failed()
        if not self._troubled:
            self._troubled = True
            logger.error("usage is not written, and kept in memory until it is", extra={"error": str(error)})


def _bounded(make: Callable[..., UsageEntry], flats: Iterable[tuple[Any, ...]]) -> Iterator[UsageEntry]:
    for values in flats:
        yield make(*values[:4], *[max(0, min(number, _MOST)) for number in values[4:]])


def _of(entries: Iterable[UsageEntry], first_day: str, last_day: str) -> Iterator[UsageEntry]:
    return (one for one in entries if first_day <= one.day <= last_day)
