"""Read a request's body: bounded in bytes and in time, without an await when it is already there.

What is held of it is in the call's lease, so that all bodies together are bounded too.
"""

import asyncio

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

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MOST_DIGITS = 19
_FULL = Rejection(
    MEMORY_FULL, "The gateway holds as many bytes of request bodies as it may.", retry_after=1.0
)


class BodyReader:
    """The limits of one server; `max_body` in bytes, `timeout` in seconds for the whole body.

    `bodies` is what all calls hold, of this reader and of others.
    """

    def __init__(self, max_body: int, timeout: float, bodies: BodyMemory) -> None:
        self._max_body = max_body
        self._timeout = timeout
        self._bodies = bodies

    async def read(self, request: Request, lease: Lease) -> bytes | Rejection:
        """The whole body, or why not. Whatever is refused on its headers alone is not read at all."""
        refusal = self._refuse_by_headers(request)
        if refusal is not None:
            return refusal
        content = request.content
        body = request.whole_body()
        if body is not None:
            length = len(body)
            if length > self._max_body:
                return self._too_large()
            if length > SMALL:
                if self._bodies.full(length):
                    return _FULL
                self._hold(lease).grow(length)
            return body
        if self._bodies.full(int(request.headers.get("content-length", 0))):
            return _FULL
        expected = request.version >= HttpVersion11 and "expect" in request.headers
        if expected and request.transport is not None:  # none but 100-continue comes so far
            request.transport.write(_CONTINUE)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._collect(content, self._hold(lease))
        except TimeoutError:
            seconds = f"{self._timeout:g} s"
            return Rejection(BODY_TIMEOUT, f"The request body did not arrive within {seconds}.")
        except web.RequestPayloadError:
            return Rejection(INVALID_JSON, "The request body is malformed HTTP.")

    def _hold(self, lease: Lease) -> HeldBody:
        held = HeldBody(self._bodies)
        lease.hold(held)
        return held

    async def _collect(self, content: StreamReader, held: HeldBody) -> bytes | Rejection:
        pieces: list[bytes] = []
        length = 0
        while piece := await content.readany():
            length += len(piece)
            if length > self._max_body:
                return self._too_large()
            # Told by what has come, not by the length that was promised: a promise costs nobody anything.
            if self._bodies.full(len(piece)):
                return _FULL
            held.grow(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def _refuse_by_headers(self, request: Request) -> Rejection | None:
        headers = request.headers
        codings = headers.getall("content-encoding", None)
        if codings is not None and any(coding.lower() not in ("", "identity") for coding in codings):
            return Rejection(
                UNSUPPORTED_MEDIA_TYPE, "Compressed bodies are not accepted; send no Content-Encoding."
            )
        expected = headers.get("expect")
        if expected is not None and expected.lower() != "100-continue":
            return Rejection(EXPECTATION_FAILED, "The only Expect that can be met is 100-continue.")
        kind = headers.get("content-type", "")
        if kind != "application/json" and not _is_json(kind):
            return Rejection(
                UNSUPPORTED_MEDIA_TYPE, "Send the body as JSON: `Content-Type: application/json`."
            )
        length = headers.get("content-length")  # digits, the parser has seen to that
        if length is not None and (len(length) > _MOST_DIGITS or int(length) > self._max_body):
            return self._too_large()
        return None

    def _too_large(self) -> Rejection:
        return Rejection(BODY_TOO_LARGE, f"The request body is larger than {self._max_body} bytes.")


def _is_json(content_type: str) -> bool:
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if kind not in ("", "application/json") and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        return False
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2]
    return charset.partition(";")[0] in ("", "utf-8", "utf8", "us-ascii")
