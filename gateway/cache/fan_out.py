"""Event streams that are replayed from the cache, or fanned out from one upstream call to several clients."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.core.call import TokenUsage
from gateway.core.clock import Clock
from gateway.core.errors import RESET, UPSTREAM_ERROR, UpstreamFailure
from gateway.core.stream import FlowControl, StreamConsumer, StreamSummary
from gateway.usage.call_usage import NOTHING

LAG: Final = 1024 * 1024
"""Bytes: a stream past this point accepts no subscribers, and a subscriber this far behind is cut off."""

_TOO_SLOW: Final = UpstreamFailure(
    UPSTREAM_ERROR,
    "This stream is shared with others, and its reader has fallen too far behind them.",
    cause=RESET,
)


class SubscriberSummary:
    """`StreamSummary` of one subscriber. It reports no usage unless the subscriber pays for the stream."""

    __slots__ = ("error", "finish", "generated", "tokens")
    failed = False
    answer_id = ""

    def __init__(self) -> None:
        self.error: bytes | None = None
        self.tokens: TokenUsage | None = NOTHING
        self.generated = 0
        self.finish = ""

    def copy_usage(self, summary: StreamSummary) -> None:
        """Report the usage of the whole stream: this subscriber pays."""
        self.tokens, self.generated = summary.tokens, summary.generated


class ReplayedStream:
    """`EventStream` of a cached answer, complete from the start."""

    def __init__(self, events: bytes, clock: Clock) -> None:
        self.reader = SubscriberSummary()
        self.finished: asyncio.Future[UpstreamFailure | None] = asyncio.get_running_loop().create_future()
        self.finished.set_result(None)
        self._events = events
        self._clock = clock

    def attach(self, client: StreamConsumer) -> None:
        """Send all events."""
        client.send(self._events, self._clock())

    def close(self) -> None:
        """Do nothing."""


class Subscriber:
    """`EventStream` of one client of a shared stream."""

    def __init__(self, fan_out: "FanOut", on_leave: Callable[["Subscriber"], None]) -> None:
        """`on_leave` is called once, when the client no longer reads the stream."""
        self.reader = SubscriberSummary()
        self.finished: asyncio.Future[UpstreamFailure | None] = asyncio.get_running_loop().create_future()
        self.client: StreamConsumer | None = None
        self.on_leave: Callable[[Subscriber], None] | None = on_leave
        self._fan_out = fan_out

    def attach(self, client: StreamConsumer) -> None:
        """Send the events so far, and every later one as it arrives."""
        self.client = client
        client.connection.on_drained(self._fan_out.drained)
        self._fan_out.catch_up(client)

    def deliver(self, events: bytes, now: float, *, sole: bool) -> None:
        """Send these events; end this subscriber if it has fallen too far behind the others."""
        client = self.client
        if client is None or self.finished.done():
            return
        client.send(events, now)
        if not sole and client.connection.full and client.backlog() > LAG:
            self.end(_TOO_SLOW)

    def end(self, failure: UpstreamFailure | None) -> None:
        """End the stream for this client."""
        if not self.finished.done():
            self.finished.set_result(failure and failure.copy())

    def close(self) -> None:
        """Unsubscribe: the client has read everything, or has disconnected."""
        self.finished.cancel()
        if self.client is not None:
            self.client.connection.on_drained(None)
        if self.on_leave is not None:
            self.on_leave(self)


class FanOut:
    """`StreamConsumer` that passes one stream to its subscribers, and buffers its start for later ones.

    A slow reader slows the stream down only while it is the sole subscriber.
    """

    def __init__(self, on_events: Callable[[bytes], None], clock: Clock) -> None:
        """`on_events` receives every event."""
        self.full = False
        self.subscribers: list[Subscriber] = []
        self._on_events = on_events
        self._clock = clock
        self._resume: Callable[[], None] | None = None
        self._buffer: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: UpstreamFailure | None = None
        self._error_and_finish: tuple[bytes | None, str] = (None, "")

    @property
    def connection(self) -> FlowControl:
        """Return itself: it is its own `FlowControl`."""
        return self

    @property
    def open(self) -> bool:
        """Whether a subscriber may still join: the stream so far is buffered completely."""
        return self._size <= LAG and self._failure is None

    def join(self, subscriber: Subscriber) -> None:
        """Add a subscriber. From the second one on, no subscriber slows the stream down."""
        self.subscribers.append(subscriber)
        if self._ended:
            self._end(subscriber)
        elif len(self.subscribers) > 1:
            self.drained()

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        subscriber.on_leave = None  # break the reference cycle
        if subscriber in self.subscribers:
            self.subscribers.remove(subscriber)

    def send(self, events: bytes, now: float) -> None:
        """Pass the events to every subscriber."""
        self._on_events(events)
        self._size += len(events)
        subscribers = self.subscribers
        if self._buffer or self._size == len(events):
            self._buffer.append(events)
            # A subscriber without a client yet still needs the buffer: it attaches in a moment.
            if self._size > LAG and all(subscriber.client is not None for subscriber in subscribers):
                self._buffer.clear()
        sole = len(subscribers) == 1
        for subscriber in tuple(subscribers):
            subscriber.deliver(events, now, sole=sole)
        self.full = sole and self._is_full(subscribers[0])

    def catch_up(self, client: StreamConsumer) -> None:
        """Send the buffered events."""
        if self._buffer:
            client.send(b"".join(self._buffer), self._clock())

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Set the callback that resumes the stream."""
        self._resume = callback

    def drained(self) -> None:
        """Resume the stream: a client has room again."""
        self.full = False
        if self._resume is not None:
            self._resume()

    def backlog(self) -> int:
        """Return 0: it queues nothing itself."""
        return 0

    def abandon(self) -> None:
        """Abandon the clients: the sole one has read nothing for too long."""
        for subscriber in self.subscribers:
            if subscriber.client is not None:
                subscriber.client.abandon()

    def end(self, failure: UpstreamFailure | None, error: bytes | None, finish: str) -> None:
        """End the stream for every subscriber; later calls have no effect."""
        if not self._ended:
            self._ended, self._failure, self._error_and_finish = True, failure, (error, finish)
            for subscriber in tuple(self.subscribers):
                self._end(subscriber)

    def _end(self, subscriber: Subscriber) -> None:
        subscriber.reader.error, subscriber.reader.finish = self._error_and_finish
        subscriber.end(self._failure)

    @staticmethod
    def _is_full(subscriber: Subscriber) -> bool:
        return subscriber.client is not None and subscriber.client.connection.full
