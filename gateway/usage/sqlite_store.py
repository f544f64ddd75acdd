"""Usage store in one SQLite file, written by any number of processes on one machine."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from gateway.usage.savings import Alternative, Saving
from gateway.usage.store import (
    AlternativeSum,
    Names,
    UsageBatch,
    UsageEntry,
    UsagePage,
    UsageRefused,
    UsageRow,
    UsageSummary,
    UsageSums,
    UsageUnavailable,
    flat,
)

_T = TypeVar("_T")

_APPLICATION: Final = 0x534C5543  # "SLUC" in the file's header marks our files
# The first format, and each later one's migration. A new file runs all of them.
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
    """
    CREATE TABLE ledger (first_call INTEGER NOT NULL);
    INSERT INTO ledger SELECT CAST(strftime('%s', min(day)) AS INTEGER) FROM usage HAVING min(day) IS NOT NULL;
    """,
)
_VERSION: Final = len(_FORMATS)


class _Table(Generic[UsageEntry]):
    """Entries of one kind: identified by four names, and summed."""

    def __init__(self, name: str, make: Callable[..., UsageEntry], fields: Sequence[str]) -> None:
        columns = ["nano_usd" if field == "cost" else field for field in fields]
        named = ", ".join(columns)
        sums = ", ".join(f"{column} = {column} + excluded.{column}" for column in columns[4:])
        self._add = f"""
            INSERT INTO {name} ({named}) VALUES ({", ".join("?" for _ in columns)})
            ON CONFLICT ({", ".join(columns[:4])}) DO UPDATE SET {sums}
        """
        order = ", ".join(columns[1:4])
        self._page = f"""
            SELECT {named} FROM {name}
            WHERE day = :day AND ({order}) > (:a, :b, :c) AND (:key IS NULL OR key = :key)
            ORDER BY {order} LIMIT :limit
        """
        self._table = name
        self._names = columns[:4]
        self._sums = ", ".join(f"sum({column})" for column in columns[4:])
        self._make: Callable[..., UsageEntry] = make

    def add(self, connection: sqlite3.Connection, entries: Iterable[UsageEntry]) -> None:
        connection.executemany(self._add, map(flat, entries))

    def page(
        self, connection: sqlite3.Connection, day: str, after: Names, limit: int, key: str | None
    ) -> list[UsageEntry]:
        found = connection.execute(
            self._page, {"day": day, "limit": limit, "key": key, **dict(zip("abc", after, strict=True))}
        )
        return [self._make(*values) for values in found]

    def sums(
        self, connection: sqlite3.Connection, days: tuple[str, str], by: Collection[str], key: str | None = None
    ) -> list[UsageEntry]:
        """The sums by the names in `by`; other names are empty."""
        names = ", ".join(name if name in by else "''" for name in self._names)
        query = f"""
            SELECT {names}, {self._sums} FROM {self._table}
            WHERE day BETWEEN ? AND ? AND ? IN ('', {self._names[1]})
            GROUP BY {", ".join(name for name in self._names if name in by)}
        """
        return [self._make(*values) for values in connection.execute(query, (*days, key or ""))]


_USAGE: Final = _Table[UsageRow]("usage", UsageRow, UsageRow._fields)
_SAVINGS: Final = _Table[Saving]("savings", Saving, Saving.__struct_fields__)
_ALTERNATIVES: Final = _Table[Alternative]("alternatives", Alternative, Alternative.__struct_fields__)
_ALTERNATIVE_SUMS: Final = """
    SELECT min(day), model, role, name, sum(requests), sum(nano_usd), max(day) FROM alternatives
    WHERE day BETWEEN ? AND ? GROUP BY model, role, name
"""
_BEGIN: Final = """
    INSERT INTO ledger SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM ledger WHERE first_call <= ?1)
