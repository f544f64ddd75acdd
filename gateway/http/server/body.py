"""Reads request bodies, bounded in bytes and in time; a body that has already arrived needs no await.

Buffered bytes are held in the call's lease, so the memory of all bodies together is bounded too.
"""

import asyncio
from io import BytesIO

from aiohttp import HttpVersion11, StreamReader, web

from gateway.core.call import Lease
from gateway.core.errors import (
    BODY_TIMEOUT,
    BODY_TOO_LARGE,
    EXPECTATION_FAILED,
    INVALID_JSON,
    MEMORY_FULL,
    UNSUPPORTED_MEDIA_TYPE,
    Rejection,
)
from gateway.http.server.connection import Request
from gateway.limits.body_memory import SMALL, BodyMemory, HeldBody
from gateway.wire.http.form import boundary_of

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_LENGTH_DIGITS = 19
_NO_FORM = Rejection(
    UNSUPPORTED_MEDIA_TYPE, "Send the body as a form: `Content-Type: multipart/form-data` with its boundary."
)
_FULL = Rejection(MEMORY_FULL, "The gateway's memory for request bodies is full.", retry_after=1.0)


class BodyReader:
    """The limits of one server: `max_body` in bytes, `timeout` in seconds for the whole body.

    `memory` is the budget for all buffered bodies, shared with other readers.
    """

    def __init__(self, max_body: int, timeout: float, memory: BodyMemory) -> None:
        self._max_body = max_body
        self._timeout = timeout
        self._memory = memory

    async def read(self, request: Request, lease: Lease, *, form: bool = False) -> bytes | Rejection:
        """The whole body, JSON or a form, or a rejection. A request rejected by its headers is not read at all."""
        rejection = self._check_headers(request, form)
        if rejection is not None:
            return rejection
        content = request.content
        body = request.whole_body()
        if body is not None:
            length = len(body)
            if length > self._max_body:
                return self._too_large()
            if length > SMALL:
                if self._memory.full(length):
                    return _FULL
                self._hold(lease).grow(length)
            return body
        if self._memory.full(int(request.headers.get("content-length", 0))):
            return _FULL
        expects = request.version >= HttpVersion11 and "expect" in request.headers
        if expects and request.transport is not None:  # `_check_headers` lets only 100-continue pass
            request.transport.write(_CONTINUE)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._collect(content, self._hold(lease))
        except TimeoutError:
            seconds = f"{self._timeout:g} s"
            return Rejection(BODY_TIMEOUT, f"The request body did not arrive within {seconds}.")
        except web.RequestPayloadError:
            return Rejection(INVALID_JSON, "The HTTP framing of the request body is malformed.")

    def _hold(self, lease: Lease) -> HeldBody:
        held = HeldBody(self._memory)
        lease.hold(held)
        return held

    async def _collect(self, content: StreamReader, held: HeldBody) -> bytes | Rejection:
        body, length = BytesIO(), 0  # it hands out its own memory: a large body is never there twice
        while piece := await content.readany():
            length += len(piece)
            if length > self._max_body:
                return self._too_large()
            # Count received bytes, not Content-Length: a client can promise anything.
            if self._memory.full(len(piece)):
                return _FULL
            held.grow(len(piece))
            body.write(piece)
        return body.getvalue()

    def _check_headers(self, request: Request, form: bool) -> Rejection | None:
        headers = request.headers
        codings = headers.getall("content-encoding", None)
        if codings is not None and any(coding.lower() not in ("", "identity") for coding in codings):
            return Rejection(UNSUPPORTED_MEDIA_TYPE, "Compressed bodies are not accepted; send no Content-Encoding.")
        expect = headers.get("expect")
        if expect is not None and expect.lower() != "100-continue":
            return Rejection(EXPECTATION_FAILED, "The only Expect value supported is 100-continue.")
        content_type = headers.get("content-type", "")
        if form:
            if boundary_of(content_type) is None:
                return _NO_FORM
        elif content_type != "application/json" and not _is_json(content_type):
            return Rejection(UNSUPPORTED_MEDIA_TYPE, "Send the body as JSON: `Content-Type: application/json`.")
        length = headers.get("content-length")  # digits only, the parser guarantees that
        if length is not None and (len(length) > _MAX_LENGTH_DIGITS or int(length) > self._max_body):
            return self._too_large()
        return None

    def _too_large(self) -> Rejection:
        return Rejection(BODY_TOO_LARGE, f"The request body is larger than {self._max_body} bytes.")


def _is_json(content_type: str) -> bool:
    media_type, _, parameters = content_type.partition(";")
    media_type = media_type.strip().lower()
    if media_type not in ("", "application/json") and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        return False
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2]
    return charset.partition(";")[0] in ("", "utf-8", "utf8", "us-ascii")
