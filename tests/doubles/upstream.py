"""An upstream on raw sockets that answers as scripted, valid HTTP or not, and records what it was sent.

It is the tests' independent witness: it shares no code with the gateway, nor with the fake upstreams of the
benchmarks, which answer fast and correctly where this one scripts every byte, pause and end of a connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from doubles import replies
from doubles.call import Call
from doubles.connection import Connection
from doubles.script import UNREAD, Script

Answer = Script | Callable[[Call], Script]
WITHIN = 20.0  # seconds


class FaultUpstream:
    """Listens on a free port of 127.0.0.1.

    `reply(a, b)` scripts the next calls, `always(a)` every other call (by default the answer of a healthy
    engine). An idle connection is closed after `keepalive` seconds; None never closes it. With `deaf`
    set, new connections are accepted and never read.
    """

    def __init__(self, *, keepalive: float | None = None) -> None:
        self.keepalive = keepalive
        self.deaf = False
        self.has_metrics = False  # else GET /metrics is a 404 and no call: gateways ask engines every second
        self.calls: list[Call] = []
        self.accepted = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.port = 0
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.bugs: list[Exception] = []
        self._next: deque[Answer] = deque()
        self._always: Answer = replies.ordinary
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The base URL for a config."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Opens the port (the same one again after `stop`)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes the port and every connection; raises the first error of a script."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.reset()
        if self.tasks:
            await asyncio.wait(self.tasks)
        await self.idle()
        if self.bugs:
            raise self.bugs[0]

    def reply(self, *answers: Answer) -> None:
        """Scripts the next calls, one answer a call."""
        self._next.extend(answers)

    def always(self, answer: Answer) -> None:
        """Scripts every call that `reply` did not script."""
        self._always = answer

    def script_for(self, call: Call) -> Script:
        """The steps for this call."""
        answer = self._next.popleft() if self._next else self._always
        return answer(call) if callable(answer) else answer

    def unread_next(self) -> bool:
        """Whether the next call's body is to be left unread."""
        answer = self._next[0] if self._next else self._always
        return not callable(answer) and len(answer) > 0 and answer[0] is UNREAD

    def changed(self) -> None:
        """Wakes the tests that wait for a state of this upstream."""
        self._changed.set()

    async def until(self, true: Callable[[], bool], what: str, within: float = WITHIN) -> None:
        """Waits for a state; after `within` seconds an AssertionError names `what`."""
        try:
            async with asyncio.timeout(within):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within} s: {what}") from None

    async def received(self, count: int, within: float = WITHIN) -> Call:
        """Waits until `count` calls have arrived completely; returns the last of them."""
        await self.until(lambda: len(self.calls) >= count and self.calls[count - 1].body_read, f"call {count}", within)
        return self.calls[count - 1]

    async def holding(self, count: int, within: float = WITHIN) -> None:
        """Waits until `count` calls are in flight at once."""
        await self.until(lambda: self.in_flight == count, f"{count} calls in flight", within)

    async def peer_closed(self, number: int = 1, within: float = WITHIN) -> str:
        """Waits until the peer closes the connection of this call (from 1); returns `fin` or `rst`."""
        call = self.calls[number - 1]
        await self.until(lambda: call.closed is not None, f"call {number} closed by the peer", within)
        return str(call.closed)

    async def idle(self, within: float = WITHIN) -> None:
        """Waits until no connection is open."""
        await self.until(lambda: not self.connections, "no open connection", within)

    async def at_rest(self, within: float = WITHIN) -> None:
        """Waits until no call is in flight; idle connections may stay."""
        await self.until(lambda: self.in_flight == 0, "no call in flight", within)
