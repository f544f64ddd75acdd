"""The usage ledger: sums in memory, and the task that writes them to a store.

A settled call costs the hot path one dict update. About once a second a task hands the sums to the store, and
retries until the store accepts them. Memory stays bounded, because days, keys, models and upstreams are few.
Only that task writes, and nothing cancels it, so the outcome of every write is known.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from gateway.core.call import TokenUsage
from gateway.core.clock import Clock, unix
from gateway.telemetry.logging import logger
from gateway.usage.savings import Alternative, Saving, SavingsTotals
from gateway.usage.store import (
    Names,
    UsageBatch,
    UsageEntry,
    UsagePage,
    UsageRefused,
    UsageRow,
    UsageSnapshot,
    UsageStore,
    UsageSummary,
    UsageUnavailable,
    earliest,
    flat,
    grouped,
    joined,
    summary,
    summed,
)

_RowKey = tuple[str, str, str, str]
# Far above any real sum and far below 64 bits: an upstream that reports absurd counts must not create a row
# that no store accepts.
_MAX_SUM = 10**15


class Ledger:
    """Usage by day, key, model and upstream: `start`, then `add` what each call used, then `stop`."""

    def __init__(
        self,
        store: UsageStore,
        interval: float = 1.0,
        on_failure: Callable[[], object] = lambda: None,
        unix: Clock = unix,
    ) -> None:
        """`interval` is the time between two writes in seconds: a killed process loses at most that much.

        `on_failure` is called for each on_failure write; the next write retries the same batch.
        """
        self._store = store
        self._interval = interval
        self._on_failure = on_failure
        self._unix = unix
        self._first_call: int | None = None  # since the last write
        self._sums: dict[_RowKey, list[int]] = {}
        self.savings = SavingsTotals()
        """Savings of the same calls; replaced by a new object after each write."""

        self._in_transit: UsageBatch | None = None  # handed to the store, not acknowledged yet
        self._name = os.urandom(8).hex()
        self._written = 0
        self._failing = False
        # Held while a batch may or may not be in the store, so that no reader counts it twice or misses it.
        self._write_lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store and start writing. Raises UsageRefused if the store must not be used.

        Any other error is logged, and usage stays in memory until the store works.
        """
        try:
            await self._store.open()
        except UsageRefused:
            raise
        except UsageUnavailable as error:
            self._log_failure(error)
        self._writer = asyncio.create_task(self._write_loop())

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
        """Add one attempt's usage, and its cost in nano-dollars, None if unknown.

        `last`: the attempt ended its call, which counts as one request.
        """
        row_key = (day, key, model, upstream)
        sums = self._sums.get(row_key)
        if sums is None:
            sums = self._sums[row_key] = [0] * len(UsageRow._fields[4:])
            if self._first_call is None:
                self._first_call = int(self._unix())
        total_input, output, cached, reasoning, written, _ = tokens
        sums[0] += last
        sums[1] += total_input
        sums[2] += output
        sums[3] += cached
        sums[4] += reasoning
        sums[6] += written
        sums[7] += estimated
        if cost is not None:
            sums[5] += cost
        elif total_input + output > 0:
            sums[8] += 1

    async def spent(self, day: str) -> dict[str, int]:
        """Return nano-dollars by key, unwritten ones included. Raises UsageUnavailable."""
        async with self._write_lock:
            spent = Counter(await self._store.spent(day))
            for row in self._unwritten().rows:
                if row.day == day:
                    spent[row.key] += row.cost
        return dict(spent)

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        """Return a page of a day's rows as a store does, unwritten ones included. Raises UsageUnavailable."""
        async with self._write_lock:
            stored = await self._store.page(day, after, limit, key)
            rows = [row for row in self._unwritten().rows if row.day == day and key in (None, row.key)]
        until = stored.rows[-1][1:4] if stored.more else None
        rows = [row for row in rows if after < row[1:4] and (until is None or row[1:4] <= until)]
        return UsagePage(sorted(summed(UsageRow, [*stored.rows, *rows])), stored.more)

    async def totals(
        self, first_day: str, last_day: str, by: Collection[str], key: str | None = None
    ) -> list[UsageRow]:
        """Return sums as a store does, unwritten ones included. Raises UsageUnavailable."""
        async with self._write_lock:
            stored = await self._store.totals(first_day, last_day, by, key)
            rows = _between(self._unwritten().rows, first_day, last_day)
            unwritten = [row for row in rows if key in (None, row.key)]
        return summed(UsageRow, [*stored, *grouped(unwritten, by)])

    async def summary(self, first_day: str, last_day: str) -> UsageSummary:
        """Return the sums of these days, unwritten ones included. Raises UsageUnavailable."""
        async with self._write_lock:
            stored, (rows, savings, alternatives, first_call) = (
                await self._store.summary(first_day, last_day),
                self._unwritten(),
            )
        days = first_day, last_day
        unwritten = UsageSnapshot(
            list(_between(rows, *days)), list(_between(savings, *days)), list(_between(alternatives, *days)), first_call
        )
        return joined(stored, summary(unwritten))

    async def stop(self) -> None:
        """Write the rest with one try, close the store, and log what is lost.

        Works for a ledger that on_failure to start, too.
        """
        self._stopping.set()
        if self._writer is not None:
            await self._writer
        await self._store.close()
        lost = self._unwritten().rows
        if lost:
            requests, cost = sum(row.requests for row in lost), sum(row.cost for row in lost)
            logger.error("usage is lost", extra={"requests": requests, "nano_usd": cost})

    async def _write_loop(self) -> None:
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
        """Retry the batch of an earlier failure, unchanged, and then write the current sums.

        Sums added meanwhile wait for the next interval: under load, writing until none are left never ends.
        """
        if (self._in_transit is None or await self._hand_over()) and self._sums:
            self._written += 1
            self._in_transit = self._batch(f"{self._name}-{self._written}")
            self._sums, self.savings, self._first_call = {}, SavingsTotals(), None
            await self._hand_over()

    async def _hand_over(self) -> bool:
        """Send the batch in transit to the store; return whether it accepted it."""
        assert self._in_transit is not None
        try:
            await self._store.add(self._in_transit)
        except UsageUnavailable as error:
            self._log_failure(error)
            return False
        self._in_transit = None
        if self._failing:
            self._failing = False
            logger.info("usage is written again")
        return True

    def _batch(self, name: str) -> UsageBatch:
        return UsageBatch(
            name,
            tuple(_bounded(UsageRow, ((*row_key, *sums) for row_key, sums in self._sums.items()))),
            tuple(_bounded(Saving, map(flat, self.savings.savings.values()))),
            tuple(_bounded(Alternative, map(flat, self.savings.alternatives.values()))),
            self._first_call,
        )

    def _unwritten(self) -> UsageSnapshot:
        batches = [self._batch("")] if self._in_transit is None else [self._in_transit, self._batch("")]
        return UsageSnapshot(
            [row for batch in batches for row in batch.rows],
            [saving for batch in batches for saving in batch.savings],
            [alternative for batch in batches for alternative in batch.alternatives],
            earliest(*(batch.first_call for batch in batches)),
        )

    def _log_failure(self, error: UsageUnavailable) -> None:
        """Count every failure, and log the first of a series."""
        self._on_failure()
        if not self._failing:
            self._failing = True
            logger.error("usage cannot be written; held in memory until it can", extra={"error": str(error)})


def _bounded(make: Callable[..., UsageEntry], flats: Iterable[tuple[Any, ...]]) -> Iterator[UsageEntry]:
    for values in flats:
        yield make(*values[:4], *[max(0, min(number, _MAX_SUM)) for number in values[4:]])


def _between(entries: Iterable[UsageEntry], first_day: str, last_day: str) -> Iterator[UsageEntry]:
    return (entry for entry in entries if first_day <= entry.day <= last_day)
