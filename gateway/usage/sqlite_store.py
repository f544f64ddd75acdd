"""Usage in one SQLite file, which any number of processes on one machine may write to."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from gateway.usage.savings import Alternative, Saving
from gateway.usage.store import (
    UsageBatch,
    UsageEntry,
    UsageRefused,
    UsageRow,
    UsageSnapshot,
    UsageUnavailable,
    flat,
)

_T = TypeVar("_T")

_APPLICATION: Final = 0x534C5543  # "SLUC", in the file's header: tells our files from those of other programs
# The first format, and what each later one has added: a new file is made as an old one is brought up to date.
_FORMATS: Final = (
    """
    CREATE TABLE usage (
        day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, upstream TEXT NOT NULL,
        requests INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
        cached_input INTEGER NOT NULL, reasoning INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
        PRIMARY KEY (day, key, model, upstream)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE usage ADD COLUMN cache_write INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE usage ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE usage ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
    """,
    """
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
)
_VERSION: Final = len(_FORMATS)


class _Table(Generic[UsageEntry]):
    """Entries of one kind: found by four names, and added up."""

    def __init__(self, name: str, make: Callable[..., UsageEntry], fields: Sequence[str]) -> None:
        columns = ["nano_usd" if field == "cost" else field for field in fields]
        named = ", ".join(columns)
        sums = ", ".join(f"{one} = {one} + excluded.{one}" for one in columns[4:])
        self._add = f"""
            INSERT INTO {name} ({named}) VALUES ({", ".join("?" for _ in columns)})
            ON CONFLICT ({", ".join(columns[:4])}) DO UPDATE SET {sums}
        """
        self._find = f"SELECT {named} FROM {name} WHERE day BETWEEN ? AND ?"
        self._make: Callable[..., UsageEntry] = make

    def add(self, connection: sqlite3.Connection, entries: Iterable[UsageEntry]) -> None:
        connection.executemany(self._add, map(flat, entries))

    def find(self, connection: sqlite3.Connection, days: tuple[str, str]) -> list[UsageEntry]:
        return [self._make(*found) for found in connection.execute(self._find, days)]


_USAGE: Final = _Table[UsageRow]("usage", UsageRow, UsageRow._fields)
_SAVINGS: Final = _Table[Saving]("savings", Saving, Saving.__struct_fields__)
_ALTERNATIVES: Final = _Table[Alternative]("alternatives", Alternative, Alternative.__struct_fields__)
_NEVER_OURS: Final = {"SQLITE_NOTADB", "SQLITE_CORRUPT"}


class SqliteUsageStore:
    """A `UsageStore`. One thread of its own owns the connection, so the event loop never waits for a disk."""

    def __init__(self, path: str, patience: float = 5.0) -> None:
        """`patience` is how many seconds a write waits for another process's."""
        self._path = os.path.abspath(path)
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, "usage")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def open(self) -> None:
        """Make the file, or look whether the one that is there is ours."""
        await self._run(lambda connection: None)

    async def spent(self, day: str) -> dict[str, int]:
        """Nano-dollars by key."""
        query = "SELECT key, sum(nano_usd) FROM usage WHERE day = ? GROUP BY key"
        return dict(await self._run(lambda connection: connection.execute(query, [day]).fetchall()))

    async def rows(self, first_day: str, last_day: str) -> list[UsageRow]:
        """The rows of these days."""
        days = first_day, last_day
        return await self._run(lambda connection: _USAGE.find(connection, days))

    async def books(self, first_day: str, last_day: str) -> UsageSnapshot:
        """All of these days."""
        days = first_day, last_day

        def read(connection: sqlite3.Connection) -> UsageSnapshot:
            connection.execute("BEGIN")
            found = UsageSnapshot(
                _USAGE.find(connection, days),
                _SAVINGS.find(connection, days),
                _ALTERNATIVES.find(connection, days),
            )
            connection.execute("COMMIT")
            return found

        return await self._run(read)

    async def add(self, batch: UsageBatch) -> None:
        """One transaction; after an error nothing of it is in the file."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            _USAGE.add(connection, batch.rows)
            _SAVINGS.add(connection, batch.savings)
            _ALTERNATIVES.add(connection, batch.alternatives)
            connection.execute("COMMIT")

        await self._run(write)

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    async def _run(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._step, step)

    # Everything below runs in the thread.

    def _step(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return step(self._connected())
        except (sqlite3.Error, OSError) as error:
            self._drop()  # which also takes back an open transaction
            raise UsageUnavailable(f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        # A file that was deleted or replaced can still be written to, and nobody would ever see it.
        if self._connection is not None and self._file == _identity(self._path):
            return self._connection
        self._drop()
        self._connection = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None)
        try:
            self._prepare(self._connection)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", None) in _NEVER_OURS:
                self._refuse(f"is not a database that can be read ({error})")
            raise
        self._file = _identity(self._path)
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # One of several processes that start together makes the table; the others wait, and see it.
        connection.execute("BEGIN IMMEDIATE")
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application == _APPLICATION and version > _VERSION:
            self._refuse(f"was written by a newer version (format {version}; this one knows {_VERSION})")
        if application != _APPLICATION:
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
                self._refuse("is a database of another program")
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            version = 0
        for added in _FORMATS[version:]:
            for statement in added.split(";")[:-1]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")  # each commit reaches the disk
        # With it, readers and the writer do not wait for each other. It may be refused at once while others
        # have the file open: then one of them makes it so, or the next to open it, and all is well anyway.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")

    def _refuse(self, why: str) -> None:
        self._drop()
        raise UsageRefused(f"{self._path} {why}; move it away, or set usage.path to another file")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
