"""What the tests of transports share: a sink, a caller, and a maker of either kind."""

from gateway.core.clock import monotonic
from gateway.core.errors import FIRST_BYTE, Cause, UpstreamFailure
from gateway.http.client.aiohttp_transport import AiohttpTransport
from gateway.http.client.h1_pool import H1Transport
from gateway.http.client.transport import Exchange, Transport
from gateway.http.ticker import Ticker

FIXED = [
    ("authorization", "Bearer up-key"),
    ("content-type", "application/json"),
    ("accept-encoding", "identity"),
]
KINDS = ["httptools", "aiohttp"]


class Sink:
    """A BodySink that keeps everything."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.end: str | UpstreamFailure | None = None

    def data(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def ended(self) -> None:
        self.end = "ended"

    def failed(self, failure: UpstreamFailure) -> None:
        self.end = failure

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


class Caller:
    """Sends through one transport with short times."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def send(
        self,
        body: list[bytes | memoryview] | None = None,
        *,
        within: float = 5.0,
        connect_s: float = 1.0,
        late: Cause = FIRST_BYTE,
    ) -> Exchange:
        body = body or [b'{"model":"up"}']
        deadline = monotonic() + within
        return await self.transport.send("/chat/completions", [("x-request-id", "r1")], body, connect_s, deadline, late)

    async def read(self, *, limit: int = 1 << 20, within: float = 5.0) -> tuple[Exchange, bytes]:
        exchange = await self.send(within=within)
        return exchange, await exchange.read(limit, monotonic() + within)

    async def failure(
        self,
        *,
        limit: int = 1 << 20,
        within: float = 5.0,
        connect_s: float = 1.0,
        late: Cause = FIRST_BYTE,
    ) -> UpstreamFailure:
        """The Failure that one call ends with."""
        try:
            exchange = await self.send(within=within, connect_s=connect_s, late=late)
            body = await exchange.read(limit, monotonic() + within)
        except UpstreamFailure as failure:
            return failure
        raise AssertionError(f"no failure but {exchange.status} {body[:100]!r}")


def make(kind: str, url: str, sweep: Ticker) -> Transport:
    if kind == "httptools":
        return H1Transport("up", url, FIXED, sweep, monotonic)
    return AiohttpTransport("up", url, FIXED)
