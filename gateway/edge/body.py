"""Read a request's body: bounded in bytes and in time, without an await when it is already there."""

import asyncio

from aiohttp import StreamReader, web

from gateway.errors import BODY_TIMEOUT, BODY_TOO_LARGE, INVALID_JSON, UNSUPPORTED_MEDIA_TYPE, Refusal

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyReader:
    """The limits of one server; `max_body` in bytes, `timeout` in seconds for the whole body."""

    def __init__(self, max_body: int, timeout: float) -> None:
        self._max_body = max_body
        self._timeout = timeout

    async def read(self, request: web.BaseRequest) -> bytes | Refusal:
        """The whole body, or why not. Whatever is refused on its headers alone is not read at all."""
        refusal = self._refuse_by_headers(request)
        if refusal is not None:
            return refusal
        content = request.content
        if content.is_eof():  # small bodies come with their head
            body = content.read_nowait(-1) if request.body_exists else b""
            return body if len(body) <= self._max_body else self._too_large()
        if request.headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(_CONTINUE)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._collect(content)
        except TimeoutError:
            seconds = f"{self._timeout:g} s"
            return Refusal(BODY_TIMEOUT, f"The request body did not arrive within {seconds}.")
        except web.RequestPayloadError:
            return Refusal(INVALID_JSON, "The request body is malformed HTTP.")

    async def _collect(self, content: StreamReader) -> bytes | Refusal:
        pieces: list[bytes] = []
        length = 0
        while piece := await content.readany():
            length += len(piece)
            if length > self._max_body:
                return self._too_large()
            pieces.append(piece)
        return b"".join(pieces)

    def _refuse_by_headers(self, request: web.BaseRequest) -> Refusal | None:
        headers = request.headers
        if headers.get("content-encoding", "").lower() not in ("", "identity"):
            return Refusal(
                UNSUPPORTED_MEDIA_TYPE, "Compressed bodies are not accepted; send no Content-Encoding."
            )
        kind = headers.get("content-type", "")
        if kind != "application/json" and not _is_json(kind):
            return Refusal(UNSUPPORTED_MEDIA_TYPE, "Send the body as JSON: `Content-Type: application/json`.")
        length = request.content_length
        if length is not None and length > self._max_body:
            return self._too_large()
        return None

    def _too_large(self) -> Refusal:
        return Refusal(BODY_TOO_LARGE, f"The request body is larger than {self._max_body} bytes.")


def _is_json(content_type: str) -> bool:
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if kind not in ("", "application/json") and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        return False
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2]
    return charset.partition(";")[0] in ("", "utf-8", "utf8", "us-ascii")
