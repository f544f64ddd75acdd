"""Mixed calls, each checked: plain ones, whole streams, streams whose client leaves (for `benchmarks.soak`)."""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import Iterator

from benchmarks import probe
from benchmarks.contender import Contender
from benchmarks.scenarios import Scenario

CALLERS = 64
EVENTS = 16
PLAIN = Scenario("plain", CALLERS, 0.0)
STREAM = Scenario("stream", CALLERS, 0.0, chunks=EVENTS, pace=0.001)
TEN = ("plain",) * 5 + ("whole",) * 2 + ("left",) * 3


class Caller:
    """One client, on a connection that it keeps until it leaves in the middle of an answer."""

    def __init__(self, gateway: Contender, source: random.Random, seen: Counter[str]) -> None:
        self.port, self.source, self.seen = gateway.port, source, seen
        self.plain, self.stream = probe.request(PLAIN, gateway), probe.request(STREAM, gateway)
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, kinds: Iterator[str]) -> None:
        """Ask until there is no further call."""
        for kind in kinds:
            try:
                fault = await self._ask(kind)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                fault = f"{type(error).__name__}: {error}"
                self.close()
            self.seen[f"{kind}: {fault}" if fault else kind] += 1

    async def _ask(self, kind: str) -> str:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        before, after = self.plain if kind == "plain" else self.stream
        writer.write(before + probe.number() + after)
        async with asyncio.timeout(30):
            if kind == "left" and (events := self.source.randrange(EVENTS - 1)) == 0:
                self._leave(writer)
                return ""
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                self.close()
                return head.partition(b"\r\n")[0].decode("latin-1")
            if kind == "plain":
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
                return "" if json.loads(body)["choices"] else "no choices"
            if kind == "left":
                for _ in range(events):
                    await reader.readuntil(b"\n\n")
                self._leave(writer)
                return ""
            body = await reader.readuntil(b"\r\n0\r\n\r\n")
            return "" if b"data: [DONE]" in body and body.count(b"data: {") == EVENTS else "not whole"

    def _leave(self, writer: asyncio.StreamWriter) -> None:
        if self.source.random() < 0.5:  # a reset instead of a farewell
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
        self.streams = None

    def close(self) -> None:
        """End the connection, if there is one."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def mixture(count: int, source: random.Random) -> Iterator[str]:
    """So many kinds of calls, in any order but in exact shares."""
    kinds = [TEN[n % len(TEN)] for n in range(count)]
    source.shuffle(kinds)
    return iter(kinds)
