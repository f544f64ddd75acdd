"""Streams that no upstream sends to one client alone: told from a kept answer, or shared by several."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.core.call import TokenUsage
from gateway.core.clock import Clock
from gateway.core.errors import RESET, UPSTREAM_ERROR, UpstreamFailure
from gateway.core.stream import FlowControl, StreamConsumer, StreamSummary
from gateway.usage.call_usage import NOTHING

LAG: Final = 1024 * 1024
"""Bytes: who comes later than this joins no more, and who has so many still to take is waited for no more."""

_TOO_SLOW: Final = UpstreamFailure(
    UPSTREAM_ERROR,
    "This stream is shared with others, and its reader has fallen too far behind them.",
    cause=RESET,
)


class SubscriberSummary:
    """`Told`: what a client's own call has to hear of a stream. Nothing used, unless it pays for it."""

    __slots__ = ("error", "finish", "generated", "tokens")

    def __init__(self) -> None:
        self.error: bytes | None = None
        self.tokens: TokenUsage | None = NOTHING
        self.generated = 0
        self.finish = ""

    def hear(self, told: StreamSummary) -> None:
        """What was used is its own."""
        self.tokens, self.generated = told.tokens, told.generated


class ReplayedStream:
    """`Pumped`: all of it is there already."""

    def __init__(self, events: bytes, clock: Clock) -> None:
        self.reader = SubscriberSummary()
        self.finished: asyncio.Future[UpstreamFailure | None] = asyncio.get_running_loop().create_future()
        self.finished.set_result(None)
        self._events = events
        self._clock = clock

    def attach(self, client: StreamConsumer) -> None:
        """Send it."""
        client.send(self._events, self._clock())

    def close(self) -> None:
        """Nothing is left to do."""


class Subscriber:
    """`Pumped`: one client's part in a shared stream."""

    def __init__(self, fan: "FanOut", left: Callable[["Subscriber"], None]) -> None:
        """`left` is told once that nobody takes it any more."""
        self.reader = SubscriberSummary()
        self.finished: asyncio.Future[UpstreamFailure | None] = asyncio.get_running_loop().create_future()
        self.client: StreamConsumer | None = None
        self.left: Callable[[Subscriber], None] | None = left
        self._fan = fan

    def attach(self, client: StreamConsumer) -> None:
        """Send what has come so far, and from now on everything as it comes."""
        self.client = client
        client.connection.on_drained(self._fan.drained)
        self._fan.catch_up(client)

    def take(self, events: bytes, now: float, *, alone: bool) -> None:
        """Send these; who is too far behind the others is waited for no more."""
        client = self.client
        if client is None or self.finished.done():
            return
        client.send(events, now)
        if not alone and client.connection.full and client.backlog() > LAG:
            self.end(_TOO_SLOW)

    def end(self, failure: UpstreamFailure | None) -> None:
        """The last word to its client."""
        if not self.finished.done():
            self.finished.set_result(failure and failure.copy())

    def close(self) -> None:
        """The client has it all, or has left."""
        self.finished.cancel()
        if self.client is not None:
            self.client.connection.on_drained(None)
        if self.left is not None:
            self.left(self)


class FanOut:
    """`Taker`: hands one stream on to its branches, and keeps its beginning for those who come later.

    A client that reads slowly slows the stream only while it is the only one.
    """

    def __init__(self, hear: Callable[[bytes], None], clock: Clock) -> None:
        """`hear` is told everything that passes."""
        self.full = False
        self.branches: list[Subscriber] = []
        self._hear = hear
        self._clock = clock
        self._go_on: Callable[[], None] | None = None
        self._told: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: UpstreamFailure | None = None
        self._words: tuple[bytes | None, str] = (None, "")

    @property
    def connection(self) -> FlowControl:
        """It paces the stream itself."""
        return self

    @property
    def open(self) -> bool:
        """Whether one more may join: all of the stream so far can still be told."""
        return self._size <= LAG and self._failure is None

    def join(self, branch: Subscriber) -> None:
        """One more; the others are not held up for it, nor by each other from now on."""
        self.branches.append(branch)
        if self._ended:
            self._end(branch)
        elif len(self.branches) > 1:
            self.drained()

    def leave(self, branch: Subscriber) -> None:
        """One less."""
        branch.left = None  # it holds on to who has left, who holds on to it
        if branch in self.branches:
            self.branches.remove(branch)

    def send(self, events: bytes, now: float) -> None:
        """Hand these on."""
        self._hear(events)
        self._size += len(events)
        branches = self.branches
        if self._told or self._size == len(events):
            self._told.append(events)
            # A branch that has been told of and has no client yet will ask for all of it in a moment.
            if self._size > LAG and all(one.client is not None for one in branches):
                self._told.clear()
        alone = len(branches) == 1
        for branch in tuple(branches):
            branch.take(events, now, alone=alone)
        self.full = alone and self._is_full(branches[0])

    def catch_up(self, client: StreamConsumer) -> None:
        """Send what has passed."""
        if self._told:
            client.send(b"".join(self._told), self._clock())

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Flow: who makes the stream wait wants to know when to go on."""
        self._go_on = callback

    def drained(self) -> None:
        """There is room again."""
        self.full = False
        if self._go_on is not None:
            self._go_on()

    def backlog(self) -> int:
        """It holds nothing back itself."""
        return 0

    def abandon(self) -> None:
        """Its only client has taken nothing for too long."""
        for branch in self.branches:
            if branch.client is not None:
                branch.client.abandon()

    def end(self, failure: UpstreamFailure | None, error: bytes | None, finish: str) -> None:
        """All of it has passed, or it broke; only the first word counts."""
        if not self._ended:
            self._ended, self._failure, self._words = True, failure, (error, finish)
            for branch in tuple(self.branches):
                self._end(branch)

    def _end(self, branch: Subscriber) -> None:
        branch.reader.error, branch.reader.finish = self._words
        branch.end(self._failure)

    @staticmethod
    def _is_full(branch: Subscriber) -> bool:
        return branch.client is not None and branch.client.connection.full
