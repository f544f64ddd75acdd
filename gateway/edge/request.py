"""One request of a client, as the connection that it came on hands it to its handler."""

import asyncio
from typing import Any, Protocol

from aiohttp import HttpVersion, StreamReader
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EmptyStreamReader
from multidict import CIMultiDictProxy


class Line(Protocol):
    """What a request knows of the connection that it came on."""

    transport: asyncio.Transport | None

    @property
    def peername(self) -> Any:
        """The client's address as the socket tells it."""


class Request:
    """The head that aiohttp's parser has read, and the body as it comes.

    aiohttp's own request object is made of the same two; of what it adds, nothing is used here. `task` is the
    connection's, in which the request is served.
    """

    __slots__ = ("content", "headers", "keep_alive", "line", "method", "target", "task", "version")

    def __init__(
        self, message: RawRequestMessage, content: StreamReader, line: Line, task: "asyncio.Task[None]"
    ) -> None:
        self.method: str = message.method
        self.target: str = message.path  # as it was sent: path and query, or absolute
        self.version: HttpVersion = message.version
        self.headers: CIMultiDictProxy[str] = message.headers
        self.keep_alive = not message.should_close
        self.content = content
        self.line = line
        self.task = task

    @property
    def transport(self) -> asyncio.Transport | None:
        """The client's; None once it has left."""
        return self.line.transport

    @property
    def remote(self) -> str:
        """The client's address; empty where there is none."""
        peer = self.line.peername
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def has_body(self) -> bool:
        """Whether the head says that a body follows."""
        return not isinstance(self.content, EmptyStreamReader)

    def _cancel(self, why: BaseException) -> None:
        """aiohttp: the connection is lost, and whoever reads the body must know."""
        self.content.set_exception(why)
