"""A server with just enough RESP to give answers that a real Redis cannot be made to give in a test."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self

Answer = Callable[[list[bytes]], bytes]


class FakeResp:
    """Answers each command with `answer(words)`, after `delay` seconds for each read of the socket."""

    def __init__(self, answer: Answer, delay: float = 0.0) -> None:
        self.answer = answer
        self.delay = delay
        self.rounds = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"redis://:hunter2@127.0.0.1:{port}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        unread = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                unread += data
                commands, unread = _commands(unread)
                if not commands:
                    continue
                self.rounds += 1
                await asyncio.sleep(self.delay)
                writer.write(b"".join([self.answer(words) for words in commands]))


def ordinary(words: list[bytes]) -> bytes:
    """AUTH and SELECT succeed, and a script returns its last argument."""
    if words[0] in (b"EVAL", b"EVALSHA", b"SCRIPT"):
        return b"$%d\r\n%b\r\n" % (len(words[-1]), words[-1])
    return b"+OK\r\n"


def _commands(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """The complete commands at the start of the data, and the rest."""
    commands = []
    while (parsed := _command(data)) is not None:
        words, data = parsed
        commands.append(words)
    return commands, data


def _command(data: bytes) -> tuple[list[bytes], bytes] | None:
    head, end, rest = data.partition(b"\r\n")
    if not end:
        return None
    words = []
    for _ in range(int(head[1:])):
        size, end, rest = rest.partition(b"\r\n")
        length = int(size[1:]) if end else 0
        if not end or len(rest) < length + 2:
            return None
        words.append(rest[:length])
        rest = rest[length + 2 :]
    return words, rest
