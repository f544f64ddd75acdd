"""Usage in a SQLite file: several processes, restarts, kills and disks in trouble."""

import asyncio
import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.usage import rows

from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageBatch, UsageRefused, UsageRow, UsageUnavailable

ROOT = Path(__file__).resolve().parents[2]
DAY = "2026-11-29"
ONE = UsageRow(DAY, "team-a", "small", "local", 1, 10, 5, 4, 2, 1000)

# Reports that it has opened the file; on a line of input adds one row repeatedly, reporting each; ends on
# another line.
WRITER = """
import asyncio, sys
from gateway.usage.store import UsageBatch, UsageRow
from gateway.usage.sqlite_store import SqliteUsageStore

ROW = UsageRow("2026-11-29", "team-a", "small", "local", 1, 10, 5, 4, 2, 1000)

async def main(path, times):
    store = SqliteUsageStore(path, 30)
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(times):
        await store.add(UsageBatch(str(number), (ROW,)))
        print(number, flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteUsageStore]:
    one = SqliteUsageStore(str(path), 0.01)
    yield one
    await one.close()


def times(row: UsageRow, count: int) -> UsageRow:
    return UsageRow(*row[:4], *[number * count for number in row[4:]])


@contextlib.contextmanager
def writer(path: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has opened the file and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert said(process) == "ready"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def signal(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow: a write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_rows_add_up(store: SqliteUsageStore):
    other = ONE._replace(key="team-b", cost=7)
    await store.add(UsageBatch("1", (ONE, other)))
    await store.add(UsageBatch("2", (ONE, ONE._replace(day="2026-11-30"), ONE._replace(model="large"))))
    assert set(await rows(store, DAY, DAY)) == {times(ONE, 2), other, ONE._replace(model="large")}
    assert len(await rows(store, "2026-11-28", "2026-12-01")) == 4
    assert await store.spent(DAY) == {"team-a": 3000, "team-b": 7}
    assert await store.spent("2026-11-28") == {}


async def test_a_restart_goes_on_where_it_was(path: Path):
    for _ in range(2):
        store = SqliteUsageStore(str(path))
        await store.open()
        await store.add(UsageBatch("1", (ONE,)))
        await store.close()
    again = SqliteUsageStore(str(path))
    assert await rows(again, DAY, DAY) == [times(ONE, 2)]
    await again.close()
    assert [one.name for one in path.parent.iterdir()] == ["usage.db"], "one file is left"


async def test_two_processes_at_once_lose_nothing(store: SqliteUsageStore, path: Path):
    with writer(path, 200) as one, writer(path, 200) as other:
        signal(one)
        signal(other)
        for process in (one, other):
            assert [said(process) for _ in range(200)][-1] == "199"
        # Both still have it open: a reader sees what is committed, and waits for nobody.
        assert await rows(store, DAY, DAY) == [times(ONE, 400)]


async def test_processes_that_start_together_make_one_file(path: Path):
    stores = [SqliteUsageStore(str(path)) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.add(UsageBatch("1", (ONE,))) for store in stores))
    assert await rows(stores[0], DAY, DAY) == [times(ONE, 8)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_kill_9_loses_nothing_that_was_written(store: SqliteUsageStore, path: Path):
    with writer(path, 10_000) as process:
        signal(process)
        while said(process) != "20":
            pass
        process.kill()
        process.wait()
        last = process.stdout.read().split() if process.stdout else []
    written = 21 + len(last)
    [row] = await rows(store, DAY, DAY)
    # One more may have been committed but not reported.
    assert row in (times(ONE, written), times(ONE, written + 1))


async def test_a_locked_file_raises_until_it_is_free(store: SqliteUsageStore, path: Path):
    await store.add(UsageBatch("1", (ONE,)))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageUnavailable, match="locked"):
            await store.add(UsageBatch("2", (ONE,)))
        other.execute("ROLLBACK")
    await store.add(UsageBatch("2", (ONE,)))
    assert await rows(store, DAY, DAY) == [times(ONE, 2)]


async def test_a_full_disk_stores_all_or_nothing(store: SqliteUsageStore):
    await store.add(UsageBatch("1", (ONE,)))
    many = UsageBatch("2", tuple(ONE._replace(key=f"team-{number}") for number in range(500)))
    with full_disk(), pytest.raises(UsageUnavailable):
        await store.add(many)
    assert await rows(store, DAY, DAY) == [ONE]
    await store.add(many)
    assert len(await rows(store, DAY, DAY)) == 501


async def test_a_deleted_file_is_created_again(store: SqliteUsageStore, path: Path):
    await store.add(UsageBatch("1", (ONE,)))
    for file in path.parent.iterdir():
        file.unlink()
    await store.add(UsageBatch("2", (ONE,)))
    other = SqliteUsageStore(str(path))
    assert await rows(other, DAY, DAY) == [ONE]
    await other.close()


async def test_a_folder_in_its_place_raises(store: SqliteUsageStore, path: Path):
    path.mkdir()
    with pytest.raises(UsageUnavailable, match="unable to open"):
        await store.open()
    path.rmdir()
    await store.add(UsageBatch("1", (ONE,)))
    assert await rows(store, DAY, DAY) == [ONE]


async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(store: SqliteUsageStore, path: Path):
    path.write_text("these are the notes of somebody\n" * 100, encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(UsageRefused, match=r"usage\.db is not a database.*usage\.path"):
        await store.open()
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_refused_and_unchanged(path: Path):
    known = SqliteUsageStore(str(path))
    await known.open()
    await known.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("PRAGMA user_version = 99")
    older = SqliteUsageStore(str(path))
    with pytest.raises(UsageRefused, match=r"newer version \(format 99; this one reads \d\)"):
        await older.open()
    with pytest.raises(UsageUnavailable):
        await older.add(UsageBatch("2", (ONE,)))
    await older.close()


FIRST_FORMAT = """
CREATE TABLE usage (
    day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
    requests INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
    cached_input INTEGER NOT NULL, reasoning INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
    PRIMARY KEY (day, key, model, upstream)
) WITHOUT ROWID;
PRAGMA application_id = 0x534C5543;
PRAGMA user_version = 1;
"""


async def test_a_file_of_the_first_format_is_migrated(path: Path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.executescript(FIRST_FORMAT)
        older.execute("INSERT INTO usage VALUES (?, 'team-a', 'small', 'local', 1, 2, 3, 4, 5, 6)", [DAY])
    for _ in range(2):
        store = SqliteUsageStore(str(path))
        await store.open()
        await store.close()
    store = SqliteUsageStore(str(path))
    assert await rows(store, DAY, DAY) == [UsageRow(DAY, "team-a", "small", "local", 1, 2, 3, 4, 5, 6)]
    await store.add(UsageBatch("1", (UsageRow(DAY, "team-a", "small", "local", 1, 1, 1, 1, 1, 1, 7, 8, 9),)))
    assert await rows(store, DAY, DAY) == [UsageRow(DAY, "team-a", "small", "local", 2, 3, 4, 5, 6, 7, 7, 8, 9)]
    await store.close()


async def test_the_database_of_another_program_is_refused_and_unchanged(store: SqliteUsageStore, path: Path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE usage (whatever)")
    before = path.read_bytes()
    with pytest.raises(UsageRefused, match="another program"):
        await store.open()
    assert path.read_bytes() == before


async def test_a_change_of_folder_does_not_move_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteUsageStore("./usage.db")
    monkeypatch.chdir("/")
    await store.open()
    await store.close()
    assert (tmp_path / "usage.db").exists()


async def test_read_only_reads_beside_a_writer_and_changes_nothing(store: SqliteUsageStore, path: Path):
    await store.add(UsageBatch("1", (ONE,)))
    reader = SqliteUsageStore(str(path), 0.01, read_only=True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")  # another process's write is under way
        assert await rows(reader, DAY, DAY) == [ONE]
        assert await reader.spent(DAY) == {"team-a": 1000}
        assert [row.cost for row in (await reader.summary(DAY, DAY)).keys.rows] == [1000]
    with pytest.raises(UsageUnavailable, match="readonly"):
        await reader.add(UsageBatch("2", (ONE,)))
    await reader.close()
    assert await rows(store, DAY, DAY) == [ONE]


async def test_read_only_on_a_full_disk_and_of_a_copy_in_a_folder_that_takes_no_files(tmp_path: Path):
    folder = tmp_path / "a ? # % folder"
    folder.mkdir()
    path = folder / "usage.db"
    writing = SqliteUsageStore(str(path))
    await writing.add(UsageBatch("1", (ONE,)))
    await writing.close()
    before = path.read_bytes()
    reader = SqliteUsageStore(str(path), read_only=True)
    with full_disk():
        assert await rows(reader, DAY, DAY) == [ONE]
    await reader.close()
    assert path.read_bytes() == before


async def test_read_only_of_the_first_format_migrates_only_what_it_reads(path: Path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.executescript(FIRST_FORMAT)
        older.execute("INSERT INTO usage VALUES (?, 'team-a', 'small', 'local', 1, 2, 3, 4, 5, 6)", [DAY])
    before = path.read_bytes()
    reader = SqliteUsageStore(str(path), read_only=True)
    assert await rows(reader, DAY, DAY) == [UsageRow(DAY, "team-a", "small", "local", 1, 2, 3, 4, 5, 6)]
    assert (await reader.summary(DAY, DAY)).keys.savings == []
    await reader.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database" * 1000, None], ids=["no database", "missing"])
async def test_read_only_refuses_what_is_no_ledger_and_creates_none(path: Path, content: bytes | None):
    if content is not None:
        path.write_bytes(content)
    reader = SqliteUsageStore(str(path), 0.01, read_only=True)
    with pytest.raises(UsageUnavailable if content is None else UsageRefused):
        await rows(reader, DAY, DAY)
    await reader.close()
    assert path.exists() == (content is not None)
