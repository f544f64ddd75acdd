"""aiohttp's HTTP/1.1 server protocol with its request loop replaced, and every private name of aiohttp used.

aiohttp's loop makes a task, a writer, a request and an access record for each request, and renders the
response itself: a third of what a small call costs. None of that is used here. Its parser, flow control,
keep-alive and ends of connections are.

None of these names is promised, so `check` compares them with the installed aiohttp at start-up, and
pyproject.toml bounds its version.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import aiohttp
import aiohttp.http_parser
from aiohttp import HttpVersion, StreamReader, web
from multidict import CIMultiDictProxy

TESTED: Final = "3.14"
REQUIREMENT: Final = "aiohttp>=3.14.2,<3.15"


def _unsupported(missing: str) -> str:
    return (
        f"aiohttp {aiohttp.__version__} lacks {missing}, which the server needs. It is tested with aiohttp "
        f"{TESTED}; install '{REQUIREMENT}'."
    )


try:
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import EmptyStreamReader
    from aiohttp.web_protocol import ERROR, RequestHandler
except ImportError as error:
    raise ImportError(_unsupported(f"`{error.name}.{error.name_from}`")) from error  # type: ignore[attr-defined]

_PRIVATE: Final = {
    RequestHandler: (
        *("_buffer_paused", "_close", "_current_request", "_force_close", "_handler_waiter", "_keepalive"),
        *("_keepalive_handle", "_keepalive_timeout", "_loop", "_message_tail", "_messages"),
        *("_msg_queue_resume_size", "_next_keepalive_close_time", "_parser", "_process_keepalive"),
        *("_request_in_progress", "_resume_reading_if_drained", "_task_handler", "_upgraded", "_waiter"),
    ),
    StreamReader: ("_buffer", "_eof"),
    aiohttp.http_parser.HttpRequestParser: ("message_consumed", "set_upgraded"),
}

WRITE_STALL_S = 60.0
"""Seconds for which a client may read none of a response before it is disconnected."""

LINGER_S = 10.0
"""Seconds for which an unwanted request body is read and discarded, so that its client sees the response."""

_SMALL: Final = 64 * 1024  # bytes; a body stream that holds no more has never paused reading


def check() -> None:
    """RuntimeError, whose message says what to install, if the installed aiohttp does not fit.

    aiohttp's pure-Python parser does not fit either: it is slower, and laxer about request smuggling.
    """
    if aiohttp.http_parser.HttpRequestParser is aiohttp.http_parser.HttpRequestParserPy:
        raise RuntimeError("aiohttp's C parser is missing; reinstall aiohttp from a wheel")
    missing = [
        f"`{owner.__name__}.{name}`" for owner, names in _PRIVATE.items() for name in names if not hasattr(owner, name)
    ]
    if missing:
        raise RuntimeError(_unsupported(", ".join(missing)))


class ServerRequest:
    """A request: the head as aiohttp's parser has read it, and the body as it arrives.

    It stands in for aiohttp's own request class. `task` is the connection's, in which the request is served.
    """

    __slots__ = ("connection", "content", "headers", "keep_alive", "method", "target", "task", "version")

    def __init__(
        self,
        message: RawRequestMessage,
        content: StreamReader,
        connection: "ServerProtocol",
        task: "asyncio.Task[None]",
    ) -> None:
        self.method: str = message.method
        self.target: str = message.path  # as it was sent: path and query, or absolute
        self.version: HttpVersion = message.version
        self.headers: CIMultiDictProxy[str] = message.headers
        self.keep_alive = not message.should_close
        self.content = content
        self.connection: ServerProtocol = connection
        self.task = task

    @property
    def transport(self) -> asyncio.Transport | None:
        """The client's transport; None once the client has left."""
        return self.connection.transport

    @property
    def remote(self) -> str:
        """The client's address; empty if there is none."""
        peer = self.connection.peername
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def whole_body(self) -> bytes | None:
        """The body if it arrived with its head or is empty; None if it is still to come.

        A small one is taken in one piece, without what aiohttp's stream does for each read.
        """
        content = self.content
        if isinstance(content, EmptyStreamReader):
            return b""
        pieces = content._buffer
        if content._eof and len(pieces) == 1 and len(pieces[0]) <= _SMALL and not self.connection.parser_held:
            return pieces.popleft()
        return content.read_nowait(-1) if content.is_eof() else None

    def _cancel(self, why: BaseException) -> None:
        """aiohttp: the connection is lost, and the reader of the body must learn of it."""
        self.content.set_exception(why)


