"""The stores of batches on one machine: SQLite for records and claims, plain files for contents."""

import asyncio
import errno
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.batch_jobs.folder_store import FolderBlobStore
from gateway.batch_jobs.input_lines import TaskRange
from gateway.batch_jobs.records import LineTally
from gateway.batch_jobs.sqlite_store import SqliteJobStore
from gateway.batch_jobs.store import BatchStoreUnavailable, BlobMissing, StorageFull

RANGES = [(number, TaskRange(number * 10, number * 10 + 10, number)) for number in (1, 2, 3)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteJobStore]:
    one = SqliteJobStore(str(tmp_path / "jobs"), "one")
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FolderBlobStore]:
    one = FolderBlobStore(str(tmp_path / "blobs"))
    await one.open()
    yield one
    await one.close()


async def test_records(store: SqliteJobStore) -> None:
    for id in ("a", "c", "b"):
        await store.put("file", "k", id, id.encode())
    await store.put("file", "other", "d", b"d")
    assert await store.page("file", "k", None, 2) == [b"c", b"b"]
    assert await store.page("file", "k", "b", 5) == [b"a"]
    assert await store.page("file", "k", "a", 5, ascending=True) == [b"b", b"c"]
    assert sorted(await store.all("file")) == [b"a", b"b", b"c", b"d"]
    assert await store.all("batch") == []
    assert [await store.remove("file", "a") for _ in range(2)] == [True, False]
    assert await store.get("file", "a") is None


async def test_only_the_record_that_was_read_is_replaced(store: SqliteJobStore) -> None:
    await store.put("batch", "k", "b", b"1")
    assert [await store.swap("b", b"1", b"2"), await store.swap("b", b"1", b"3")] == [True, False]
    assert await store.get("batch", "b") == b"2"


async def test_a_task_has_one_owner_at_a_time(store: SqliteJobStore, tmp_path: Path) -> None:
    other = SqliteJobStore(str(tmp_path / "jobs"), "two")
    await other.open()
    await store.add_tasks("b", RANGES)
    await store.add_tasks("b", RANGES)  # once more changes nothing
    claims = await asyncio.gather(*(each.claim("b") for each in (store, other, store, other)))
    assert sorted(claim.number for claim in claims if claim is not None) == [1, 2, 3]
    assert claims.count(None) == 1
    mine = next(claim for claim in claims if claim is not None)
    assert (mine.range, mine.resumed) == (RANGES[mine.number - 1][1], False)
    await other.close()


async def test_the_tasks_of_a_dead_process_go_to_another(store: SqliteJobStore, tmp_path: Path) -> None:
    other = SqliteJobStore(str(tmp_path / "jobs"), "two")
    await other.open()
    await store.add_tasks("b", RANGES)
    for _ in RANGES:
        await other.claim("b")
    await other.save("b", 1, LineTally(completed=5), finished=False)
    await other.save("b", 3, LineTally(completed=9), finished=True)
    await store.adopt()
    assert await store.claim("b") is None  # it lives
    await other.close()
    await store.adopt()
    first, second = await store.claim("b"), await store.claim("b")
    assert first is not None
    assert second is not None
    assert [(each.number, each.resumed) for each in (first, second)] == [(1, True), (2, True)]
    assert await store.claim("b") is None
    progress = await store.progress("b")
    assert (progress.tally.completed, progress.tasks, progress.finished, progress.held) == (14, 3, 1, 2)


async def test_a_task_that_is_given_back_or_taken_away_cannot_be_saved(store: SqliteJobStore) -> None:
    await store.add_tasks("b", RANGES[:1])
    await store.claim("b")
    await store.give_back("b", 1)
    await store.save("b", 1, LineTally(completed=5), finished=True)
    again = await store.claim("b")
    assert again is not None
    assert again.resumed
    assert (await store.progress("b")).tally == LineTally()
    await store.drop_tasks("b")
    assert (await store.progress("b")).tasks == 0


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "batches.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("PRAGMA application_id = 7")
    theirs.close()
    store = SqliteJobStore(str(tmp_path), "one")
    with pytest.raises(BatchStoreUnavailable, match="belongs to another program"):
        await store.open()
    await store.close()


async def test_contents(blobs: FolderBlobStore) -> None:
    writer = await blobs.writer("file-1")
    for _ in range(3):
        await writer.write(b"x" * 200_000)
    assert [piece async for piece in _pieces(blobs, "file-1")] == []
    await writer.commit()
    await writer.abort()
    assert sum([len(piece) async for piece in blobs.read("file-1")]) == 600_000
    assert sum([len(piece) async for piece in blobs.read("file-1", 599_990, 700_000)]) == 10
    assert await blobs.used() == 600_000
    await blobs.delete("file-1", "file-2")
    with pytest.raises(BlobMissing):
        await anext(blobs.read("file-1"))


async def _pieces(blobs: FolderBlobStore, name: str) -> AsyncIterator[bytes]:
    try:
        async for piece in blobs.read(name):
            yield piece
    except BlobMissing:
        return


async def test_an_abandoned_content_leaves_nothing(blobs: FolderBlobStore, tmp_path: Path) -> None:
    writer = await blobs.writer("file-1")
    await writer.write(b"x")
    await writer.abort()
    assert [*(tmp_path / "blobs/files").iterdir()] == []


async def test_what_was_never_completed_is_discarded_and_old_contents_are_named(
    blobs: FolderBlobStore, tmp_path: Path
) -> None:
    torn, whole = await blobs.writer("file-1"), await blobs.writer("file-2")
    await whole.commit()
    await torn.write(b"x")
    folder = tmp_path / "blobs/files"
    assert await blobs.forgotten(0.0) == []
    assert len([*folder.iterdir()]) == 2
    assert await blobs.forgotten(time.time() + 60) == ["file-2"]
    assert [one.name for one in folder.iterdir()] == ["file-2"]
    await torn.abort()


async def test_logs_have_a_part_for_each_owner(blobs: FolderBlobStore) -> None:
    for owner, record in (("one", b"1\n"), ("two", b"2\n"), ("one", b"3\n")):
        await blobs.append("b", owner, record)
        await blobs.sync("b", owner)
    parts = await blobs.parts("b")
    assert [b"".join([piece async for piece in blobs.read(part)]) for part in parts] == [b"1\n3\n", b"2\n"]
    await blobs.delete(*parts)
    assert await blobs.parts("b") == []


async def test_a_write_that_fails_halfway_leaves_the_log_as_it_was(
    blobs: FolderBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blobs.append("b", "one", b"1\n")
    write = os.write

    def failing(file: int, data: bytes) -> int:
        write(file, bytes(data[:3]))
        raise OSError(errno.ENOSPC, "")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", failing)
        with pytest.raises(StorageFull, match="the disk is full"):
            await blobs.append("b", "one", b"22222\n")
    await blobs.append("b", "one", b"3\n")
    assert [piece async for piece in blobs.read("b/one")] == [b"1\n3\n"]
