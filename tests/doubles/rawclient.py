"""An HTTP/1.1 client on a raw socket: it sends any bytes and records how an answer was framed and ended."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

LINGER_ZERO = struct.pack("ii", 1, 0)
WITHIN = 30.0  # seconds; generous, so that a busy machine fails no test


@dataclass
class Answer:
    """An answer as it arrived.

    `complete` is true when the body ended as its framing requires (terminating chunk, Content-Length).
    `end` is `open`, or `fin` or `rst` where the end of the connection was seen.
    """

    status: int
    headers: list[tuple[str, str]]
    head: bytes
    interim: list[int] = field(default_factory=list)
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False
    end: str = "open"

    def header(self, name: str) -> str | None:
        """The value of this header; None without it, an AssertionError if it came twice."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error of the body; asserts OpenAI's shape."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str)
        assert error["message"]
        assert error["code"] is None or isinstance(error["code"], str)
        assert (self.header("content-type") or "").partition(";")[0] == "application/json"
        return dict(error)


class RawClient:
    """One connection. A read that takes more than `within` seconds raises AssertionError: no test hangs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, within: float = WITHIN) -> None:
        self.reader = reader
        self.writer = writer
        self._within = within

    @classmethod
    async def open(cls, port: int, *, receive_buffer: int | None = None, within: float = WITHIN) -> Self:
        """Connects; a small `receive_buffer` (bytes) soon blocks the sender while nothing is read."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = receive_buffer or 2**16
        return cls(*await asyncio.open_connection(sock=sock, limit=limit), within)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, data: bytes) -> None:
        """Sends these bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Sends a request; a mapping is sent as JSON, a body with its Content-Length."""
        await self.send(request_bytes(method, target, body, headers))

    async def head(self) -> Answer:
        """Reads the next head that is not a 1xx."""
        interim: list[int] = []
        while True:
            head = await self._bounded(self.reader.readuntil(b"\r\n\r\n"), "a response head")
            line, *rest = head.decode("latin-1")[:-4].split("\r\n")
            status = int(line.split(" ")[1])
            if status >= 200:
                pairs = [(name.lower(), value.strip()) for name, _, value in (one.partition(":") for one in rest)]
                return Answer(status, pairs, head, interim)
            interim.append(status)

    async def response(self, *, bodyless: bool = False) -> Answer:
        """Reads a whole answer; `bodyless` is for the answer to a HEAD."""
        answer = await self.head()
        if bodyless or answer.status in (204, 304):
            answer.complete = True
            return answer
        await self.rest(answer)
        return answer

    async def rest(self, answer: Answer) -> None:
        """Reads the rest of the body of this answer."""
        if (answer.header("transfer-encoding") or "").lower() == "chunked":
            while await self.chunk(answer):
                pass
        elif (length := answer.header("content-length")) is not None:
            answer.body += await self._take(int(length), answer)
            answer.complete = len(answer.body) == int(length)
        else:
            answer.body += await self._take(-1, answer)

    async def chunk(self, answer: Answer) -> bytes:
        """Reads the next chunk of a chunked answer; empty at its end, `complete` or not."""
        line = await self._line(answer)
        if not line:
            return b""
        size = int(line, 16)
        data = await self._take(size + 2, answer)
        if len(data) < size + 2:
            answer.body += data
            return b""
        assert data.endswith(b"\r\n"), "a chunk without its CRLF"
        if size == 0:
            answer.complete = True
            return b""
        answer.chunks.append(data[:-2])
        answer.body += data[:-2]
        return data[:-2]

    async def until(self, answer: Answer, needle: bytes) -> None:
        """Reads chunks until the body holds this."""
        while needle not in answer.body:
            assert await self.chunk(answer), f"ended ({answer.end}) without {needle!r}: {answer.body[-300:]!r}"

    async def ending(self) -> str:
        """Waits for the end of the connection, `fin` or `rst`; further bytes are an AssertionError."""
        try:
            rest = await self._bounded(self.reader.read(1000), "the end of the connection")
        except ConnectionResetError:
            return "rst"
        assert not rest, f"bytes instead of the end: {rest!r}"
        return "fin"

    async def close(self) -> None:
        """Closes the connection as a departing client does."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def reset(self) -> None:
        """Ends the connection with an RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        self.writer.transport.abort()
        await self.close()

    async def _line(self, answer: Answer) -> bytes:
        try:
            return await self._bounded(self.reader.readuntil(b"\r\n"), "a chunk size")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise AssertionError(f"cut in a chunk size: {error.partial!r}") from None
            answer.end = "fin"
        except ConnectionResetError:
            answer.end = "rst"
        return b""

    async def _take(self, count: int, answer: Answer) -> bytes:
        try:
            if count < 0:
                data = await self._bounded(self.reader.read(), "the end of the body")
                answer.end = "fin"
                return data
            return await self._bounded(self.reader.readexactly(count), f"{count} bytes of body")
        except asyncio.IncompleteReadError as error:
            answer.end = "fin"
            return error.partial
        except ConnectionResetError:
            answer.end = "rst"
            return b""

    async def _bounded(self, read: Any, what: str) -> bytes:
        try:
            async with asyncio.timeout(self._within):
                return bytes(await read)
        except TimeoutError:
            raise AssertionError(f"not within {self._within} s: {what}") from None


def request_bytes(
    method: str,
    target: str,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> bytes:
    """A request as bytes; `headers` replace the defaults of the same name."""
    headers = list(headers)
    replaced = {name.lower() for name, _ in headers}
    defaults = [("host", "localhost")]
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    if body is not None:
        defaults += [("content-type", "application/json"), ("content-length", str(len(body)))]
    lines = [f"{name}: {value}" for name, value in defaults if name not in replaced]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1") + (body or b"")


async def call(
    port: int,
    method: str,
    target: str,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Answer:
    """One request on a connection of its own, and its whole answer."""
    async with await RawClient.open(port) as client:
        await client.request(method, target, body, headers)
        return await client.response(bodyless=method == "HEAD")
