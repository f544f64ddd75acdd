"""The ledger: sums survive every failure of the store and are written once."""

import asyncio
import logging

import pytest
from doubles.waiting import eventually
from kit.usage import rows

from gateway.core.call import TokenUsage
from gateway.core.units import usd
from gateway.usage.ledger import Ledger
from gateway.usage.store import Names, UsageBatch, UsagePage, UsageRefused, UsageRow, UsageUnavailable, row_json

DAY = "2026-11-29"
NEXT_DAY = "2026-11-30"
NEVER = 3600.0  # an interval that no test waits for: only `stop` writes


class MemoryStore:
    """A fake store that records its batches and can be made to fail."""

    def __init__(self) -> None:
        self.trouble: UsageUnavailable | None = None
        self.batches: list[UsageBatch] = []
        self.tried = 0
        self.gate: asyncio.Event | None = None
        self.closed = False

    async def open(self) -> None:
        self._check()

    async def spent(self, day: str) -> dict[str, int]:
        self._check()
        rows = [row for row in self.stored() if row.day == day]
        return {row.key: sum(one.cost for one in rows if one.key == row.key) for row in rows}

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        self._check()
        sums: dict[tuple[str, ...], UsageRow] = {}
        for row in self.stored():
            if row.day == day and row[1:4] > after and key in (None, row.key):
                total = sums.get(row[:4])
                numbers = row[4:] if total is None else map(sum, zip(total[4:], row[4:], strict=True))
                sums[row[:4]] = UsageRow(*row[:4], *numbers)
        found = sorted(sums.values())
        return UsagePage(found[:limit], len(found) > limit)

    async def add(self, batch: UsageBatch) -> None:
        self.tried += 1
        if self.gate is not None:
            await self.gate.wait()
        self._check()
        self.batches.append(batch)

    async def close(self) -> None:
        self.closed = True

    def stored(self) -> list[UsageRow]:
        return [row for batch in self.batches for row in batch.rows]

    def _check(self) -> None:
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def spend(ledger: Ledger, cost: int = 1000, day: str = DAY, key: str = "team-a") -> None:
    ledger.add(day, key, "small", "local", TokenUsage(10, 5, 4, 2), cost)


def row(requests: int, cost: int, day: str = DAY, key: str = "team-a") -> UsageRow:
    return UsageRow(day, key, "small", "local", requests, *(n * requests for n in (10, 5, 4, 2)), cost)


async def test_calls_are_summed_by_day_key_model_and_upstream(store: MemoryStore):
    ledger = Ledger(store, NEVER)
    await ledger.start()
    for _ in range(3):
        spend(ledger)
    spend(ledger, 7, key="team-b")
    spend(ledger, 9, NEXT_DAY)
    ledger.add(DAY, "team-a", "large", "paid", TokenUsage(), 0)
    await ledger.stop()
    assert store.closed
    assert [len(batch.rows) for batch in store.batches] == [4]
    assert set(store.stored()) == {
        row(3, 3000),
        row(1, 7, key="team-b"),
        row(1, 9, NEXT_DAY),
        UsageRow(DAY, "team-a", "large", "paid", 1, 0, 0, 0, 0, 0),
    }


async def test_unwritten_usage_is_included(store: MemoryStore):
    store.batches = [UsageBatch("earlier", (row(1, 100), row(1, 5, "2026-11-01")))]
    ledger = Ledger(store, NEVER)
    await ledger.start()
    spend(ledger, 40)
    spend(ledger, 3, key="team-b")
    spend(ledger, 8, NEXT_DAY)
    assert await ledger.spent(DAY) == {"team-a": 140, "team-b": 3}
    assert set(await rows(ledger, DAY, DAY)) == {row(2, 140), row(1, 3, key="team-b")}
    assert set(await rows(ledger, "2026-11-01", NEXT_DAY)) == {
        row(1, 5, "2026-11-01"),
        row(2, 140),
        row(1, 3, key="team-b"),
        row(1, 8, NEXT_DAY),
    }
    await ledger.stop()


async def test_it_writes_in_the_background_and_only_if_there_is_usage(store: MemoryStore):
    ledger = Ledger(store, 0.001)
    await ledger.start()
    spend(ledger)
    await eventually(lambda: store.stored() == [row(1, 1000)], "the first write")
    spend(ledger)
    await eventually(lambda: store.stored() == [row(1, 1000)] * 2, "the second write")
    await ledger.stop()
    assert store.tried == 2


