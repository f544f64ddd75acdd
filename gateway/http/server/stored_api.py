"""The endpoints of files and batches, in OpenAI's shapes. Whatever belongs to another key does not exist."""

from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from gateway.batch_jobs.library import BatchLibrary
from gateway.batch_jobs.records import BatchJob, listed
from gateway.batch_jobs.store import BatchStoreUnavailable, BlobMissing, StorageFull
from gateway.batch_jobs.windows import parse_window
from gateway.core.call import Lease
from gateway.core.caller import Caller
from gateway.core.errors import (
    INVALID_JSON,
    INVALID_VALUE,
    OBJECT_NOT_FOUND,
    STORAGE_FULL,
    STORAGE_UNAVAILABLE,
    Rejection,
)
from gateway.http.server import upload
from gateway.http.server.body import BodyReader
from gateway.http.server.connection import Request
from gateway.http.server.stored_content import StoredContent, content_range
from gateway.http.server.stored_endpoints import StoredTarget
from gateway.wire.openai.models import FILES

_FILES_LISTED: Final = 10_000
_BATCHES_LISTED: Final = 100
_METADATA: Final = (16, 64, 512)
"""Pairs, and the characters of a name and of a value."""


StoredAnswer = bytes | StoredContent | Rejection
"""A JSON body, a content to send, or a rejection."""


class _ExpiresAfter(Struct):
    anchor: str
    seconds: int


class _NewBatch(Struct):
    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None
    output_expires_after: _ExpiresAfter | None = None


class StoredApi:
    """Serves the paths below `/v1/files` and `/v1/batches`."""

    def __init__(self, library: BatchLibrary, endpoints: Collection[str], stall_s: float) -> None:
        """`endpoints` are those that a batch may use; an upload may stall for `stall_s` seconds."""
        self.library = library
        self._endpoints = tuple(endpoints)
        self._stall_s = stall_s

    async def serve(
        self, request: Request, caller: Caller, target: StoredTarget, body: BodyReader, lease: Lease
    ) -> StoredAnswer:
        """The answer to a request of this caller."""
        try:
            if target.area is FILES:
                return await self._files(request, caller.name, target)
            return await self._batches(request, caller, target, body, lease)
        except StorageFull as error:
            return Rejection(STORAGE_FULL, _sentence(error))
        except BatchStoreUnavailable as error:
            return Rejection(STORAGE_UNAVAILABLE, _sentence(error), retry_after=1.0)
        except BlobMissing:
            return Rejection(OBJECT_NOT_FOUND, "The content of this file is gone.", "id")

    async def _files(self, request: Request, key: str, target: StoredTarget) -> StoredAnswer:
        library = self.library
        if not target.what:
            if request.method == "POST":
                stored = await upload.receive(request, library, key, self._stall_s)
                return stored if isinstance(stored, Rejection) else _json(stored.shown())
            return await self._list_files(key, _query(request))
        file = await library.file(key, target.id)
        if file is None:
            return _no_such("File", target.id)
        if target.what == "content":
            return content_range(file, request.headers.get("range"))
        if request.method == "DELETE":
            await library.delete_file(file)
            return _json({"id": file.id, "object": "file", "deleted": True})
        return _json(file.shown())

    async def _list_files(self, key: str, query: Mapping[str, str]) -> StoredAnswer:
        limit = _limit(query, _FILES_LISTED, _FILES_LISTED)
        if isinstance(limit, Rejection):
            return limit
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            return Rejection(INVALID_VALUE, "`order` must be `asc` or `desc`.", "order")
        files, more = await self.library.files(
            key, query.get("purpose"), query.get("after"), limit, ascending=order == "asc"
        )
        return _json(listed([file.shown() for file in files], more=more))

    async def _batches(
        self, request: Request, caller: Caller, target: StoredTarget, body: BodyReader, lease: Lease
    ) -> StoredAnswer:
        library, key = self.library, caller.name
        if not target.what:
            if request.method == "POST":
                asked = await body.read(request, lease)
                return asked if isinstance(asked, Rejection) else await self._create(caller, asked)
            query = _query(request)
            limit = _limit(query, 20, _BATCHES_LISTED)
            if isinstance(limit, Rejection):
                return limit
            jobs, more = await library.batches(key, query.get("after"), limit)
            return _json(listed([await self._shown(job) for job in jobs], more=more))
        job = await library.batch(key, target.id)
        if job is None:
            return _no_such("Batch", target.id)
        if target.what == "cancel":
            job = await library.cancel(job)
            if job.closing != "cancelled":
                message = f"A batch with the status `{job.status}` cannot be cancelled."
                return Rejection(INVALID_VALUE, message, "id")
        return _json(await self._shown(job))

    async def _shown(self, job: BatchJob) -> Mapping[str, Any]:
        return job.shown(await self.library.tally(job))

    async def _create(self, caller: Caller, body: bytes) -> StoredAnswer:
        try:
            asked = msgspec.json.decode(body, type=_NewBatch)
        except msgspec.ValidationError as error:
            return Rejection(INVALID_VALUE, f"The batch cannot be read: {error}.")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Rejection(INVALID_JSON, f"The body is not valid JSON: {error}.")
        if asked.endpoint not in self._endpoints:
            names = ", ".join(f"`{name}`" for name in self._endpoints)
            return Rejection(INVALID_VALUE, f"`endpoint` must be one of {names}.", "endpoint")
        try:
            window_s = parse_window(asked.completion_window)
        except ValueError as error:
            return Rejection(INVALID_VALUE, f"`completion_window` {error}.", "completion_window")
        if (rejection := _check_metadata(asked.metadata)) is not None:
            return rejection
        expires = asked.output_expires_after
        if expires is not None and (expires.anchor != "created_at" or not 3600 <= expires.seconds <= 2_592_000):
            message = "`output_expires_after` needs `anchor: created_at`, and `seconds` from 3600 to 2592000."
            return Rejection(INVALID_VALUE, message, "output_expires_after")
        file = await self.library.file(caller.name, asked.input_file_id)
        if file is None:
            return _no_such("File", asked.input_file_id, "input_file_id")
        if file.purpose != "batch":
            message = f"The file has the purpose `{file.purpose}`; upload it with `batch`."
            return Rejection(INVALID_VALUE, message, "input_file_id")
        keep_s = None if expires is None else expires.seconds
        window = asked.completion_window
        group = "" if caller.label == caller.name else caller.label
        job = await self.library.create(file, asked.endpoint, window, window_s, asked.metadata, keep_s, group)
        return _json(await self._shown(job))


def _check_metadata(metadata: Mapping[str, str] | None) -> Rejection | None:
    pairs, name, value = _METADATA
    if metadata is None or (
        len(metadata) <= pairs and all(len(each) <= name and len(metadata[each]) <= value for each in metadata)
    ):
        return None
    message = f"`metadata` holds at most {pairs} pairs, with names of {name} and values of {value} characters."
    return Rejection(INVALID_VALUE, message, "metadata")


def _json(shown: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(shown)


def _no_such(what: str, id: str, param: str = "id") -> Rejection:
    return Rejection(OBJECT_NOT_FOUND, f"No such {what} object: {id[:100]}", param)


def _query(request: Request) -> Mapping[str, str]:
    return dict(parse_qsl(request.target.partition("?")[2]))


def _limit(query: Mapping[str, str], default: int, most: int) -> int | Rejection:
    text = query.get("limit", str(default))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= most:
        return Rejection(INVALID_VALUE, f"`limit` must be a whole number from 1 to {most}.", "limit")
    return int(text)


def _sentence(error: Exception) -> str:
    return f"Files and batches cannot be stored now: {error}."
