"""A client's connection: aiohttp's HTTP/1.1 protocol, with a loop of our own over its requests.

aiohttp's loop makes a task, a writer, a request and an access line for each request, and writes answers by
its own rendering. None of that is used here, and it is a third of what a small call costs; its parser, its
flow control, its keep-alive and its way of ending connections are.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from aiohttp import HttpVersion, StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EmptyStreamReader
from aiohttp.web_protocol import ERROR, RequestHandler
from multidict import CIMultiDictProxy

MAX_HEADER_BYTES: Final = 32 * 1024
"""Of one line of a request's head."""

_REASON = re.compile(r"[A-Za-z][A-Za-z0-9 `/-]{1,80}")


def what_is_wrong(error: BaseException | None) -> str:
    """What and where, as far as the parser tells; nothing of the request itself, for keys may stand in it."""
    if isinstance(error, LineTooLong):
        return f"A line of the request's head is longer than {MAX_HEADER_BYTES // 1024} KiB."
    reason = _REASON.match(str(getattr(error, "message", "")))
    return f"The HTTP request is malformed{'' if reason is None else f': {reason[0].strip()}'}."


SMALL = 64 * 1024  # bytes; a stream that holds no more than this has paused nothing
MAX_BEHIND = 64 * 1024
"""Bytes of pipelined requests that may wait."""

WRITE_STALL_S = 60.0
"""Seconds that a client may take none of an answer before it is dropped."""

LINGER_S = 10.0
"""Seconds that are spent on reading away a body which nobody wants, so that its client sees the answer."""


class Request:
    """The head that aiohttp's parser has read, and the body as it comes.

    aiohttp's own request object is made of the same two; of what it adds, nothing is used here. `task` is the
    connection's, in which the request is served.
    """

    __slots__ = ("connection", "content", "headers", "keep_alive", "method", "target", "task", "version")

    def __init__(
        self,
        message: RawRequestMessage,
        content: StreamReader,
        connection: "Connection",
        task: "asyncio.Task[None]",
    ) -> None:
        self.method: str = message.method
        self.target: str = message.path  # as it was sent: path and query, or absolute
        self.version: HttpVersion = message.version
        self.headers: CIMultiDictProxy[str] = message.headers
        self.keep_alive = not message.should_close
        self.content = content
        self.connection = connection
        self.task = task

    @property
    def transport(self) -> asyncio.Transport | None:
        """The client's; None once it has left."""
        return self.connection.transport

    @property
    def remote(self) -> str:
        """The client's address; empty where there is none."""
        peer = self.connection.peername
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def whole_body(self) -> bytes | None:
        """The body, where it has come with its head or is empty; None while it is still to come.

        A small one is taken as it came, past what aiohttp's stream does for each piece that is read.
        """
        content = self.content
        if isinstance(content, EmptyStreamReader):
            return b""
        pieces = content._buffer
        if content._eof and len(pieces) == 1 and len(pieces[0]) <= SMALL and not self.connection._parser_held:
            return pieces.popleft()
        return content.read_nowait(-1) if content.is_eof() else None

    def _cancel(self, why: BaseException) -> None:
        """aiohttp: the connection is lost, and whoever reads the body must know."""
        self.content.set_exception(why)


class SentResponse(Protocol):
    """An answer that has been written; `keep_alive`: the connection may serve the next request."""

    keep_alive: bool


ConnectionHandler = Callable[[Request], Awaitable[SentResponse]]
BadRequestResponder = Callable[[Request, int, BaseException | None], SentResponse]
"""Answers what cannot be served: a request, the status for it, and the bug behind a 500."""


