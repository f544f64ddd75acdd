"""Contents as plain files in a folder, which several gateways may share."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from gateway.batch_jobs.store import BatchStoreUnavailable, BlobMissing, StorageFull

_T = TypeVar("_T")
_PIECE: Final = 256 * 1024
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG))
_NAMES: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "the folder may not be written to",
    errno.EPERM: "the folder may not be written to",
}


class FolderBlobStore:
    """A `BlobStore`. Threads do the reading and writing, so the event loop never waits for the disk."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()
        self._threads = ThreadPoolExecutor(4, "batch-files")

    async def open(self) -> None:
        """Create the folder, and remove what a process that died has not completed."""
        await self.run(self._open)

    def _open(self) -> None:
        (self._folder / "files").mkdir(parents=True, exist_ok=True)
        (self._folder / "logs").mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Release the threads."""
        self._threads.shutdown(wait=False)

    async def writer(self, name: str) -> "FolderBlobWriter":
        """Begin a content."""
        target = self._path(name)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        return FolderBlobWriter(self, await self.run(lambda: part.open("wb")), part, target)

    async def read(self, name: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Iterate over the bytes from `start` to `end`. BlobMissing if it is gone."""
        file = await self.run(lambda: self._opened(name))
        if file is None:
            raise BlobMissing(name)
        try:
            await self.run(lambda: file.seek(start))
            left = end - start if end is not None else None
            while left is None or left > 0:
                size = _PIECE if left is None else min(_PIECE, left)
                piece = await self.run(lambda size=size: file.read(size))  # type: ignore[misc]
                if not piece:
                    return
                left = None if left is None else left - len(piece)
                yield piece
        finally:
            file.close()

    async def append(self, log: str, owner: str, records: bytes) -> None:
        """Add complete lines to the owner's part of a log."""
        await self.run(lambda: self._append(self._folder / "logs" / log, owner, records))

    def _append(self, folder: Path, owner: str, records: bytes) -> None:
        folder.mkdir(exist_ok=True)
        file = os.open(folder / owner, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            before = os.fstat(file).st_size
            try:
                rest = memoryview(records)
                while rest:
                    rest = rest[os.write(file, rest) :]
            except OSError:
                os.ftruncate(file, before)  # a half record would hide the next one
                raise
        finally:
            os.close(file)

    async def sync(self, log: str, owner: str) -> None:
        """Make what was added durable."""

        def sync() -> None:
            file = os.open(self._folder / "logs" / log / owner, os.O_WRONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

        await self.run(sync)

    async def parts(self, log: str) -> list[str]:
        """Return the names of the contents that a log consists of."""
        folder = self._folder / "logs" / log
        names = await self.run(lambda: sorted(os.listdir(folder)) if folder.is_dir() else [])
        return [f"{log}/{name}" for name in names]

    async def delete(self, *names: str) -> None:
        """Delete contents; those that are gone already do not matter."""

        def delete() -> None:
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                if "/" in name:
                    with contextlib.suppress(OSError):
                        path.parent.rmdir()

        await self.run(delete)

    async def forgotten(self, before: float) -> list[str]:
        """Discard what was never completed, and name the contents of files, all older than `before` (Unix seconds)."""

        def forgotten() -> list[str]:
            names = []
            with os.scandir(self._folder / "files") as entries:
                for entry in entries:
                    if entry.stat().st_mtime >= before:
                        continue
                    if entry.name.startswith("."):
                        os.unlink(entry.path)
                    else:
                        names.append(entry.name)
            return names

        return await self.run(forgotten)

    async def used(self) -> int:
        """Return the bytes of all contents."""

        def used() -> int:
            total = 0
            for folder, _, names in os.walk(self._folder):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        total += os.stat(os.path.join(folder, name)).st_size
            return total

        return await self.run(used)

    def _opened(self, name: str) -> BinaryIO | None:
        try:
            return self._path(name).open("rb")
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> Path:
        """A part of a log has a slash in its name; a file has none."""
        return self._folder / ("logs" if "/" in name else "files") / name

    async def run(self, step: Callable[[], _T]) -> _T:
        """Do this in a thread, its errors worded for people."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step)
        except OSError as error:
            reason = _NAMES.get(error.errno or 0, error.strerror or str(error))
            kind = StorageFull if error.errno in _NO_ROOM else BatchStoreUnavailable
            raise kind(f"{self._folder}: {reason}") from error


class FolderBlobWriter:
    """A `BlobWriter`: a file beside its final place, moved there when it is complete."""

    def __init__(self, store: FolderBlobStore, file: BinaryIO, part: Path, target: Path) -> None:
        self._store = store
        self._file = file
        self._part = part
        self._target = target

    async def write(self, piece: bytes) -> None:
        """Add a piece."""
        await self._store.run(lambda: self._file.write(piece))

    async def commit(self) -> None:
        """Make it durable and visible."""
        await self._store.run(self._commit)

    def _commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._target)
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name is durable too
        finally:
            os.close(folder)

    async def abort(self) -> None:
        """Discard it; does nothing after `commit`."""

        def abort() -> None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._part.unlink(missing_ok=True)

        await self._store.run(abort)
