"""Protocols of event streams: producer, consumer, flow control and final summary."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.core.errors import UPSTREAM_ERROR, UPSTREAM_TIMEOUT, UpstreamFailure
from gateway.core.tokens import TokenUsage


class FlowControl(Protocol):
    """Backpressure of a consumer."""

    @property
    def full(self) -> bool:
        """Whether the consumer reads more slowly than it is sent to."""

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Set the callback for when there is room again; None removes it."""


class StreamConsumer(Protocol):
    """The receiver of a stream: a client, or a fan-out to several clients."""

    @property
    def connection(self) -> FlowControl:
        """The consumer's backpressure."""

    def send(self, events: bytes, now: float) -> None:
        """Take one or more complete events."""

    def backlog(self) -> int:
        """Bytes sent and not yet consumed."""

    def abandon(self) -> None:
        """Drop a consumer that has read nothing for too long."""


class StreamSummary(Protocol):
    """What has been read from a stream so far; implemented by `wire.openai.chunks.ChunkReader`."""

    @property
    def error(self) -> bytes | None:
        """The data of an error event."""

    @property
    def tokens(self) -> TokenUsage | None:
        """The usage that the upstream reported."""

    @property
    def generated(self) -> int:
        """Output tokens, estimated."""

    @property
    def finish(self) -> str:
        """The first finish_reason."""

    @property
    def answer_id(self) -> str:
        """The answer's id, where upstreams keep answers by it."""

    @property
    def failed(self) -> bool:
        """The answer itself tells that it has failed; it has passed all the same."""


class StreamReader(StreamSummary, Protocol):
    """A sans-IO filter of one stream: feed pieces of bytes, get the bytes to pass on.

    Events pass unchanged except for the model's name. Nothing passes after `done` or `error`.
    """

    @property
    def begun(self) -> bool:
        """The first event that is neither comment nor error has arrived."""

    @property
    def done(self) -> bool:
        """The event that ends every complete stream has arrived."""

    @property
    def generated_at_least(self) -> int:
        """A lower estimate of the output tokens so far."""

    @property
    def thoughts_at_least(self) -> int:
        """The part of `generated_at_least` that is reasoning."""

    def complete(self, choices: int) -> bool:
        """Whether nothing is missing, for a request with so many choices."""

    def feed(self, piece: bytes) -> bytes:
        """The bytes to pass on for this piece, possibly none. Raises StreamError."""

    def end(self) -> bytes:
        """The upstream has ended: the remaining bytes to pass on."""


class StreamError(Exception):
    """Bytes that no client could read; the message completes "Upstream X sent ..."."""


class EventStream(Protocol):
    """A stream whose first event has arrived: `attach` a consumer, await `finished`, then `close`."""

    @property
    def reader(self) -> StreamSummary:
        """The summary so far; final after `close`."""

    @property
    def finished(self) -> Awaitable[UpstreamFailure | None]:
        """None for a complete stream, else the failure to report to the client."""

    def attach(self, client: StreamConsumer) -> None:
        """Send the client everything received so far, and every event from now on."""

    def close(self) -> None:
        """Detach the consumer and release the upstream."""


def outcome_of(failure: UpstreamFailure | None, *, in_band: bool, failed: bool = False) -> str:
    """The metric outcome of a committed stream. `in_band`: the upstream sent the failure as an event.

    `failed`: the stream is complete and tells of a failure.
    """
    if failure is None:
        return UPSTREAM_ERROR.outcome if failed else "ok"
    return failure.kind.outcome if in_band or failure.kind is UPSTREAM_TIMEOUT else "truncated"