async def test_under_load_it_writes_once_per_interval(store: MemoryStore):
    ledger = Ledger(store, interval=NEVER)
    await ledger.start()
    writes = store.add

    async def with_traffic_meanwhile(batch: UsageBatch) -> None:
        if store.tried < 5:
            spend(ledger)
        await writes(batch)

    store.add = with_traffic_meanwhile  # type: ignore[method-assign]
    spend(ledger)
    await ledger.stop()
    assert store.tried == 1
    assert store.stored() == [row(1, 1000)]


async def test_a_failed_write_is_retried_unchanged(store: MemoryStore, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "sluice")
    ledger = Ledger(store, 0.001)
    await ledger.start()
    store.trouble = UsageUnavailable("disk full")
    spend(ledger)
    await eventually(lambda: store.tried >= 3, "three tries")
    spend(ledger, 1)
    store.trouble = None
    await eventually(lambda: sum(one.cost for one in store.stored()) == 1001, "all is written")
    await ledger.stop()
    # The first batch is sent again unchanged, so that a store that accepted it recognises it.
    assert store.stored() == [row(1, 1000), row(1, 1)]
    assert len({batch.id for batch in store.batches}) == 2
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["usage cannot be written; held in memory until it can", "usage is written again"]


async def test_a_failing_store_does_not_prevent_the_start(store: MemoryStore, caplog: pytest.LogCaptureFixture):
    store.trouble = UsageUnavailable("read-only")
    ledger = Ledger(store, 0.001)
    await ledger.start()
    spend(ledger)
    with pytest.raises(UsageUnavailable, match="read-only"):
        await ledger.spent(DAY)
    store.trouble = None
    await eventually(lambda: store.stored() == [row(1, 1000)], "it is written in the end")
    await ledger.stop()
    # An attempt to write may have failed as well; then the log says when it succeeds again.
    assert [record.levelname for record in caplog.records] in (["ERROR"], ["ERROR", "INFO"])


async def test_a_store_that_must_not_be_used_fails_the_start(store: MemoryStore):
    store.trouble = UsageRefused("a newer version's")
    ledger = Ledger(store, NEVER)
    with pytest.raises(UsageRefused, match="newer"):
        await ledger.start()
    await ledger.stop()
    assert store.closed


async def test_lost_usage_is_logged_at_the_end(store: MemoryStore, caplog: pytest.LogCaptureFixture):
    ledger = Ledger(store, NEVER)
    await ledger.start()
    spend(ledger)
    spend(ledger)
    store.trouble = UsageUnavailable("gone")
    await ledger.stop()
    lost = vars(caplog.records[-1])
    assert (lost["message"], lost["requests"], lost["nano_usd"]) == ("usage is lost", 2, 2000)
    assert store.tried == 1


async def test_a_reader_sees_every_batch_exactly_once(store: MemoryStore):
    store.gate = asyncio.Event()
    ledger = Ledger(store, 0.001)
    await ledger.start()
    spend(ledger)
    await eventually(lambda: store.tried == 1, "a write is under way")
    spend(ledger, 1)
    readers = [asyncio.create_task(rows(ledger, DAY, DAY)), asyncio.create_task(rows(ledger, DAY, DAY))]
    readers[0].cancel()  # a cancelled reader loses nothing
    store.gate.set()
    assert await readers[1] == [row(2, 1001)]
    await ledger.stop()
    assert sum(one.cost for one in store.stored()) == 1001


async def test_counts_that_no_store_could_hold_are_bounded(store: MemoryStore):
    ledger = Ledger(store, NEVER)
    await ledger.start()
    ledger.add(DAY, "team-a", "small", "local", TokenUsage(10**30, -5), 1)
    await ledger.stop()
    assert store.stored() == [UsageRow(DAY, "team-a", "small", "local", 1, 10**15, 0, 0, 0, 1)]


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (12_000, "0.000012"),
        (1_500_000_000, "1.5"),
        (10_000_000_000, "10"),
        (123_456_789_012_345_678, "123456789.012345678"),
    ],
)
def test_money_is_shown_exactly(nanos: int, text: str):
    assert usd(nanos) == text


def test_a_row_is_shown_with_the_names_that_are_asked_for():
    shown = row_json(row(2, 1_000_000, NEXT_DAY, "b"))
    assert shown == {
        "day": NEXT_DAY,
        "key": "b",
        "model": "small",
        "upstream": "local",
        "requests": 2,
        "input": 20,
        "output": 10,
        "cached_input": 8,
        "reasoning": 4,
        "cost_usd": "0.001",
        "cache_write": 0,
        "estimated": 0,
        "unpriced": 0,
    }
    by_key = row_json(row(2, 1_000_000, NEXT_DAY, "b"), ["key"])
    assert by_key == {name: value for name, value in shown.items() if name not in ("day", "model", "upstream")}
