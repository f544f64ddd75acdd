"""Contents in an object store (S3, Google Cloud Storage, Azure), which several gateways share.

Objects do not grow, so each group of a log's records is an object of its own.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from gateway.batch_jobs.store import BatchStoreUnavailable, BlobMissing
from gateway.core.clock import Clock

_T = TypeVar("_T")
_PIECE: Final = 1024 * 1024
_MEASURED_S: Final = 60.0
"""Seconds between two listings of everything, which providers bill."""


class ObjectBlobStore:
    """A `BlobStore`. Credentials come from the environment, as the provider's own tools read them."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._store: Any = from_url(url)
        self._clock = clock
        self._groups: dict[tuple[str, str], int] = defaultdict(int)
        self._measured = (-_MEASURED_S, 0)

    async def open(self) -> None:
        """Check that the store answers."""
        await self._done(self._sizes("files/"))

    async def close(self) -> None:
        """Nothing is held."""

    async def writer(self, name: str) -> "ObjectBlobWriter":
        """Begin a content."""
        return ObjectBlobWriter(self, obstore.open_writer_async(self._store, _path(name)))

    async def read(self, name: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Iterate over the bytes from `start` to `end`. BlobMissing if it is gone."""
        try:
            size = (await obstore.head_async(self._store, _path(name)))["size"]
            end = size if end is None else min(end, size)
            if start >= end:
                return
            found = await obstore.get_async(self._store, _path(name), options={"range": (start, end)})
            async for piece in found.stream(min_chunk_size=_PIECE):
                yield bytes(piece)
        except FileNotFoundError:
            raise BlobMissing(name) from None
        except (BaseError, OSError) as error:
            raise self._failed(error) from error

    async def append(self, log: str, owner: str, records: bytes) -> None:
        """Add complete lines to the owner's part of a log."""
        number = self._groups[log, owner]
        await self._done(obstore.put_async(self._store, f"logs/{log}/{owner}-{number:08d}", records))
        self._groups[log, owner] = number + 1

    async def sync(self, log: str, owner: str) -> None:
        """An object is durable once it is stored."""

    async def parts(self, log: str) -> list[str]:
        """Return the names of the contents that a log consists of."""
        found = await self._done(self._sizes(f"logs/{log}/"))
        return sorted(name.removeprefix("logs/") for name in found)

    async def delete(self, *names: str) -> None:
        """Delete contents; those that are gone already do not matter."""
        for name in names:
            try:
                await obstore.delete_async(self._store, _path(name))
            except FileNotFoundError:
                pass
            except (BaseError, OSError) as error:
                raise self._failed(error) from error

    async def forgotten(self, before: float) -> list[str]:
        """Name the contents of files that are older than `before` (Unix seconds)."""
        names: list[str] = []
        try:
            async for page in obstore.list(self._store, "files/"):
                old = [each["path"] for each in page if each["last_modified"].timestamp() < before]
                names += [path.removeprefix("files/") for path in old]
        except (BaseError, OSError) as error:
            raise self._failed(error) from error
        return names

    async def used(self) -> int:
        """Return the bytes of all contents, as of a minute ago at most."""
        now = self._clock()
        if now - self._measured[0] >= _MEASURED_S:
            self._measured = (now, sum((await self._done(self._sizes(None))).values()))
        return self._measured[1]

    async def _sizes(self, prefix: str | None) -> dict[str, int]:
        """The objects below a prefix, with their sizes."""
        sizes: dict[str, int] = {}
        async for page in obstore.list(self._store, prefix):
            sizes |= {each["path"]: each["size"] for each in page}
        return sizes

    async def _done(self, step: Awaitable[_T]) -> _T:
        try:
            return await step
        except (BaseError, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BatchStoreUnavailable:
        return BatchStoreUnavailable(f"{self._url}: {str(error).splitlines()[0][:300]}")


class ObjectBlobWriter:
    """A `BlobWriter`: an upload in parts, which becomes visible when it is complete."""

    def __init__(self, store: ObjectBlobStore, file: Any) -> None:
        self._store = store
        self._file = file

    async def write(self, piece: bytes) -> None:
        """Add a piece."""
        await self._store._done(self._file.write(piece))

    async def commit(self) -> None:
        """Complete the upload."""
        await self._store._done(self._file.close())

    async def abort(self) -> None:
        """Drop it; the store forgets parts of uploads that are never completed."""
        self._file = None


def _path(name: str) -> str:
    """A part of a log has a slash in its name; a file has none."""
    return f"logs/{name}" if "/" in name else f"files/{name}"
