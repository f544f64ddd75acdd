"""Callers in a closed loop, each with one call under way; and raw lists, sent as large as they are."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

Make = Callable[[int], Mapping[str, Any]]
"""The body of a caller's next call, by the caller's number."""

KEY = "sk-bench-0123456789abcdef"
SETTLE_S = 0.3


class Line:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The body of the answer; RuntimeError if it is not 200."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
        reader, writer = self._streams
        sent = json.dumps(body).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), KEY.encode(), len(sent), sent)
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" in head:
            answer = await _chunked(reader)
        else:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            answer = await reader.readexactly(length)
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"{head[:40]!r} {answer[:300]!r}")
        return answer

    def close(self) -> None:
        """No more calls."""
        if self._streams is not None:
            self._streams[1].close()


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    """A stream to its end."""
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(pieces)


@dataclass(slots=True)
class Stretch:
    """What was measured: items a second, and each call's seconds."""

    rate: float
    taken: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Seconds within which so many calls were answered; not a number where none was."""
        ordered = sorted(self.taken)
        return math.nan if not ordered else ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def loop(port: int, path: str, make: Make, callers: int, seconds: float, items: int = 1) -> Stretch:
    """Callers that ask again as soon as they are answered; a call counts for `items`."""
    lines = [Line(port) for _ in range(callers)]
    begin = perf_counter() + SETTLE_S
    end = begin + seconds
    taken: list[float] = []

    async def caller(number: int) -> None:
        while (asked := perf_counter()) < end:
            await lines[number].ask(path, make(number))
            answered = perf_counter()
            if begin <= answered < end:
                taken.append(answered - asked)

    try:
        await asyncio.gather(*(caller(number) for number in range(callers)))
    finally:
        for line in lines:
            line.close()
    return Stretch(len(taken) * items / seconds, taken)


def listed(make: Make, size: int) -> Make:
    """The calls of so many callers as one raw list: of inputs, or of conversations."""

    def all_of_them(number: int) -> Mapping[str, Any]:
        bodies: Sequence[Mapping[str, Any]] = [make(one) for one in range(size)]
        payload = "input" if "input" in bodies[0] else "messages"
        return {**bodies[0], payload: [body[payload] for body in bodies]}

    return all_of_them
