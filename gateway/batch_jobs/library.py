"""The files and batches of each key, as the API and the runner see them."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gateway.batch_jobs.records import BatchJob, FilePurpose, LineTally, StoredFile
from gateway.batch_jobs.store import BlobStore, BlobWriter, JobStore, StorageFull
from gateway.batch_jobs.windows import OpenHours
from gateway.core.clock import Clock

_FILE: Final = msgspec.json.Decoder(StoredFile)
_BATCH: Final = msgspec.json.Decoder(BatchJob)
_ORPHAN_S: Final = 86400.0
DISK_USED_UP: Final = "the gateway's disk space for files (batches.max_disk) is used up"


class BatchRules(Struct, frozen=True):
    """The bounds of the config: bytes of a file and of all files, lines of a batch, bytes of a line, seconds
    that files are kept, and the hours of the day in which lines may be sent.
    """

    max_file: int
    max_disk: int
    max_lines: int
    max_line: int
    keep_s: float
    hours: OpenHours | None = None


class FileTooLarge(Exception):
    """An upload is larger than `max_file`."""


class Upload:
    """A file that is arriving. End it with `finish` or `abort`."""

    def __init__(self, library: "BatchLibrary", writer: BlobWriter, id: str, room: int) -> None:
        self._library = library
        self._writer = writer
        self._room = room
        self._size = 0
        self.id = id

    async def write(self, piece: bytes) -> None:
        """Add a piece. FileTooLarge or StorageFull where a bound is reached."""
        self._size += len(piece)
        if self._size > self._library.rules.max_file:
            raise FileTooLarge
        if self._size > self._room:
            raise StorageFull(DISK_USED_UP)
        await self._writer.write(piece)

    async def finish(self, key: str, filename: str, purpose: FilePurpose, keep_s: int | None) -> StoredFile:
        """Make the file visible to its key."""
        await self._writer.commit()
        return await self._library.add_file(key, self.id, filename, purpose, self._size, keep_s)

    async def abort(self) -> None:
        """Discard it."""
        await self._writer.abort()


class BatchLibrary:
    """Reads and changes the records. A file or batch of another key does not exist."""

    def __init__(
        self, store: JobStore, blobs: BlobStore, rules: BatchRules, unix: Clock, new_id: Callable[[float], str]
    ) -> None:
        """`new_id(unix seconds)` returns a new id's hexadecimal digits, in ascending order."""
        self.store = store
        self.blobs = blobs
        self.rules = rules
        self._unix = unix
        self._new_id = new_id
        self.on_change: Callable[[BatchJob], None] = lambda job: None
        """Called after a batch was made or cancelled."""

    async def upload(self) -> Upload:
        """Begin a file. StorageFull if there is no room at all."""
        room = await self.room()
        if room <= 0:
            raise StorageFull(DISK_USED_UP)
        id = f"file-{self._new_id(self._unix())}"
        return Upload(self, await self.blobs.writer(id), id, room)

    async def room(self) -> int:
        """Bytes that may still be stored."""
        return self.rules.max_disk - await self.blobs.used()

    async def add_file(
        self, key: str, id: str, filename: str, purpose: FilePurpose, size: int, keep_s: int | None
    ) -> StoredFile:
        """Record a file whose content is stored."""
        now = int(self._unix())
        expires = now + int(min(self.rules.keep_s, keep_s or self.rules.keep_s))
        file = StoredFile(id, key, filename, purpose, size, now, expires)
        await self.store.put("file", key, id, msgspec.json.encode(file))
        return file

    async def file(self, key: str, id: str) -> StoredFile | None:
        """A file of the key."""
        record = await self.store.get("file", id)
        file = None if record is None else _FILE.decode(record)
        return file if file is not None and file.key == key and not self._expired(file) else None

    async def files(
        self, key: str, purpose: str | None, after: str | None, limit: int, *, ascending: bool
    ) -> tuple[list[StoredFile], bool]:
        """Files of the key in order, and whether there are more."""
        found: list[StoredFile] = []
        while True:
            page = await self.store.page("file", key, after, limit + 1, ascending=ascending)
            files = [_FILE.decode(record) for record in page]
            found += [file for file in files if purpose in (None, file.purpose) and not self._expired(file)]
            if len(found) > limit or len(page) <= limit:
                return found[:limit], len(found) > limit
            after = files[-1].id

    def content(self, file: StoredFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the bytes of a file."""
        return self.blobs.read(file.id, start, end)

    async def delete_file(self, file: StoredFile) -> None:
        """Delete a file. The content stays while a batch reads it."""
        await self.store.remove("file", file.id)
        if not any(job.input_file_id == file.id for job in await self.unfinished()):
            await self.blobs.delete(file.id)

    def _expired(self, file: StoredFile) -> bool:
        return file.expires_at is not None and file.expires_at <= self._unix()

    async def create(
        self,
        file: StoredFile,
        endpoint: str,
        window: str,
        window_s: int,
        metadata: Mapping[str, str] | None,
        output_keep_s: int | None,
        group: str = "",
    ) -> BatchJob:
        """Create a batch of this input file."""
        now = self._unix()
        job = BatchJob(
            f"batch_{self._new_id(now)}",
            file.key,
            endpoint,
            file.id,
            window,
            int(now),
            int(now) + window_s,
            group,
            metadata=None if metadata is None else dict(metadata),
            output_keep_s=output_keep_s,
        )
        await self.store.put("batch", job.key, job.id, msgspec.json.encode(job))
        self.on_change(job)
        return job

    async def batch(self, key: str, id: str) -> BatchJob | None:
        """A batch of the key."""
        job = await self.any_batch(id)
        return job if job is not None and job.key == key else None

    async def any_batch(self, id: str) -> BatchJob | None:
        """A batch of whichever key."""
        record = await self.store.get("batch", id)
        return None if record is None else _BATCH.decode(record)

    async def batches(self, key: str, after: str | None, limit: int) -> tuple[list[BatchJob], bool]:
        """Batches of the key, the newest first, and whether there are more."""
        page = await self.store.page("batch", key, after, limit + 1)
        return [_BATCH.decode(record) for record in page[:limit]], len(page) > limit

    async def newest(self, limit: int) -> list[BatchJob]:
        """The newest batches of all keys, the newest first."""
        jobs = map(_BATCH.decode, await self.store.all("batch"))
        return sorted(jobs, key=lambda job: job.id, reverse=True)[:limit]

    async def unfinished(self) -> list[BatchJob]:
        """The batches of all keys that have not ended."""
        jobs = map(_BATCH.decode, await self.store.all("batch"))
        return [job for job in jobs if not job.ended]

    async def tally(self, job: BatchJob) -> LineTally:
        """The lines of a batch that have ended so far."""
        return job.tally if job.ended else (await self.store.progress(job.id)).tally

    async def cancel(self, job: BatchJob) -> BatchJob:
        """Ask a batch to end; one that has ended, or is ending, stays as it is."""
        while job.status in ("validating", "in_progress"):
            changed = await self.change(job, job.at("cancelling", self._unix(), closing="cancelled", paused=""))
            if changed is not None:
                self.on_change(changed)
                return changed
            job = await self.any_batch(job.id) or job
        return job

    async def change(self, before: BatchJob, after: BatchJob) -> BatchJob | None:
        """Store the change of a batch; None if someone else has changed it."""
        swapped = await self.store.swap(before.id, msgspec.json.encode(before), msgspec.json.encode(after))
        return after if swapped else None

    async def sweep(self) -> None:
        """Delete what is older than it is to be kept."""
        now = self._unix()
        for file in map(_FILE.decode, await self.store.all("file")):
            if self._expired(file):
                await self.delete_file(file)
        inputs: set[str] = set()
        for job in map(_BATCH.decode, await self.store.all("batch")):
            if not job.ended:
                inputs.add(job.input_file_id)
                continue
            await self.forget_lines(job)  # what a process that died has left
            if max(job.stamps.values(), default=job.created_at) + self.rules.keep_s <= now:
                await self.store.remove("batch", job.id)
        # A process that died may have stored a content, and not its record.
        for name in await self.blobs.forgotten(now - _ORPHAN_S):
            if name not in inputs and await self.store.get("file", name) is None:
                await self.blobs.delete(name)

    async def forget_lines(self, job: BatchJob) -> None:
        """Delete the tasks and logs of a batch that has ended, and the content of its input if that is deleted."""
        await self.store.drop_tasks(job.id)
        await self.blobs.delete(*await self.blobs.parts(job.id))
        if await self.store.get("file", job.input_file_id) is None:
            await self.blobs.delete(job.input_file_id)
