"""The seam to an upstream's sockets: what the rest of the gateway asks of an HTTP client, and nothing more.

Times are monotonic seconds, the event loop's own clock. Every error comes out as a `Failure`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.core.errors import Cause, UpstreamFailure

Pieces = Sequence[bytes | memoryview]

POOL_KEEPALIVE_S = 3.5
"""Seconds that an idle connection is kept. Engines on uvicorn close theirs after 5, and a call that is sent
into a closing connection is lost."""

MAX_HEADER_BYTES = 16 * 1024
"""Longest header line of an answer."""


class BodySink(Protocol):
    """Takes a body as it arrives. After `ended` or `failed` nothing more comes."""

    def data(self, piece: bytes) -> None:
        """Some bytes, cut anywhere."""

    def ended(self) -> None:
        """The body is complete, as far as HTTP can tell."""

    def failed(self, failure: UpstreamFailure) -> None:
        """The connection died in the body."""


class Exchange(Protocol):
    """One call whose answer has begun: read it whole or pump it, and abort it if neither ends by itself."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the answer. Names in lower case find theirs; of a repeated name the first counts."""

    async def read(self, limit: int, deadline: float) -> bytes:
        """The whole body. Raises Failure when it is longer than `limit` bytes, late, or cut short.

        This deadline is the call's own: the cause of a late body is `total`.
        """

    def pump(self, sink: BodySink) -> None:
        """Hand the body to `sink` from now on."""

    def pause(self) -> None:
        """Stop reading from the upstream until `resume`."""

    def resume(self) -> None:
        """Go on reading."""

    def abort(self) -> None:
        """Close the connection unless the body has been read to its end. May be called at any time."""


class Transport(Protocol):
    """A pool of connections to one upstream."""

    async def send(
        self,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: Pieces,
        connect_s: float,
        deadline: float,
        late: Cause,
    ) -> Exchange:
        """POST and wait for the answer's head until `deadline`. `path` follows the base URL.

        Cancelling closes the connection. Raises Failure, whose cause is `late` when the deadline has passed.
        """

    async def close(self) -> None:
        """Close every connection."""
