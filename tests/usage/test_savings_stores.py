"""Savings in the ledger, in files of every format and in Redis, written by several processes."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.redis_server import RedisServer
from doubles.waiting import eventually
from kit.usage import rows

from gateway.core.call import TokenUsage
from gateway.core.units import Secret
from gateway.usage.ledger import Ledger
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.savings import Alternative, Saving
from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import (
    UsageBatch,
    UsageRow,
    UsageSnapshot,
    UsageStore,
    UsageSummary,
    UsageUnavailable,
    grouped,
    summary,
    summed,
)

ROOT = Path(__file__).resolve().parents[2]
DAY, NEXT_DAY = "2026-11-29", "2026-11-30"
ROW = UsageRow(DAY, "team-a", "small", "local", 1, 10, 5, 4, 2, 1000)
SAVING = Saving(DAY, "team-a", "small", "local", *range(1, 22))
ALTERNATIVE = Alternative(DAY, "small", "alone", "local/up-small", 1, 2000)
BEGAN = 1_795_950_000
"""Unix seconds on that day; it begins, in UTC, at BEGINS."""
BEGINS = 1_795_910_400
SNAPSHOT = UsageSnapshot([ROW], [SAVING], [ALTERNATIVE], BEGAN)

WRITER = """
import asyncio, sys
from gateway.usage.savings import Alternative, Saving
from gateway.usage.store import UsageBatch, UsageRow
from gateway.usage.sqlite_store import SqliteUsageStore

DAY = "2026-11-29"
BATCH = UsageBatch(
    "", (UsageRow(DAY, "team-a", "small", "local", 1, 10, 5, 4, 2, 1000),),
    (Saving(DAY, "team-a", "small", "local", *range(1, 22)),),
    (Alternative(DAY, "small", "alone", "local/up-small", 1, 2000),), 1_795_950_000,
)

async def main(path, times):
    store = SqliteUsageStore(path, 30)
    for _ in range(times):
        await store.add(BATCH)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

FORMATS = {
    1: """
        CREATE TABLE usage (
            day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
            requests INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
            cached_input INTEGER NOT NULL, reasoning INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
            PRIMARY KEY (day, key, model, upstream)
        ) WITHOUT ROWID;
    """,
    2: """
        ALTER TABLE usage ADD COLUMN cache_write INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE usage ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE usage ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
    """,
    3: """
        CREATE TABLE savings (
            day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
            compared INTEGER NOT NULL, uncompared INTEGER NOT NULL, failed INTEGER NOT NULL,
            elsewhere INTEGER NOT NULL, baseline INTEGER NOT NULL, cheapest INTEGER NOT NULL,
            plain INTEGER NOT NULL, paid INTEGER NOT NULL, waste INTEGER NOT NULL, hits INTEGER NOT NULL,
            hit_input INTEGER NOT NULL, hit_output INTEGER NOT NULL, hit_baseline INTEGER NOT NULL,
            shared INTEGER NOT NULL, shared_input INTEGER NOT NULL, shared_output INTEGER NOT NULL,
            shared_baseline INTEGER NOT NULL, merged INTEGER NOT NULL, spared INTEGER NOT NULL,
            unpriced_input INTEGER NOT NULL, unpriced_output INTEGER NOT NULL,
            PRIMARY KEY (day, key, model, upstream)
        ) WITHOUT ROWID;
        CREATE TABLE alternatives (
            day TEXT NOT NULL, model TEXT NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
            requests INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
            PRIMARY KEY (day, model, role, name)
        ) WITHOUT ROWID;
    """,
}
"""The schema of each earlier format; a copy, so that a change of the original fails."""


def times(snapshot: UsageSnapshot, count: int) -> UsageSnapshot:
    return UsageSnapshot(
        summed(UsageRow, snapshot.rows * count),
        summed(Saving, snapshot.savings * count),
        summed(Alternative, snapshot.alternatives * count),
        snapshot.first_call,
    )


def batch(name: str, snapshot: UsageSnapshot = SNAPSHOT) -> UsageBatch:
    entries = tuple(snapshot.rows), tuple(snapshot.savings), tuple(snapshot.alternatives)
    return UsageBatch(name, *entries, snapshot.first_call)


