"""The benchmarks' HTTP client: raw keep-alive connections, driven by the loops of `sluice bench`.

A raw connection costs a tenth of aiohttp's client, shows every header, sends any body, and can reset in the
middle of an answer. `benchmarks.load` has its own, which must keep up with 48,000 requests a second.
"""

import argparse
import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

from gateway.cli.bench.client import TimedCall
from gateway.cli.bench.driver import LoadDriver, Run
from gateway.cli.bench.options import describe, plan

KEY = "sk-bench-0123456789abcdef"
CHAT = "/v1/chat/completions"
RESET = b"\1\0\0\0\0\0\0\0"  # SO_LINGER of zero seconds


def post(path: str, body: Mapping[str, Any], key: str = KEY) -> bytes:
    """A POST request with this JSON body, as it goes over the wire."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Response(NamedTuple):
    """Status, headers by lower-case name, and body; the body is empty while it is unread."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    def checked(self) -> bytes:
        """The body; RuntimeError unless the status is 200."""
        if self.status != 200:
            raise RuntimeError(f"status {self.status}: {self.body[:300]!r}")
        return self.body


class Connection:
    """One keep-alive connection, opened by the first request and again by the first after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, request: bytes) -> Response:
        """Send a request and read its answer whole. OSError or EOFError when the connection breaks."""
        try:
            response = await self.begin(request)
            return response._replace(body=await self.rest(response))
        except (OSError, EOFError):
            self.close()
            raise

    async def begin(self, request: bytes) -> Response:
        """Send a request and read the head of its answer."""
        await self.send(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        return Response(int(head[0].split()[1]), headers)

    async def send(self, request: bytes) -> None:
        """Send a request and do not wait for the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
        self._streams[1].write(request)

    async def rest(self, response: Response) -> bytes:
        """The body of an answer whose head has been read."""
        if "transfer-encoding" not in response.headers:
            return await self._reader.readexactly(int(response.headers["content-length"]))
        pieces = []
        while size := int(await self._reader.readline(), 16):
            pieces.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(pieces)

    async def event(self) -> bytes:
        """The next event of a stream, chunk frame included."""
        return await self._reader.readuntil(b"\n\n")

    def abort(self, *, reset: bool) -> None:
        """Leave in the middle of an answer, with an RST or a FIN."""
        if self._streams is not None:
            writer = self._streams[1]
            if reset:
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
            self._streams = None

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    @property
    def _reader(self) -> asyncio.StreamReader:
        assert self._streams is not None
        return self._streams[0]


class Pool:
    """As many connections to one port as there are requests under way."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    async def request(self, request: bytes) -> Response:
        """Send a request on an idle or new connection and read its answer whole."""
        connection = self._idle.pop() if self._idle else Connection(self._port)
        response = await connection.request(request)
        self._idle.append(connection)
        return response

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


async def drive(
    call: Callable[[Any, float], Awaitable[TimedCall]],
    items: Iterator[Any],
    *,
    concurrency: int = 0,
    rate: float = 0.0,
    seconds: float | None = None,
    seed: int = 1,
) -> Run:
    """Make a call of each item, `concurrency` at once or `rate` a second at random times.

    It ends with the items, or after `seconds` of new calls. A sample whose `error` is set counts as failed;
    if the first 20 all failed, the drive is over.
    """
    parser = argparse.ArgumentParser()
    describe(parser)
    pace = ["--rate", str(rate)] if rate else ["--concurrency", str(concurrency)]
    options = parser.parse_args(["http://bench", "--model", "bench", *pace])
    driver = LoadDriver(plan(options, {}), perf_counter, lambda sample: None)
    return await driver.run(call, items, Random(seed), None, seconds)


def timed(pool: Pool) -> Callable[[bytes, float], Awaitable[TimedCall]]:
    """What `drive` calls with requests; an answer that is not a 200 raises RuntimeError."""

    async def call(request: bytes, due: float) -> TimedCall:
        (await pool.request(request)).checked()
        return TimedCall(due, perf_counter())

    return call