"""
_NOT_A_DATABASE: Final = {"SQLITE_NOTADB", "SQLITE_CORRUPT"}


class SqliteUsageStore:
    """A `UsageStore`. A dedicated thread owns the connection, so the event loop never waits for the disk."""

    def __init__(self, path: str, lock_timeout: float = 5.0, *, read_only: bool = False) -> None:
        """`lock_timeout` is how many seconds a write waits for another process's.

        `read_only` only reads an existing file: nobody waits for it, and it needs no right to write.
        """
        self._path = os.path.abspath(path)
        self._lock_timeout = lock_timeout
        self._read_only = read_only
        self._thread = ThreadPoolExecutor(1, "usage")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def open(self) -> None:
        """Create the file, or check that the existing one is ours."""
        await self._run(lambda connection: None)

    async def spent(self, day: str) -> dict[str, int]:
        """Return nano-dollars by key."""
        query = "SELECT key, sum(nano_usd) FROM usage WHERE day = ? GROUP BY key"
        return dict(await self._run(lambda connection: connection.execute(query, [day]).fetchall()))

    async def page(self, day: str, after: Names, limit: int, key: str | None = None) -> UsagePage:
        """Return at most `limit` rows of a day, those after these names; of one key if `key` is given."""
        rows = await self._run(lambda connection: _USAGE.page(connection, day, after, limit, key))
        return UsagePage(rows, len(rows) == limit)

    async def totals(
        self, first_day: str, last_day: str, by: Collection[str], key: str | None = None
    ) -> list[UsageRow]:
        """Return the sums by the names in `by`; other names are empty. Of one key if `key` is given."""
        return await self._run(lambda connection: _USAGE.sums(connection, (first_day, last_day), by, key))

    async def summary(self, first_day: str, last_day: str) -> UsageSummary:
        """Return the sums of these days, read in one transaction."""
        days = first_day, last_day

        def read(connection: sqlite3.Connection) -> UsageSummary:
            connection.execute("BEGIN")
            models, keys = (
                UsageSums(_USAGE.sums(connection, days, [by]), _SAVINGS.sums(connection, days, [by]))
                for by in ("model", "key")
            )
            alternatives = [AlternativeSum(*values) for values in connection.execute(_ALTERNATIVE_SUMS, days)]
            first_call = connection.execute("SELECT min(first_call) FROM ledger").fetchone()[0]
            connection.execute("COMMIT")
            return UsageSummary(models, keys, alternatives, first_call)

        return await self._run(read)

    async def add(self, batch: UsageBatch) -> None:
        """Add the batch in one transaction; after an error nothing of it is in the file."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            _USAGE.add(connection, batch.rows)
            _SAVINGS.add(connection, batch.savings)
            _ALTERNATIVES.add(connection, batch.alternatives)
            if batch.first_call is not None:
                connection.execute(_BEGIN, [batch.first_call])
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
            self._drop()  # rolls back an open transaction
            raise UsageUnavailable(f"{self._path}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        # A deleted or replaced file can still be written to, but nobody would ever read it.
        if self._connection is not None and self._file == _identity(self._path):
            return self._connection
        self._drop()
        try:
            if self._read_only:
                self._connection = self._opened_to_read()
            else:
                self._connection = sqlite3.connect(self._path, timeout=self._lock_timeout, isolation_level=None)
                self._prepare(self._connection)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", None) in _NOT_A_DATABASE:
                self._refuse(f"is not a database that can be read ({error})")
            raise
        self._file = _identity(self._path)
        return self._connection

    def _opened_to_read(self) -> sqlite3.Connection:
        """A connection that cannot write. A file of an older format is read into memory, and migrated there."""
        connection = self._connection = self._connected_to_read("mode=ro")
        try:
            version = self._checked_format(connection)
        except sqlite3.OperationalError:
            # The folder takes no -shm file. With nothing in the -wal file, all of the content is in this one.
            if _size(f"{self._path}-wal") or not _size(self._path):
                raise
            connection.close()
            connection = self._connection = self._connected_to_read("mode=ro&immutable=1")
            version = self._checked_format(connection)
        if version == _VERSION:
            return connection
        copy = sqlite3.connect(":memory:", isolation_level=None)
        connection.backup(copy)
        connection.close()
        self._prepare(copy)
        return copy

    def _connected_to_read(self, how: str) -> sqlite3.Connection:
        address = f"file:{quote(self._path)}?{how}"
        return sqlite3.connect(address, timeout=self._lock_timeout, isolation_level=None, uri=True)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Of several processes that start at once, the first creates the tables, and the others wait for it.
        connection.execute("BEGIN IMMEDIATE")
        version = self._checked_format(connection)
        if version == 0:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        for migration in _FORMATS[version:]:
            for statement in migration.split(";")[:-1]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")  # each commit reaches the disk
        # In WAL mode readers and the writer do not block each other. The switch may fail while others have
        # the file open; then one of them makes it, or the next process to open the file.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")

    def _checked_format(self, connection: sqlite3.Connection) -> int:
        """The format of our file, 0 for an empty one; any other is refused."""
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application == _APPLICATION:
            if version > _VERSION:
                self._refuse(f"was written by a newer version (format {version}; this one reads {_VERSION})")
            return int(version)
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            self._refuse("belongs to another program")
        return 0

    def _refuse(self, reason: str) -> None:
        self._drop()
        raise UsageRefused(f"{self._path} {reason}; move it away, or set usage.path to another file")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