async def check_adding(store: UsageStore) -> None:
    """All three kinds add up, and only the requested days are returned."""
    other = [one._replace(day=NEXT_DAY) for one in SNAPSHOT.rows]
    await store.add(batch("1"))
    await store.add(batch("2"))
    await store.add(UsageBatch("3", tuple(other), (Saving(NEXT_DAY, "k", "m", "u", paid=7),), (), BEGAN + 80_000))
    assert await store.summary(DAY, DAY) == summary(times(SNAPSHOT, 2))
    both = await store.summary(DAY, NEXT_DAY)
    assert sorted(one.paid for one in both.keys.savings) == [7, 2 * SAVING.paid]
    assert [(one.model, one.requests) for one in both.models.rows] == [("small", 3)]
    assert [(one.day, one.last_day, one.requests) for one in both.alternatives] == [(DAY, DAY, 2)]
    assert await store.summary("2026-11-01", "2026-11-28") == summary(UsageSnapshot([], [], [], BEGAN))
    for by in (["day"], ["key"], ["model"], ["upstream"], ["key", "model"], ["day", "upstream"]):
        found = await store.totals(DAY, NEXT_DAY, by)
        assert sorted(found) == sorted(grouped([*times(SNAPSHOT, 2).rows, *other], by)), by
        assert sorted(await store.totals(DAY, NEXT_DAY, by, "team-a")) == sorted(found)
        assert await store.totals(DAY, NEXT_DAY, by, "nobody") == []
    assert await rows(store, DAY, DAY) == times(SNAPSHOT, 2).rows


async def test_a_file_adds_up(tmp_path: Path):
    store = SqliteUsageStore(str(tmp_path / "usage.db"))
    await check_adding(store)
    await store.close()


async def test_redis_adds_up(redis_server: RedisServer):
    store = RedisUsageStore(Secret(redis_server.url), "sluice", 5.0)
    await check_adding(store)
    await store.close()


async def test_redis_counts_a_batch_once(redis_server: RedisServer):
    store = RedisUsageStore(Secret(redis_server.url), "sluice", 5.0)
    for _ in range(2):
        await store.add(batch("same"))
    assert await store.summary(DAY, DAY) == summary(SNAPSHOT)
    await store.close()


async def test_entries_of_an_earlier_version_in_redis_are_read_and_added_to(redis_server: RedisServer):
    tag = "sluice:{usage}"
    redis_server.command("SADD", f"{tag}:days", DAY)
    for name, number in (("requests", 1), ("input", 10), ("cost", 9)):
        field = f'["team-a","small","local","{name}"]'
        redis_server.command("HSET", f"{tag}:day:{DAY}", field, str(number))
    store = RedisUsageStore(Secret(redis_server.url), "sluice", 5.0)
    assert await store.summary(DAY, DAY) == summary(
        UsageSnapshot([UsageRow(DAY, "team-a", "small", "local", 1, 10, 0, 0, 0, 9)], [], [], BEGINS)
    )
    await store.add(batch("1"))
    found = await store.summary(DAY, DAY)
    assert found.first_call == BEGINS
    [row] = found.keys.rows
    assert (row.requests, row.cost, found.keys.savings[0].paid) == (2, 1009, SAVING.paid)
    await store.close()


@pytest.mark.parametrize("version", FORMATS)
async def test_a_file_of_an_earlier_format_is_migrated(tmp_path: Path, version: int):
    path = tmp_path / "usage.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as older:
        for made in range(1, version + 1):
            older.executescript(FORMATS[made])
        older.execute("PRAGMA application_id = 0x534C5543")
        older.execute(f"PRAGMA user_version = {version}")
        names = "day, key, model, upstream, requests, input, output, cached_input, reasoning, nano_usd"
        older.execute(f"INSERT INTO usage ({names}) VALUES (?, 'team-a', 'small', 'local', 1, 2, 3, 4, 5, 6)", [DAY])
    store = SqliteUsageStore(str(path))
    await store.open()
    before = UsageRow(DAY, "team-a", "small", "local", 1, 2, 3, 4, 5, 6)
    assert await store.summary(DAY, DAY) == summary(UsageSnapshot([before], [], [], BEGINS))
    await store.add(batch("1"))
    together = SNAPSHOT._replace(rows=summed(UsageRow, [before, ROW]), first_call=BEGINS)
    assert await store.summary(DAY, DAY) == summary(together)
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_the_earliest_first_call_of_all_batches_is_kept(tmp_path: Path, redis_server: RedisServer, kind: str):
    """A process that could not write for a while may be the first one all the same."""
    sqlite = SqliteUsageStore(str(tmp_path / "usage.db"))
    store = sqlite if kind == "sqlite" else RedisUsageStore(Secret(redis_server.url), "sluice", 5.0)
    assert (await store.summary(DAY, DAY)).first_call is None
    for number, moment in enumerate((BEGAN, BEGAN - 60, BEGAN + 60)):
        await store.add(batch(str(number), SNAPSHOT._replace(first_call=moment)))
    assert (await store.summary(NEXT_DAY, NEXT_DAY)).first_call == BEGAN - 60
    await store.close()


