"""What calls have used since it was last written down, and the task that writes it down.

A settled call costs the hot path one update of a dict. About once a second a task hands the sums to the
store, and again until the store has taken them: what is in memory is bounded, for days, keys, models and
upstreams are few. Nothing but that task writes, and nothing cancels it, so no write is ever left half known.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

from gateway.call import Tokens
from gateway.log import logger
from gateway.store.usage import Batch, Row, UsageRefused, UsageStore, UsageTrouble

_Place = tuple[str, str, str, str]
# More than any call uses, and far below what the stores' 64 bits hold: an upstream that lies about its tokens
# must not make a row that no store takes.
_MOST = 10**15


class Ledger:
    """Usage by day, key, model and upstream: `start`, then `add` what each call used, then `stop`."""

    def __init__(self, store: UsageStore, interval: float = 1.0) -> None:
        """`interval` is the time between two writes in seconds: what a process that is killed may lose."""
        self._store = store
        self._interval = interval
        self._sums: dict[_Place, list[int]] = {}
        self._leaving: Batch | None = None  # handed to the store, which has not said yet that it took it
        self._name = os.urandom(8).hex()
        self._written = 0
        self._troubled = False
        # Held while a batch may or may not be in the store, so that no reader sees it twice or not at all.
        self._settled = asyncio.Lock()
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
        except UsageTrouble as error:
            self._log_trouble(error)
        self._writer = asyncio.create_task(self._write_on())

    def add(self, day: str, key: str, model: str, upstream: str, tokens: Tokens, cost: int) -> None:
        """One call is over: what it used, and its cost in nano-dollars."""
        place = (day, key, model, upstream)
        sums = self._sums.get(place)
        if sums is None:
            sums = self._sums[place] = [0, 0, 0, 0, 0, 0]
        sums[0] += 1
        sums[1] += tokens.input
        sums[2] += tokens.output
        sums[3] += tokens.cached_input
        sums[4] += tokens.reasoning
        sums[5] += cost

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key, with what is not written yet. UsageTrouble when they cannot be read."""
        async with self._settled:
            spent = Counter(await self._store.spent(day))
            for row in self._unwritten():
                if row.day == day:
                    spent[row.key] += row.cost
        return dict(spent)

    async def rows(self, first_day: str, last_day: str) -> list[Row]:
        """The rows of these days, with what is not written yet. UsageTrouble when they cannot be read."""
        async with self._settled:
            kept = await self._store.rows(first_day, last_day)
            found = {row[:4]: row for row in kept}
            for row in self._unwritten():
                if first_day <= row.day <= last_day:
                    known = found.get(row[:4])
                    found[row[:4]] = row if known is None else _sum(known, row)
        return list(found.values())

    async def stop(self) -> None:
        """Try once to write what is left, and close the store. Logs what is lost.

        For a ledger that could not start too.
        """
        self._stopping.set()
        if self._writer is not None:
            await self._writer
        await self._store.close()
        lost = list(self._unwritten())
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
            async with self._settled:
                await self._write()

    async def _write(self) -> None:
        """Hand over what an earlier trouble has left, unchanged, and then the sums."""
        while self._leaving or self._sums:
            if self._leaving is None:
                self._written += 1
                self._leaving = Batch(f"{self._name}-{self._written}", tuple(_rows(self._sums)))
                self._sums = {}
            try:
                await self._store.add(self._leaving)
            except UsageTrouble as error:
                self._log_trouble(error)
                return
            self._leaving = None
            if self._troubled:
                self._troubled = False
                logger.info("usage is written again")

    def _unwritten(self) -> Iterator[Row]:
        yield from self._leaving.rows if self._leaving is not None else ()
        yield from _rows(self._sums)

    def _log_trouble(self, error: UsageTrouble) -> None:
        """Once for each trouble, however long it lasts."""
        if not self._troubled:
            self._troubled = True
            logger.error("usage is not written, and kept in memory until it is", extra={"error": str(error)})


def _rows(sums: dict[_Place, list[int]]) -> Iterator[Row]:
    for place, numbers in sums.items():
        yield Row(*place, *[max(0, min(number, _MOST)) for number in numbers])


def _sum(one: Row, other: Row) -> Row:
    return Row(*one[:4], *[a + b for a, b in zip(one[4:], other[4:], strict=True)])
