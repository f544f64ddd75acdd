"""What batches need of a store: records, claims of tasks, and the contents of files."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from gateway.batch_jobs.input_lines import TaskRange
from gateway.batch_jobs.records import LineTally

RecordKind = Literal["file", "batch"]
CHECK: Final = 0
"""The task of checking the input; the tasks of its lines count from 1."""
FINISH: Final = 1_000_000_000
"""The task of writing the output and the error file."""


class BatchStoreUnavailable(Exception):
    """Batches cannot be read or written now; the message says why. A retry may succeed."""


class StorageFull(BatchStoreUnavailable):
    """There is no room, or no right to write."""


class BlobMissing(Exception):
    """The content of a file is gone."""


class ClaimedTask(NamedTuple):
    """A task that this process has claimed. `resumed`: another may have done a part of its lines."""

    number: int
    range: TaskRange
    resumed: bool


class Progress(NamedTuple):
    """How far a batch is: its lines so far, its tasks, those that are finished and those in someone's hands."""

    tally: LineTally
    tasks: int
    finished: int
    held: int


class JobStore(Protocol):
    """Records and claims. Every method may raise BatchStoreUnavailable, and recovers by itself."""

    owner: str
    """The name of this process among those that share the store."""

    async def open(self) -> None:
        """Prepare the store, and show others that this process lives."""

    async def close(self) -> None:
        """Release everything; others take over what is claimed."""

    async def put(self, kind: RecordKind, key: str, id: str, record: bytes) -> None:
        """Add a record or replace it."""

    async def get(self, kind: RecordKind, id: str) -> bytes | None:
        """Return a record."""

    async def page(
        self, kind: RecordKind, key: str, after: str | None, limit: int, *, ascending: bool = False
    ) -> list[bytes]:
        """Return records of a key in order of their ids, behind `after`."""

    async def all(self, kind: RecordKind) -> list[bytes]:
        """Return the records of all keys."""

    async def swap(self, id: str, before: bytes, after: bytes) -> bool:
        """Replace a batch's record if it still is `before`."""

    async def remove(self, kind: RecordKind, id: str) -> bool:
        """Remove a record; False if there was none."""

    async def add_tasks(self, batch: str, tasks: Sequence[tuple[int, TaskRange]]) -> None:
        """Add tasks in ascending order; those that exist stay as they are."""

    async def claim(self, batch: str) -> ClaimedTask | None:
        """Claim the first free task; None if all are finished or held."""

    async def save(self, batch: str, number: int, tally: LineTally | None, *, finished: bool) -> None:
        """Set the tally of a claimed task (None: leave it); a finished one is no longer held."""

    async def give_back(self, batch: str, number: int) -> None:
        """Free a claimed task for others."""

    async def progress(self, batch: str) -> Progress:
        """Return the sum of all tasks."""

    async def adopt(self) -> None:
        """Free the tasks of processes that no longer live, and show that this one does."""

    async def drop_tasks(self, batch: str) -> None:
        """Forget the tasks of a batch that has ended."""


class BlobWriter(Protocol):
    """A content that is being written. It appears under its name only when it is complete."""

    async def write(self, piece: bytes) -> None:
        """Add a piece."""

    async def commit(self) -> None:
        """Make it durable and visible."""

    async def abort(self) -> None:
        """Discard it; does nothing after `commit`."""


class BlobStore(Protocol):
    """Contents by name, and logs that grow. Every method may raise BatchStoreUnavailable."""

    async def open(self) -> None:
        """Prepare the store."""

    async def close(self) -> None:
        """Release everything."""

    async def writer(self, name: str) -> BlobWriter:
        """Begin a content."""

    def read(self, name: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Iterate over the bytes from `start` to `end`. BlobMissing if it is gone."""

    async def append(self, log: str, owner: str, records: bytes) -> None:
        """Add complete lines to the owner's part of a log, so that they survive this process."""

    async def sync(self, log: str, owner: str) -> None:
        """Make what was added durable."""

    async def parts(self, log: str) -> list[str]:
        """Return the names of the contents that a log consists of."""

    async def delete(self, *names: str) -> None:
        """Delete contents; those that are gone already do not matter."""

    async def forgotten(self, before: float) -> list[str]:
        """Discard what was never completed, and name the contents of files, all older than `before` (Unix seconds)."""

    async def used(self) -> int:
        """Return the bytes of all contents."""