class SentResponse(Protocol):
    """A response that has been written; `keep_alive`: the connection may serve another request."""

    keep_alive: bool


class ServerProtocol(RequestHandler):
    """A client's connection, which serves one request after another."""

    __slots__ = ("_request_class", "_respond_error", "_serve", "last", "parser_held")

    def __init__(
        self,
        manager: web.Server,
        request_class: type[ServerRequest],
        serve: Callable[[Any], Awaitable[SentResponse]],
        respond_error: Callable[[Any, int, BaseException | None], SentResponse],
        **kwargs: Any,
    ) -> None:
        """`serve` and `respond_error` get requests of `request_class`; see `connection.py`."""
        super().__init__(manager, access_log=cast(Any, None), **kwargs)
        self._request_class = request_class
        self._serve = serve
        self._respond_error = respond_error
        self.parser_held = False  # whether a body has ever paused reading
        self.last = False  # whether the connection ends after the current request

    @property
    def idle_since(self) -> float:
        """A time that grows with that of the last response, or of the connection's beginning."""
        return self._next_keepalive_close_time

    @property
    def has_begun(self) -> bool:
        """Whether requests wait to be served."""
        return bool(self._messages) or self._request_in_progress

    def fail_malformed_body(self) -> None:
        """Fails the body under way if the parser has given up in it; its reader would wait for more."""
        request = self._current_request
        if not self._messages or request is None:
            return
        (message, _), body = self._messages[-1], cast(Any, request).content
        if not isinstance(message, RawRequestMessage) and not body.is_eof():
            request._cancel(web.RequestPayloadError("malformed"))

    def pause_reading(self) -> None:
        """aiohttp: called by a body stream that holds much."""
        self.parser_held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp: called by a body stream after each read; almost never was anything paused.

        A pause behind a chunk stops the parser only in the next piece of a body, which may be that of another
        request, without any notice. So after the first pause no call is skipped any more.
        """
        if self.parser_held or self._buffer_paused:
            super().resume_reading(resume_parser)

    async def start(self) -> None:
        """aiohttp: the connection's task. It serves one request after another."""
        try:
            while not self._force_close:
                if not self._messages:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                    self._waiter = None
                message, content = self._messages.popleft()
                self._make_room()
                response = await self._respond(message, content)
                if self._upgraded:
                    self._decline_upgrade()
                if not content.is_eof():
                    await self._drain_body(content)
                self._keepalive = response.keep_alive
                if not response.keep_alive or self.last or self._close or self._force_close:
                    break
                self._wait_for_next()
                del message, content, response  # or an idle connection would hold them
                if self._messages:  # pipelined requests must not take the event loop for themselves
                    await asyncio.sleep(0)  # noqa: TID251 - lets other tasks run
        except asyncio.CancelledError:
            # The client has left, or the gateway stops. Raised further, the exception's traceback would tie
            # this task to everything that the call held, until the next full collection.
            self.force_close()
        except BaseException:
            self.force_close()
            raise
        else:
            self._end()

    def _end(self) -> None:
        """Closes after the last response; a client that does not read it is disconnected in time."""
        transport = self.transport
        if self._force_close or transport is None:
            return
        self._task_handler = None
        if transport.get_write_buffer_size():
            self._loop.call_later(WRITE_STALL_S, transport.abort)
        transport.close()

    def _make_room(self) -> None:
        """A request has left the queue: the parser may go on with what the client has sent ahead."""
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()

    async def _respond(self, message: Any, content: StreamReader) -> SentResponse:
        task = self._task_handler
        if task is None:  # the client has left between two requests
            raise asyncio.CancelledError
        if not isinstance(message, RawRequestMessage):  # aiohttp's record of what its parser has rejected
            return self._respond_error(self._request_class(ERROR, content, self, task), message.status, message.exc)
        request = self._request_class(message, content, self, task)
        self._request_in_progress = True  # a shutdown waits for it
        self._current_request = request  # type: ignore[assignment]
        try:
            return await self._serve(request)
        except Exception as bug:  # noqa: BLE001 - whatever it is, the client must get a response
            return self._respond_error(request, 500, bug)
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    def _decline_upgrade(self) -> None:
        """The protocol stays HTTP, and so does what came behind the request."""
        if self._messages or self._parser is None:
            return
        self._parser.set_upgraded(False)
        self._upgraded = False
        tail, self._message_tail = self._message_tail, b""
        if tail:
            self.data_received(tail)
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
        """Starts the keep-alive time; the connection has one timer, which reads the time when it fires."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
