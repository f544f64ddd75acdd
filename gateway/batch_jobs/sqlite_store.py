"""Job store in one SQLite file, shared by the processes of one machine.

Each process holds a lock on a file of its own, which the system releases when the process dies, however it
dies. Tasks of an owner whose lock is free are free again.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gateway.batch_jobs.input_lines import TaskRange
from gateway.batch_jobs.records import LineTally
from gateway.batch_jobs.store import BatchStoreUnavailable, ClaimedTask, Progress, RecordKind

_T = TypeVar("_T")
_FORMAT: Final = 1
_APPLICATION: Final = 0x534C4A42  # "SLJB" in the file's header marks our files
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS records (
        kind TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS records_by_key ON records (kind, key, id);
    CREATE TABLE IF NOT EXISTS tasks (
        batch TEXT NOT NULL, number INTEGER NOT NULL, range BLOB NOT NULL,
        owner TEXT NOT NULL DEFAULT '', resumed INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,
        tally BLOB NOT NULL DEFAULT '{}', PRIMARY KEY (batch, number)
    ) WITHOUT ROWID
"""
_FREE: Final = "owner = '' AND NOT finished"


class SqliteJobStore:
    """A `JobStore` in a folder. A dedicated thread owns the connection, so the event loop never waits for it."""

    def __init__(self, folder: str, owner: str, lock_timeout: float = 10.0) -> None:
        """`lock_timeout` is how many seconds a write waits for another process's."""
        self.owner = owner
        self._path = Path(folder) / "batches.db"
        self._owners = Path(folder) / "owners"
        self._lock_timeout = lock_timeout
        self._thread = ThreadPoolExecutor(1, "batches")
        self._connection: sqlite3.Connection | None = None
        self._lock = -1

    async def open(self) -> None:
        """Create the file, or check that the existing one is ours."""
        await self._run(lambda connection: None)

    async def close(self) -> None:
        """Close the file and let others take over what this process holds."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    async def put(self, kind: RecordKind, key: str, id: str, record: bytes) -> None:
        """Add a record or replace it."""
        statement = "INSERT OR REPLACE INTO records (kind, id, key, record) VALUES (?, ?, ?, ?)"
        await self._run(lambda connection: connection.execute(statement, (kind, id, key, record)))

    async def get(self, kind: RecordKind, id: str) -> bytes | None:
        """Return a record."""
        query = "SELECT record FROM records WHERE kind = ? AND id = ?"
        row = await self._run(lambda connection: connection.execute(query, (kind, id)).fetchone())
        return None if row is None else bytes(row[0])

    async def page(
        self, kind: RecordKind, key: str, after: str | None, limit: int, *, ascending: bool = False
    ) -> list[bytes]:
        """Return records of a key in order of their ids, behind `after`."""
        order, behind = ("ASC", ">") if ascending else ("DESC", "<")
        since = "" if after is None else f"AND id {behind} ?"
        query = f"SELECT record FROM records WHERE kind = ? AND key = ? {since} ORDER BY id {order} LIMIT ?"
        values = (kind, key, *(() if after is None else (after,)), limit)
        return [row[0] for row in await self._run(lambda connection: connection.execute(query, values).fetchall())]

    async def all(self, kind: RecordKind) -> list[bytes]:
        """Return the records of all keys."""
        query = "SELECT record FROM records WHERE kind = ?"
        return [row[0] for row in await self._run(lambda connection: connection.execute(query, (kind,)).fetchall())]

    async def swap(self, id: str, before: bytes, after: bytes) -> bool:
        """Replace a batch's record if it still is `before`."""
        statement = "UPDATE records SET record = ? WHERE kind = 'batch' AND id = ? AND record = ?"
        return await self._run(lambda connection: connection.execute(statement, (after, id, before)).rowcount == 1)

    async def remove(self, kind: RecordKind, id: str) -> bool:
        """Remove a record; False if there was none."""
        statement = "DELETE FROM records WHERE kind = ? AND id = ?"
        return await self._run(lambda connection: connection.execute(statement, (kind, id)).rowcount == 1)

    async def add_tasks(self, batch: str, tasks: Sequence[tuple[int, TaskRange]]) -> None:
        """Add tasks; those that exist stay as they are."""
        rows = [(batch, number, msgspec.json.encode(each)) for number, each in tasks]
        statement = "INSERT OR IGNORE INTO tasks (batch, number, range) VALUES (?, ?, ?)"

        def add(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")

        await self._run(add)

    async def claim(self, batch: str) -> ClaimedTask | None:
        """Claim the first free task; None if all are finished or held."""
        statement = f"""
            UPDATE tasks SET owner = ? WHERE batch = ? AND {_FREE} AND number =
                (SELECT number FROM tasks WHERE batch = ? AND {_FREE} ORDER BY number LIMIT 1)
            RETURNING number, range, resumed
        """
        values = (self.owner, batch, batch)
        row = await self._run(lambda connection: connection.execute(statement, values).fetchone())
        return None if row is None else ClaimedTask(row[0], msgspec.json.decode(row[1], type=TaskRange), bool(row[2]))

    async def save(self, batch: str, number: int, tally: LineTally | None, *, finished: bool) -> None:
        """Set the tally of a claimed task (None: leave it); a finished one is no longer held."""
        statement = """
            UPDATE tasks SET tally = coalesce(?, tally), finished = ?, owner = ?
            WHERE batch = ? AND number = ? AND owner = ?
        """
        encoded = None if tally is None else msgspec.json.encode(tally)
        values = (encoded, finished, "" if finished else self.owner, batch, number, self.owner)
        await self._run(lambda connection: connection.execute(statement, values))

    async def give_back(self, batch: str, number: int) -> None:
        """Free a claimed task for others."""
        statement = "UPDATE tasks SET owner = '', resumed = 1 WHERE batch = ? AND number = ? AND owner = ?"
        await self._run(lambda connection: connection.execute(statement, (batch, number, self.owner)))

    async def progress(self, batch: str) -> Progress:
        """Return the sum of all tasks."""
        query = "SELECT tally, finished, owner != '' FROM tasks WHERE batch = ?"
        rows = await self._run(lambda connection: connection.execute(query, (batch,)).fetchall())
        tally = LineTally()
        for row in rows:
            tally = tally.plus(msgspec.json.decode(row[0], type=LineTally))
        return Progress(tally, len(rows), sum(row[1] for row in rows), sum(row[2] for row in rows))

    async def adopt(self) -> None:
        """Free the tasks of processes that no longer live."""
        await self._run(self._free_dead)

    async def drop_tasks(self, batch: str) -> None:
        """Forget the tasks of a batch that has ended."""
        await self._run(lambda connection: connection.execute("DELETE FROM tasks WHERE batch = ?", (batch,)))

    async def _run(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._step, step)

    # Everything below runs in the thread.

    def _step(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return step(self._connected())
        except (sqlite3.Error, OSError) as error:
            self._disconnect()  # rolls back an open transaction
            raise BatchStoreUnavailable(f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        self._owners.mkdir(parents=True, exist_ok=True)
        if self._lock < 0:
            self._lock = os.open(self._owners / self.owner, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        connection = sqlite3.connect(self._path, timeout=self._lock_timeout, isolation_level=None)
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application not in (0, _APPLICATION) or version > _FORMAT:
            connection.close()
            reason = "was written by a newer version" if application == _APPLICATION else "belongs to another program"
            raise BatchStoreUnavailable(f"{self._path} {reason}; move it away, or set batches.path to another folder")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")  # each commit reaches the disk
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
        self._connection = connection
        return connection

    def _free_dead(self, connection: sqlite3.Connection) -> None:
        for name in os.listdir(self._owners):
            if name == self.owner:
                continue
            try:
                lock = os.open(self._owners / name, os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                connection.execute("UPDATE tasks SET owner = '', resumed = 1 WHERE owner = ?", (name,))
                os.unlink(self._owners / name)
            except BlockingIOError:
                pass  # it lives
            finally:
                os.close(lock)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop(self) -> None:
        self._disconnect()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