async def test_the_ledger_notes_when_the_first_call_ended(tmp_path: Path):
    store, moments = FailingStore(tmp_path / "usage.db"), iter([BEGAN, BEGAN + 5])
    ledger = Ledger(store, 3600.0, unix=lambda: float(next(moments)))
    await ledger.start()
    assert (await ledger.summary(DAY, DAY)).first_call is None
    spend(ledger, 40)
    spend(ledger, 2)
    assert (await ledger.summary(DAY, DAY)).first_call == BEGAN
    await ledger.stop()
    again = SqliteUsageStore(str(tmp_path / "usage.db"))
    assert (await again.summary(DAY, DAY)).first_call == BEGAN
    await again.close()


async def test_two_processes_lose_nothing(tmp_path: Path):
    path = str(tmp_path / "usage.db")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, "50"], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(2)
    ]
    for writer in writers:
        said = await asyncio.to_thread(writer.communicate, timeout=60)
        assert (writer.returncode, said[1]) == (0, b"")
    store = SqliteUsageStore(path)
    assert await store.summary(DAY, DAY) == summary(times(SNAPSHOT, 100))
    await store.close()


class FailingStore:
    """A store that can be switched to fail."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteUsageStore(str(path))
        self.open, self.spent, self.page = self.store.open, self.store.spent, self.store.page
        self.totals, self.summary, self.close = self.store.totals, self.store.summary, self.store.close
        self.trouble = False

    async def add(self, batch: UsageBatch) -> None:
        if self.trouble:
            raise UsageUnavailable("disk full")
        await self.store.add(batch)


def spend(ledger: Ledger, paid: int) -> None:
    ledger.add(DAY, "team-a", "small", "local", TokenUsage(10, 5), paid)
    ledger.savings.saving(DAY, "team-a", "small", "local").paid += paid
    alone = ledger.savings.alternative(DAY, "small", "alone", "local/up-small")
    alone.requests, alone.cost = alone.requests + 1, alone.cost + paid


def sums(found: UsageSummary) -> tuple[int, int, int]:
    [row], [saving] = found.keys
    [alternative] = found.alternatives
    return row.cost, saving.paid, alternative.cost


async def test_the_ledger_includes_unwritten_savings(tmp_path: Path):
    store = FailingStore(tmp_path / "usage.db")
    await store.add(UsageBatch("earlier", (ROW,), (Saving(*SAVING_PLACE, paid=1000),), (ALTERNATIVE,)))
    ledger = Ledger(store, 0.001)
    store.trouble = True
    await ledger.start()
    spend(ledger, 40)
    assert sums(await ledger.summary(DAY, DAY)) == (1040, 1040, 2040)
    spend(ledger, 2)
    assert sums(await ledger.summary(DAY, DAY)) == (1042, 1042, 2042)
    assert (await ledger.summary(NEXT_DAY, NEXT_DAY))[:3] == (([], []), ([], []), [])
    store.trouble = False
    await ledger.stop()
    again = SqliteUsageStore(str(tmp_path / "usage.db"))
    assert sums(await again.summary(DAY, DAY)) == (1042, 1042, 2042)
    await again.close()


SAVING_PLACE = (DAY, "team-a", "small", "local")


async def test_each_write_has_only_new_savings(tmp_path: Path):
    store = SqliteUsageStore(str(tmp_path / "usage.db"))
    ledger = Ledger(store, 0.001)
    await ledger.start()
    for paid in (40, 2):
        before = ledger.savings
        spend(ledger, paid)
        await eventually(lambda before=before: ledger.savings is not before, "a write")
    assert sums(await ledger.summary(DAY, DAY)) == (42, 42, 42)
    await ledger.stop()


async def test_numbers_that_no_store_could_hold_are_bounded(tmp_path: Path):
    ledger = Ledger(SqliteUsageStore(str(tmp_path / "usage.db")), 3600.0)
    await ledger.start()
    spend(ledger, 10**30)
    assert sums(await ledger.summary(DAY, DAY)) == (10**15, 10**15, 10**15)
    await ledger.stop()