class Connection(RequestHandler):
    """One client's connection: knows when the client can take more bytes, and how much it sends ahead."""

    __slots__ = (
        "_complain",
        "_drained",
        "_parser_held",
        "_serve",
        "_went_quiet",
        "body_read",
        "full",
        "last",
        "pipelined_bytes",
        "serving",
    )  # fmt: skip

    def __init__(
        self, manager: web.Server, serve: ConnectionHandler, complain: BadRequestResponder, **kwargs: Any
    ) -> None:
        super().__init__(manager, access_log=cast(Any, None), **kwargs)
        self._serve = serve
        self._complain = complain
        self._parser_held = False
        self.last = False  # no request is taken after the one under way
        self.full = False  # the client takes less than it is sent
        self.serving = False  # a request is under way
        self.body_read = False
        self.pipelined_bytes = 0  # bytes that have come behind its body
        self._drained: Callable[[], None] | None = None
        self._went_quiet: asyncio.Future[None] | None = None

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Call back each time the client has read enough for more to be written."""
        self._drained = callback

    async def flushed(self) -> None:
        """Wait until the write buffer has room again. The caller bounds the time."""
        if self.full:
            self._went_quiet = self._loop.create_future()
            try:
                await self._went_quiet
            finally:
                self._went_quiet = None

    # asyncio's callbacks.

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the client. A few pipelined requests may wait behind the one under way.

        With more of them aiohttp would stop reading, and nobody would notice the client leave.
        """
        if self.serving and self.body_read:
            self.pipelined_bytes += len(data)
            if self.pipelined_bytes > MAX_BEHIND:
                self.force_close()
                return
        super().data_received(data)
        if self.serving and not self.body_read and self._messages:
            self._tell_of_malformed_body()

    def _tell_of_malformed_body(self) -> None:
        """The parser has given up in the middle of a body, whose reader would wait for more of it."""
        (message, _), request = self._messages[-1], self._current_request
        if isinstance(message, RawRequestMessage) or request is None or request.content.is_eof():
            return  # of a body that is whole only what is behind it is malformed
        request._cancel(web.RequestPayloadError("malformed"))

    def pause_writing(self) -> None:
        """asyncio: the write buffer has risen above its high-water mark."""
        super().pause_writing()
        self.full = True

    def resume_writing(self) -> None:
        """asyncio: it has fallen below its low-water mark."""
        super().resume_writing()
        self.full = False
        if self._drained is not None:
            self._drained()
        if self._went_quiet is not None and not self._went_quiet.done():
            self._went_quiet.set_result(None)

    # aiohttp's.

    def pause_reading(self) -> None:
        """aiohttp's body stream, when it holds much."""
        self._parser_held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp's body stream, each time some of it is read. Nearly always nothing had been paused.

        A pause behind a chunk stops the parser only in the next piece of a body, which may be another one's,
        and nobody tells when. So none is left out any more once there has been a pause.
        """
        if self._parser_held or self._buffer_paused:
            super().resume_reading(resume_parser)

    async def start(self) -> None:
        """aiohttp starts this as the connection's task. Requests are answered one after the other."""
        try:
            while not self._force_close:
                if not self._messages:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                    self._waiter = None
                message, content = self._messages.popleft()
                self._make_room()
                answer = await self._answer(message, content)
                if self._upgraded:
                    self._decline_upgrade()
                if not content.is_eof():
                    await self._drain_body(content)
                self._keepalive = answer.keep_alive
                if not answer.keep_alive or self.last or self._close or self._force_close:
                    break
                self._wait_for_next()
                del message, content, answer  # else a quiet connection would keep them
                if self._messages:  # those behind must not have the loop for themselves
                    await asyncio.sleep(0)  # noqa: TID251 - gives others their turn
        except asyncio.CancelledError:
            # The client has left, or the gateway stops. Raised on, it would tie this task, by its traceback,
            # to all that the call held, until the next full collection.
            self.force_close()
        except BaseException:
            self.force_close()
            raise
        else:
            self._end()

    def _end(self) -> None:
        """Behind the last answer. Who does not take it is not waited for without end."""
        transport = self.transport
        if self._force_close or transport is None:
            return
        self._task_handler = None
        if transport.get_write_buffer_size():
            self._loop.call_later(WRITE_STALL_S, transport.abort)
        transport.close()

    def _make_room(self) -> None:
        """One request less waits: the parser may go on with what a client has sent ahead."""
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()

    async def _answer(self, message: Any, content: StreamReader) -> SentResponse:
        task = self._task_handler
        if task is None:  # between two requests the client has left
            raise asyncio.CancelledError
        if not isinstance(message, RawRequestMessage):  # aiohttp's note of what its parser has refused
            return self._complain(Request(ERROR, content, self, task), message.status, message.exc)
        request = Request(message, content, self, task)
        self._request_in_progress = True  # a shutdown waits for it
        self._current_request = request  # type: ignore[assignment]
        try:
            return await self._serve(request)
        except Exception as bug:  # noqa: BLE001 - whatever it is, the client must see an end
            return self._complain(request, 500, bug)
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    def _decline_upgrade(self) -> None:
        """The protocol stays: what came behind the request is HTTP all the same."""
        if self._messages or self._parser is None:
            return
        self._parser.set_upgraded(False)
        self._upgraded = False
        behind, self._message_tail = self._message_tail, b""
        if behind:
            self.data_received(behind)
        if self._buffer_paused:
            self._resume_reading_if_drained()

    async def _drain_body(self, content: StreamReader) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                while not self._force_close and not content.is_eof():
                    await content.readany()
        except (TimeoutError, web.RequestPayloadError):
            pass
        if not content.is_eof():
            self.close()

    def _wait_for_next(self) -> None:
        """The connection's timer is set once, and looks at this time when it is due."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(
                self._next_keepalive_close_time, self._process_keepalive
            )
