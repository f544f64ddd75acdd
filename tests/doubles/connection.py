"""One connection of the fault upstream: reads requests, runs a script for each, records how it ends."""

import asyncio
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

from doubles import replies
from doubles.call import Call
from doubles.script import Act, Drip, Pause, Step, Until

if TYPE_CHECKING:
    from doubles.upstream import FaultUpstream

LINGER_ZERO = struct.pack("ii", 1, 0)


class GoneError(Exception):
    """The connection ended in the middle of a script."""


class Connection(asyncio.Protocol):
    """An accepted connection, until either side ends it."""

    def __init__(self, upstream: "FaultUpstream") -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._call: Call | None = None
        self._closing = False
        self._served = 0
        self._expiry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream.accepted += 1
        self._number = self._upstream.accepted
        self._upstream.connections.add(self)
        self._writable.set()
        if self._upstream.deaf:
            transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._serve())
        self._upstream.tasks.add(task)
        task.add_done_callback(self._upstream.tasks.discard)
        self._upstream.changed()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> None:
        self._ended("fin")

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended("rst" if exc is not None else "fin")
        self._lost.set()
        self._arrived.set()
        self._writable.set()
        self._upstream.connections.discard(self)
        self._upstream.changed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def reset(self) -> None:
        """Ends the connection with an RST."""
        self._closing = True
        sock = self._transport.get_extra_info("socket")
        if sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        self._transport.abort()

    def _close(self) -> None:
        self._closing = True
        self._transport.close()

    def _ended(self, how: str) -> None:
        if self._call is not None and self._call.closed is None and not self._closing:
            self._call.closed = how
            self._call.closed_at = asyncio.get_running_loop().time()
            self._upstream.changed()

    async def _serve(self) -> None:
        try:
            while not self._closing:
                await self._answer(await self._read_head())
                if self._upstream.keepalive is not None and not self._closing:
                    loop = asyncio.get_running_loop()
                    self._expiry = loop.call_later(self._upstream.keepalive, self._close)
        except GoneError:
            pass
        except Exception as bug:  # noqa: BLE001 - of the test's script; `stop` raises it
            self._upstream.bugs.append(bug)
            self.reset()
        finally:
            if self._expiry is not None:
                self._expiry.cancel()

    async def _answer(self, head: bytes) -> None:
        upstream = self._upstream
        self._served += 1
        call = Call(len(upstream.calls) + 1, self._number, self._served, head)
        self._call = call
        if head.startswith(b"GET /metrics ") and not upstream.has_metrics:
            for step in replies.error(404):
                await self._run(step, call)
            return
        upstream.calls.append(call)
        upstream.in_flight += 1
        upstream.most_in_flight = max(upstream.most_in_flight, upstream.in_flight)
        upstream.changed()
        # An UNREAD script is chosen before the body is read; any other may depend on the whole call.
        try:
            if upstream.unread_next():
                steps = list(upstream.script_for(call))[1:]
            else:
                await self._read_body(call)
                steps = list(upstream.script_for(call))
            for step in steps:
                await self._run(step, call)
            call.finished = True
        finally:
            upstream.in_flight -= 1
            upstream.changed()

    async def _run(self, step: Step, call: Call) -> None:
        match step:
            case bytes():
                await self._write(step, call)
            case Drip():
                for start in range(0, len(step.data), step.size):
                    await self._write(step.data[start : start + step.size], call)
                    await asyncio.sleep(step.gap)
            case Pause():
                await self._first(asyncio.sleep(step.seconds))
            case Until():
                await self._first(step.event.wait())
            case Act.FIN:
                self._close()
            case Act.RST:
                self.reset()
            case Act.NEVER:
                await self._lost.wait()
                raise GoneError
            case Act.UNREAD:
                raise ValueError("UNREAD must be the first step")

    async def _first(self, wait: Any) -> None:
        """Waits, at most until the connection is lost."""
        waiting = asyncio.ensure_future(wait)
        lost = asyncio.ensure_future(self._lost.wait())
        await asyncio.wait((waiting, lost), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        lost.cancel()
        if self._lost.is_set():
            raise GoneError

    async def _write(self, data: bytes, call: Call) -> None:
        await self._writable.wait()
        if self._lost.is_set():
            raise GoneError
        self._transport.write(data)
        call.sent += len(data)
        # A turn of the loop, so that two steps do not share a packet when the reader is on this loop.
        await asyncio.sleep(0)

    async def _more(self) -> None:
        if self._lost.is_set() or self._transport.is_closing():
            raise GoneError
        self._arrived.clear()
        await self._arrived.wait()
        if self._lost.is_set() and not self._buffer:
            raise GoneError

    async def _read_head(self) -> bytes:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return self._take(end + 4)

    async def _read_body(self, call: Call) -> None:
        if any("chunked" in value.lower() for value in call.header("transfer-encoding")):
            body = bytearray()
            while part := await self._read_chunk():
                body += part
            call.body = bytes(body)
        else:
            length = int(call.header("content-length")[0]) if call.header("content-length") else 0
            while len(self._buffer) < length:
                await self._more()
            call.body = self._take(length)
        call.body_read = True
        self._upstream.changed()

    async def _read_chunk(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            await self._more()
        size = int(re.split(rb"[;\r]", self._take(end + 2))[0], 16)
        while len(self._buffer) < size + 2:
            await self._more()
        return self._take(size + 2)[:-2]

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data
