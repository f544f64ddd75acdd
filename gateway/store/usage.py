"""The words of usage: what one row says, who keeps rows, what may go wrong, and how a report looks."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from gateway.units import usd


class Row(NamedTuple):
    """What one key used of one public model at one upstream on one day. `cost` is in nano-dollars."""

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


class Batch(NamedTuple):
    """Rows to be added to what is kept. `id` is unique among the batches of all processes."""

    id: str
    rows: tuple[Row, ...]


class UsageTrouble(Exception):
    """Usage cannot be read or written now; the message says why. Worth another try."""


class UsageRefused(UsageTrouble):
    """What is there is not ours to write to: another program's, or a newer version's."""


class UsageStore(Protocol):
    """Where usage lasts. Every method raises UsageTrouble, and works again when the trouble is over."""

    async def open(self) -> None:
        """Look whether it can be used, and make it ready. UsageRefused where it never can."""

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key."""

    async def rows(self, first_day: str, last_day: str) -> list[Row]:
        """The rows of these days and all between, in any order."""

    async def add(self, batch: Batch) -> None:
        """Add all of it or nothing. After a trouble the same batch comes again, and counts once."""

    async def close(self) -> None:
        """Let go of everything; raises nothing."""


def report(rows: Iterable[Row], key: str | None = None) -> list[dict[str, object]]:
    """What `/admin/usage` shows: newest day first; only one key's rows where `key` is given."""
    chosen = sorted(row for row in rows if key is None or row.key == key)
    chosen.sort(key=lambda row: row.day, reverse=True)
    return [_shown(row) for row in chosen]


def _shown(row: Row) -> dict[str, object]:
    shown: dict[str, object] = row._asdict()
    del shown["cost"]
    return shown | {"cost_usd": usd(row.cost)}
