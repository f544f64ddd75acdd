"""The usage store's interface, its rows and errors."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

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


NAMES: Final = ("day", "key", "model", "upstream")
"""The names of a row."""

Names = tuple[str, str, str]
"""Key, model and upstream of a row; sorted by them."""

FIRST: Final[Names] = ("", "", "")
"""Before the names of all rows."""

UsageEntry = TypeVar("UsageEntry", UsageRow, Saving, Alternative)
"""Four names, the first of them the day, then numbers that can be summed."""


class UsageSnapshot(NamedTuple):
    """All stored entries of some days. `first_call` is when the first call of any day ended, in Unix seconds."""

    rows: list[UsageRow]
    savings: list[Saving]
    alternatives: list[Alternative]
    first_call: int | None = None


class UsageSums(NamedTuple):
    """Sums by one name; the entries' other names are empty."""

    rows: list[UsageRow]
    savings: list[Saving]


class AlternativeSum(Alternative):
    """An alternative over several days, from `day` to `last_day`."""

    last_day: str = ""


class UsageSummary(NamedTuple):
    """Sums of some days by model, by key and by alternative. `first_call` as in a snapshot."""

    models: UsageSums
    keys: UsageSums
    alternatives: list[AlternativeSum]
    first_call: int | None = None


class UsagePage(NamedTuple):
    """Rows of one day, sorted by their names; `more` if there are further ones."""

    rows: list[UsageRow]
    more: bool


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

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        """Return about `limit` rows of a day, those after these names; of one key if `key` is given."""

    async def totals(
        self, first_day: str, last_day: str, by: Collection[str], key: str | None = None
    ) -> list[UsageRow]:
        """Return the sums by the names in `by`; other names are empty. Of one key if `key` is given."""

    async def summary(self, first_day: str, last_day: str) -> UsageSummary:
        """Return the sums of these days, consistent with each other."""

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


def grouped(rows: Iterable[UsageRow], by: Collection[str]) -> list[UsageRow]:
    """Sum the rows by the names in `by`; other names become empty."""
    kept = [name in by for name in NAMES]
    parts = []
    for row in rows:
        day, key, model, upstream = (name if keep else "" for name, keep in zip(row[:4], kept, strict=True))
        parts.append(row._replace(day=day, key=key, model=model, upstream=upstream))
    return summed(UsageRow, parts)


def summary(snapshot: UsageSnapshot) -> UsageSummary:
    """Sum a snapshot."""
    sums = {
        name: UsageSums(
            grouped(snapshot.rows, [name]),
            summed(
                Saving,
                [replace(saving, day="", upstream="", **{other: ""}) for saving in snapshot.savings],
            ),
        )
        for name, other in (("model", "key"), ("key", "model"))
    }
    alternatives = [
        AlternativeSum(one.day, one.model, one.role, one.name, one.requests, one.cost, one.day)
        for one in snapshot.alternatives
    ]
    return UsageSummary(sums["model"], sums["key"], _over_days(alternatives), snapshot.first_call)


def joined(one: UsageSummary, other: UsageSummary) -> UsageSummary:
    """Add two summaries."""
    models, keys = (
        UsageSums(summed(UsageRow, [*a.rows, *b.rows]), summed(Saving, [*a.savings, *b.savings]))
        for a, b in ((one.models, other.models), (one.keys, other.keys))
    )
    alternatives = _over_days([*one.alternatives, *other.alternatives])
    return UsageSummary(models, keys, alternatives, earliest(one.first_call, other.first_call))


def _over_days(alternatives: Iterable[AlternativeSum]) -> list[AlternativeSum]:
    sums: dict[tuple[str, str, str], AlternativeSum] = {}
    for one in alternatives:
        names = one.model, one.role, one.name
        total = sums.get(names)
        if total is None:
            sums[names] = one
            continue
        sums[names] = AlternativeSum(
            min(one.day, total.day),
            *names,
            one.requests + total.requests,
            one.cost + total.cost,
            max(one.last_day, total.last_day),
        )
    return list(sums.values())


def row_json(row: UsageRow, names: Collection[str] = NAMES) -> dict[str, object]:
    """Return a row as `/admin/usage` shows it, with these names."""
    members: dict[str, object] = row._asdict()
    for hidden in ("cost", *(name for name in NAMES if name not in names)):
        del members[hidden]
    return members | {"cost_usd": usd(row.cost)}
