"""The interface between the gateway and an HTTP client for one upstream.

Times are monotonic seconds, the event loop's clock. Every error is raised as an `UpstreamFailure`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gateway.core.errors import TOO_LARGE, UPSTREAM_INVALID_RESPONSE, Cause, UpstreamFailure

Pieces = Sequence[bytes | memoryview]

POOL_KEEPALIVE_S = 3.5
"""Seconds that an idle connection stays open. Engines on uvicorn close theirs after 5 s, and a request sent
into a closing connection is lost."""

MAX_AGE_S = 60.0
"""Seconds after which a connection is not reused: a new one looks the name up again, so that a change of DNS
is followed even while the old address answers."""

MAX_HEADER_BYTES = 16 * 1024
"""Longest header line of an answer, in bytes."""


class SendOptions(NamedTuple):
    """What is special about a call. `at_root`: a `/v1` at the end of the base URL is left out. `typed`: the call's
    own headers have its content type.
    """

    method: str = "POST"
    at_root: bool = False
    typed: bool = False


PLAIN: Final = SendOptions()


class BodySink(Protocol):
    """Receives a body as it arrives. `ended` or `failed` is the last call."""

    def data(self, piece: bytes) -> None:
        """Some bytes of the body, cut anywhere."""

    def ended(self) -> None:
        """The body is complete by HTTP's framing."""

    def failed(self, failure: UpstreamFailure) -> None:
        """The connection was lost in the middle of the body."""


class Exchange(Protocol):
    """One call whose answer has begun: `read` it whole or `pump` it, and `abort` it if neither completes."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, looked up in lower case; the first of a repeated header counts."""

    async def read(self, limit: int, deadline: float) -> bytes:
        """The whole body. Raises UpstreamFailure if it is longer than `limit` bytes, late or cut short.

        `deadline` is that of the whole call, so the cause of a late body is `total`.
        """

    def pump(self, sink: BodySink) -> None:
        """Pass the body to `sink` from now on."""

    def pause(self) -> None:
        """Stop reading from the upstream until `resume`."""

    def resume(self) -> None:
        """Continue reading."""

    def abort(self) -> None:
        """Close the connection unless the body has been read to its end. Safe to call at any time."""


class Transport(Protocol):
    """A pool of connections to one upstream."""

    async def send(
        self,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: Pieces,
        connect_s: float,
        deadline: float,
        timeout_cause: Cause,
        resend: bool = True,
        options: SendOptions = PLAIN,
    ) -> Exchange:
        """Send to the base URL plus `path` and wait for the answer's head until `deadline`.

        `resend`: a reused connection that closes at once may be replaced, and the call sent again.
        Cancelling closes the connection. Raises UpstreamFailure, with `timeout_cause` if the deadline passed.
        """

    async def close(self) -> None:
        """Close every connection."""


def too_large(upstream: str, limit: int) -> UpstreamFailure:
    """The failure of an answer of more than `limit` bytes; the limit is the gateway's, not the upstream's."""
    message = f"The answer of upstream `{upstream}` is larger than {limit} bytes (`server.max_answer`)."
    return UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=TOO_LARGE)
