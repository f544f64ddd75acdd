"""The usage store's interface, its rows and errors, and the report of `/admin/usage`."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from gateway.core.units import usd
from gateway.usage.savings import Alternative, Saving

CACHE: Final = "cache"
"""Stands in for the upstream of requests that needed none."""


class UsageRow(NamedTuple):
    """Usage of one key, public model, upstream and day. `cost` is in nano-dollars.

    `requests` counts requests whose last attempt went to this upstream; tokens and cost cover all attempts.
    `estimated` counts attempts whose usage no upstream reported, `unpriced` those of unknown price.
    """

    day: str
    key: str
    model: str
    upstream: str
    requests: int
    input: int
    output: int
    cached_input: int
    reasoning: int
    cost: int
    cache_write: int = 0
    estimated: int = 0
    unpriced: int = 0


UsageEntry = TypeVar("UsageEntry", UsageRow, Saving, Alternative)
"""Four names, the first of them the day, then numbers that can be summed."""


class UsageSnapshot(NamedTuple):
    """All stored entries of some days. `first_call` is when the first call of any day ended, in Unix seconds."""

    rows: list[UsageRow]
    savings: list[Saving]
    alternatives: list[Alternative]
    first_call: int | None = None


class UsageBatch(NamedTuple):
    """Entries to add to a store. `id` is unique among the batches of all processes.

    `first_call` is when its first call ended, in Unix seconds.
    """

    id: str
    rows: tuple[UsageRow, ...]
    savings: tuple[Saving, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    first_call: int | None = None


class UsageUnavailable(Exception):
    """Usage cannot be read or written now; the message says why. A retry may succeed."""


class UsageRefused(UsageUnavailable):
    """The file belongs to another program or a newer version."""


class UsageStore(Protocol):
    """Persists usage. Every method may raise UsageUnavailable, and recovers by itself."""

    async def open(self) -> None:
        """Prepare the store. Raises UsageRefused if it can never be used."""

    async def spent(self, day: str) -> dict[str, int]:
        """Return nano-dollars by key."""

    async def rows(self, first_day: str, last_day: str) -> list[UsageRow]:
        """Return the rows of these days and all between, in any order."""

    async def snapshot(self, first_day: str, last_day: str) -> UsageSnapshot:
        """Return all entries of these days, consistent with each other."""

    async def add(self, batch: UsageBatch) -> None:
        """Add all of the batch or nothing. After an error the same batch is sent again, and counts once."""

    async def close(self) -> None:
        """Release all resources; raises nothing."""


def earliest(*moments: int | None) -> int | None:
    """Return the smallest of the moments that are known."""
    return min((moment for moment in moments if moment is not None), default=None)


def flat(entry: UsageRow | Saving | Alternative) -> tuple[Any, ...]:
    """Return the entry's four names, then its numbers."""
    return entry if isinstance(entry, UsageRow) else msgspec.structs.astuple(entry)


def summed(make: Callable[..., UsageEntry], parts: Iterable[UsageEntry]) -> list[UsageEntry]:
    """Sum the entries that share the same four names."""
    sums: dict[tuple[str, ...], tuple[int, ...]] = {}
    for part in parts:
        values = flat(part)
        names, numbers = values[:4], values[4:]
        total = sums.get(names)
        sums[names] = numbers if total is None else tuple([a + b for a, b in zip(total, numbers, strict=True)])
    return [make(*names, *numbers) for names, numbers in sums.items()]


def report(rows: Iterable[UsageRow], key: str | None = None) -> list[dict[str, object]]:
    """Return the rows as `/admin/usage` shows them, newest day first; of one key if `key` is given."""
    selected = sorted(row for row in rows if key is None or row.key == key)
    selected.sort(key=lambda row: row.day, reverse=True)
    return [_row_json(row) for row in selected]


def _row_json(row: UsageRow) -> dict[str, object]:
    members: dict[str, object] = row._asdict()
    del members["cost"]
    return members | {"cost_usd": usd(row.cost)}
