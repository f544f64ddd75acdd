"""The words of streams: what a stream tells, who takes it, and how it ends."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.core.call import TokenUsage
from gateway.core.errors import UPSTREAM_TIMEOUT, UpstreamFailure


class FlowControl(Protocol):
    """How fast somebody takes what he is sent."""

    @property
    def full(self) -> bool:
        """Less than he is sent."""

    def on_drained(self, callback: Callable[[], None] | None) -> None:
        """Call back each time when there is room again."""


class StreamConsumer(Protocol):
    """Who a stream is sent to: a client, or somebody who hands it on to several."""

    @property
    def connection(self) -> FlowControl:
        """What paces the stream."""

    def send(self, events: bytes, now: float) -> None:
        """Some whole events."""

    def backlog(self) -> int:
        """Bytes that it was sent and has not taken yet."""

    def abandon(self) -> None:
        """It has taken nothing for too long."""


class StreamSummary(Protocol):
    """What a stream has told so far, as `wire.chunks.ChunkReader` has it."""

    @property
    def error(self) -> bytes | None:
        """An error event's data."""

    @property
    def tokens(self) -> TokenUsage | None:
        """What its upstream has counted."""

    @property
    def generated(self) -> int:
        """Output tokens, estimated."""

    @property
    def finish(self) -> str:
        """The first finish_reason."""


class EventStream(Protocol):
    """A stream whose first event is there: `attach` who takes it, wait until it is `over`, `close` it."""

    @property
    def reader(self) -> StreamSummary:
        """What it tells; the last word is there after `close`."""

    @property
    def finished(self) -> Awaitable[UpstreamFailure | None]:
        """None for a good end, else what the client has to be told."""

    def attach(self, client: StreamConsumer) -> None:
        """Send what has come so far, and from now on everything as it comes."""

    def close(self) -> None:
        """Nobody takes it any more."""


def outcome_of(failure: UpstreamFailure | None, *, in_band: bool) -> str:
    """What became of a stream that had begun. `in_band`: its upstream has told the failure as an event."""
    if failure is None:
        return "ok"
    return failure.kind.outcome if in_band or failure.kind is UPSTREAM_TIMEOUT else "truncated"
