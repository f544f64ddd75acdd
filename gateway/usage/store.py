"""The words of usage: what one row says, who keeps rows, what may go wrong, and how a report looks."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from gateway.core.units import usd
from gateway.usage.savings import Alternative, Saving

CACHE: Final = "cache"
"""The upstream in whose name requests stand that needed none."""


class UsageRow(NamedTuple):
    """What one key used of one public model at one upstream on one day. `cost` is in nano-dollars.

    `requests` are those that this upstream was the last to be asked for; tokens and cost are of all attempts.
    `estimated` and `unpriced` attempts are those whose usage no upstream counted, and whose price is unknown.
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
"""Four names, the first of them the day, and then numbers, which may be added up."""


class UsageSnapshot(NamedTuple):
    """All that is kept of some days."""

    rows: list[UsageRow]
    savings: list[Saving]
    alternatives: list[Alternative]


class UsageBatch(NamedTuple):
    """What is to be added to what is kept. `id` is unique among the batches of all processes."""

    id: str
    rows: tuple[UsageRow, ...]
    savings: tuple[Saving, ...] = ()
    alternatives: tuple[Alternative, ...] = ()


class UsageUnavailable(Exception):
    """Usage cannot be read or written now; the message says why. Worth another try."""


class UsageRefused(UsageUnavailable):
    """What is there is not ours to write to: another program's, or a newer version's."""


class UsageStore(Protocol):
    """Where usage lasts. Every method raises UsageTrouble, and works again when the trouble is over."""

    async def open(self) -> None:
        """Look whether it can be used, and make it ready. UsageRefused where it never can."""

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key."""

    async def rows(self, first_day: str, last_day: str) -> list[UsageRow]:
        """The rows of these days and all between, in any order."""

    async def books(self, first_day: str, last_day: str) -> UsageSnapshot:
        """All that is kept of them, as it is at one moment."""

    async def add(self, batch: UsageBatch) -> None:
        """Add all of it or nothing. After a trouble the same batch comes again, and counts once."""

    async def close(self) -> None:
        """Let go of everything; raises nothing."""


def flat(one: UsageRow | Saving | Alternative) -> tuple[Any, ...]:
    """Its four names, then its numbers."""
    return one if isinstance(one, UsageRow) else msgspec.structs.astuple(one)


def summed(make: Callable[..., UsageEntry], parts: Iterable[UsageEntry]) -> list[UsageEntry]:
    """One for each place: the sum of those that have the same four names."""
    sums: dict[tuple[str, ...], tuple[int, ...]] = {}
    for part in parts:
        values = flat(part)
        known = sums.get(values[:4])
        sums[values[:4]] = (
            values[4:] if known is None else tuple([a + b for a, b in zip(known, values[4:], strict=True)])
        )
    return [make(*place, *numbers) for place, numbers in sums.items()]


def report(rows: Iterable[UsageRow], key: str | None = None) -> list[dict[str, object]]:
    """What `/admin/usage` shows: newest day first; only one key's rows where `key` is given."""
    chosen = sorted(row for row in rows if key is None or row.key == key)
    chosen.sort(key=lambda row: row.day, reverse=True)
    return [_shown(row) for row in chosen]


def _shown(row: UsageRow) -> dict[str, object]:
    shown: dict[str, object] = row._asdict()
    del shown["cost"]
    return shown | {"cost_usd": usd(row.cost)}
