"""Reads an uploaded file from a multipart form, piece by piece, into the library."""

import asyncio
import re
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web

from gateway.batch_jobs.library import BatchLibrary, FileTooLarge, Upload
from gateway.batch_jobs.records import UPLOADED, StoredFile
from gateway.core.errors import (
    BODY_TIMEOUT,
    BODY_TOO_LARGE,
    EXPECTATION_FAILED,
    INVALID_VALUE,
    UNSUPPORTED_MEDIA_TYPE,
    Rejection,
)
from gateway.http.server.connection import Request

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LONGEST_FIELD: Final = 1024
_MOST_FIELDS: Final = 16
_FORM_BYTES: Final = 64 * 1024
"""Bytes of a form besides the file in it."""
_SHORTEST_S: Final = 3600
_LONGEST_S: Final = 30 * 86400
_FIELDS: Final = re.compile(r"purpose|expires_after(\[(anchor|seconds)\]|\.(anchor|seconds))")


async def receive(request: Request, library: BatchLibrary, key: str, stall_s: float) -> StoredFile | Rejection:
    """The stored file, or a rejection; nothing of a rejected file is kept.

    A client that sends nothing for `stall_s` seconds is given up.
    """
    if (rejection := _check_head(request, library.rules.max_file)) is not None:
        return rejection
    if "expect" in request.headers and request.transport is not None:
        request.transport.write(_CONTINUE)
    form = _Form(library, key, stall_s)
    try:
        return await form.read(MultipartReader(request.headers, request.content))
    except FileTooLarge:
        return _too_large(library.rules.max_file)
    except TimeoutError:
        return Rejection(BODY_TIMEOUT, f"Nothing of the file arrived within {stall_s:g} s.")
    except (ValueError, AssertionError, RuntimeError, web.RequestPayloadError):
        return Rejection(INVALID_VALUE, "The body is no valid multipart/form-data.")
    finally:
        if form.upload is not None:
            await form.upload.abort()


def _check_head(request: Request, max_file: int) -> Rejection | None:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return Rejection(UNSUPPORTED_MEDIA_TYPE, "Send the file as a form: `Content-Type: multipart/form-data`.")
    if request.headers.get("expect", "100-continue").lower() != "100-continue":
        return Rejection(EXPECTATION_FAILED, "The only Expect value supported is 100-continue.")
    length = request.headers.get("content-length", "0")
    if len(length) > 19 or int(length) > max_file + _FORM_BYTES:
        return _too_large(max_file)
    return None


def _too_large(max_file: int) -> Rejection:
    return Rejection(BODY_TOO_LARGE, f"The file is larger than {max_file} bytes.", "file")


class _Form:
    """The fields of a form, and the file once it has begun."""

    def __init__(self, library: BatchLibrary, key: str, stall_s: float) -> None:
        self._library = library
        self._key = key
        self._stall_s = stall_s
        self._fields: dict[str, str] = {}
        self._filename = ""
        self.upload: Upload | None = None

    async def read(self, reader: MultipartReader) -> StoredFile | Rejection:
        for _ in range(_MOST_FIELDS):
            async with asyncio.timeout(self._stall_s):
                part = await reader.next()
            if part is None:
                return await self._finish()
            if not isinstance(part, BodyPartReader):
                break
            if part.name == "file":
                if self.upload is not None:
                    return Rejection(INVALID_VALUE, "The form has two files; send one.", "file")
                await self._store(part)
            elif (rejection := await self._field(part)) is not None:
                return rejection
        return Rejection(INVALID_VALUE, f"The form has more than {_MOST_FIELDS} plain fields.")

    async def _store(self, part: BodyPartReader) -> None:
        self._filename = part.filename or "file"
        self.upload = await self._library.upload()
        while piece := await self._piece(part):
            await self.upload.write(piece)

    async def _piece(self, part: BodyPartReader) -> bytes:
        async with asyncio.timeout(self._stall_s):
            return bytes(await part.read_chunk(256 * 1024))

    async def _field(self, part: BodyPartReader) -> Rejection | None:
        value = b""
        while piece := await self._piece(part):
            value += piece
            if len(value) > _LONGEST_FIELD:
                return Rejection(INVALID_VALUE, "A field of the form is too long.", part.name)
        if part.name and _FIELDS.fullmatch(part.name):
            self._fields[part.name.replace("[", ".").rstrip("]")] = value.decode("utf-8", "replace").strip()
        return None

    async def _finish(self) -> StoredFile | Rejection:
        purpose = self._fields.get("purpose", "")
        if purpose not in UPLOADED:
            names = ", ".join(f"`{name}`" for name in UPLOADED)
            return Rejection(INVALID_VALUE, f"`purpose` must be one of {names}.", "purpose")
        if self.upload is None:
            return Rejection(INVALID_VALUE, "The form has no `file`.", "file")
        keep_s = self._keep_s()
        if isinstance(keep_s, Rejection):
            return keep_s
        return await self.upload.finish(self._key, self._filename, purpose, keep_s)  # type: ignore[arg-type]

    def _keep_s(self) -> int | Rejection | None:
        anchor, seconds = self._fields.get("expires_after.anchor"), self._fields.get("expires_after.seconds")
        if anchor is None and seconds is None:
            return None
        if anchor != "created_at":
            return Rejection(INVALID_VALUE, "`expires_after[anchor]` must be `created_at`.", "expires_after")
        if seconds is None or not seconds.isdecimal() or not _SHORTEST_S <= int(seconds[:9]) <= _LONGEST_S:
            message = f"`expires_after[seconds]` must be a whole number from {_SHORTEST_S} to {_LONGEST_S}."
            return Rejection(INVALID_VALUE, message, "expires_after")
        return int(seconds)
