"""Sends the content of a stored file, or a range of it, at the pace at which the client reads."""

import asyncio
import re
from typing import Final, cast
from urllib.parse import quote

from gateway.batch_jobs.library import BatchLibrary
from gateway.batch_jobs.records import StoredFile
from gateway.core.errors import RANGE_NOT_SATISFIABLE, Rejection
from gateway.http.server._aiohttp import WRITE_STALL_S
from gateway.http.server.connection import Request
from gateway.http.server.response import header_lines, render_head

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


class StoredContent:
    """A response that is written piece by piece. `keep_alive` is False until it is complete."""

    def __init__(self, file: StoredFile, start: int, end: int, *, partial: bool) -> None:
        self._file = file
        self._partial = partial
        self._start = start
        self._end = end
        self.status = 206 if partial else 200
        self.keep_alive = False

    async def send(self, request: Request, headers: str, library: BatchLibrary) -> None:
        """Write the head, and then the content.

        BlobMissing if that is gone; then nothing is written. A client that reads nothing for a minute is disconnected.
        """
        transport = cast(asyncio.Transport, request.transport)
        length = self._end - self._start
        pieces = library.content(self._file, self._start, self._end)
        first = await anext(pieces, b"") if length else b""
        own = [
            ("Content-Type", "application/octet-stream"),
            ("Content-Length", str(length)),
            ("Accept-Ranges", "bytes"),
            ("ETag", f'"{self._file.id}"'),
            ("Content-Disposition", f"attachment; filename*=UTF-8''{quote(self._file.filename[:200], safe='')}"),
        ]
        if self._partial:
            own.append(("Content-Range", f"bytes {self._start}-{self._end - 1}/{self._file.bytes}"))
        head = render_head(request, self.status, header_lines(own) + headers, keep_alive=request.keep_alive)
        transport.write(head + first)
        written = len(first)
        while written < length and (piece := await anext(pieces, b"")):
            await self._room(request, transport)
            transport.write(piece)
            written += len(piece)
        if written < length:  # the content was cut short meanwhile: so is the answer
            return
        self.keep_alive = request.keep_alive

    async def _room(self, request: Request, transport: asyncio.Transport) -> None:
        while request.connection.full:
            backlog = transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(WRITE_STALL_S):
                    await request.connection.flushed()
            except TimeoutError:
                if transport.get_write_buffer_size() >= backlog:
                    transport.abort()
                    raise asyncio.CancelledError from None


def content_range(file: StoredFile, header: str | None) -> StoredContent | Rejection:
    """The part of a file that a `Range` header asks for. One that is no single range of bytes asks for all."""
    match = None if header is None else _RANGE.fullmatch(header.replace(" ", ""))
    if match is None or match[1] == match[2] == "":
        return StoredContent(file, 0, file.bytes, partial=False)
    if match[1]:
        start = int(match[1])
        end = min(file.bytes, int(match[2]) + 1) if match[2] else file.bytes
        if match[2] and int(match[2]) < start:
            return StoredContent(file, 0, file.bytes, partial=False)
    else:
        start, end = max(0, file.bytes - int(match[2])), file.bytes
    if start >= end:
        message = f"The file has {file.bytes} bytes; none of them is in this range."
        return Rejection(RANGE_NOT_SATISFIABLE, message, headers=(("content-range", f"bytes */{file.bytes}"),))
    return StoredContent(file, start, end, partial=True)
