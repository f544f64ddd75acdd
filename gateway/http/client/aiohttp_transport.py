"""The `aiohttp` transport: aiohttp's client without the features a gateway must not have.

No redirects (they would forward the key), no cookies (clients would share them), no decompression and no
connection limit (the gateway has its own). It honours HTTP_PROXY, HTTPS_PROXY and NO_PROXY, the reason to
choose this transport, but not ~/.netrc. It sends nothing again by itself: a reused connection that closes
fails the attempt.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from gateway.core.clock import Clock, monotonic
from gateway.core.errors import (
    CONNECT,
    INVALID,
    RESET,
    TOTAL,
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Cause,
    UpstreamFailure,
)
from gateway.http.client.connect_errors import failure_of, out_of_descriptors
from gateway.http.client.resolver import AiohttpResolver, Resolver
from gateway.http.client.transport import (
    MAX_AGE_S,
    MAX_HEADER_BYTES,
    PLAIN,
    POOL_KEEPALIVE_S,
    BodySink,
    Exchange,
    Pieces,
    SendOptions,
    too_large,
)
from gateway.http.descriptors import DESCRIPTOR_TRIES, Descriptors

_ONE_WRITE = 256 * 1024  # bytes up to which one joined write is cheaper than one write per piece


class _Connector(aiohttp.TCPConnector):
    """A connector that reuses no connection older than MAX_AGE_S."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(**options)
        self._clock = clock
        self._opened: WeakKeyDictionary[object, float] = WeakKeyDictionary()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """See aiohttp."""
        while True:
            connection = await super().connect(req, traces, timeout)
            now = self._clock()
            if now - self._opened.setdefault(connection.protocol, now) < MAX_AGE_S:
                return connection
            connection.close()


class AiohttpTransport:
    """A `Transport` over one ClientSession."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Sequence[tuple[str, str]],
        clock: Clock = monotonic,
        *,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`headers` are sent with every call. Must be created inside the event loop.

        `tls` is the context for an address with https, by default that of the system.
        """
        self._descriptors = descriptors or Descriptors()
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._proxy = proxy_for(base_url)
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                clock,
                limit=0,
                keepalive_timeout=POOL_KEEPALIVE_S,
                ttl_dns_cache=10,
                resolver=AiohttpResolver(resolver or Resolver()),
                ssl=tls or True,
                socket_factory=self._socket,
            ),
            headers=list(headers),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=["user-agent", "content-type", "accept", "accept-encoding"],
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

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
        """See `Transport.send`."""
        length = sum(map(len, body))
        url = URL((self._base_url.removesuffix("/v1") if options.at_root else self._base_url) + path, encoded=True)
        fields = [*headers, ("content-length", str(length))]
        try:
            async with asyncio.timeout_at(deadline):
                for left in reversed(range(DESCRIPTOR_TRIES)):
                    try:
                        answer = await self._ask(options.method, url, fields, body, length, connect_s)
                        break
                    except aiohttp.ClientConnectorError as error:
                        short = left and out_of_descriptors(error.os_error)
                        if not short or not await self._descriptors.relieve():
                            raise
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failure(error, timeout_cause) from error
        # Two defects that aiohttp's client accepts.
        if answer.status < 200 or answer.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            answer.close()
            raise malformed(self._name)
        return AiohttpExchange(self._name, answer)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        sock = socket.socket(*address[:3])
        self._descriptors.note_upstream(sock.fileno())
        return sock

    async def _ask(
        self, method: str, url: URL, fields: list[tuple[str, str]], body: Pieces, length: int, connect_s: float
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            url,
            data=b"".join(body) if length <= _ONE_WRITE else _each(body),
            headers=fields,
            allow_redirects=False,
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s),
        )

    async def close(self) -> None:
        """Close the session and its connections."""
        await self._session.close()

    def _failure(self, error: Exception, timeout_cause: Cause) -> UpstreamFailure:
        name = self._name
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            message = f"Upstream `{name}` cannot be reached: its host did not accept a connection in time."
            return UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT)
        if isinstance(error, TimeoutError):
            message = f"Upstream `{name}` did not begin to answer in time."
            return UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=timeout_cause)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            message = f"The proxy has no way to upstream `{name}`: it answered with status {error.status}."
            return UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT)
        if (cause := connect_cause(error)) is not None:
            return failure_of(name, cause)
        if isinstance(error, aiohttp.ClientResponseError | ValueError):
            return malformed(name)
        message = f"Upstream `{name}` closed the connection before it answered."
        return UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET)


class AiohttpExchange:
    """An `Exchange` over one ClientResponse."""

    def __init__(self, name: str, answer: aiohttp.ClientResponse) -> None:
        self._name = name
        self._answer = answer
        self._pump_task: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._reading.set()
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def read(self, limit: int, deadline: float) -> bytes:
        """See `Exchange.read`."""
        pieces: list[bytes] = []
        length = 0
        content = self._answer.content
        try:
            async with asyncio.timeout_at(deadline):
                while piece := await content.readany():
                    length += len(piece)
                    if length > limit:
                        self.abort()
                        raise too_large(self._name, limit)
                    pieces.append(piece)
        except TimeoutError as error:
            self.abort()
            message = f"Upstream `{self._name}` did not finish its answer in time."
            raise UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=TOTAL) from error
        except (aiohttp.ClientError, OSError) as error:
            self.abort()
            raise self._cut_short() from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pump(self, sink: BodySink) -> None:
        """Start the task that feeds the sink."""
        self._pump_task = asyncio.get_running_loop().create_task(self._pump(sink))

    async def _pump(self, sink: BodySink) -> None:
        content = self._answer.content
        try:
            while piece := await content.readany():
                sink.data(piece)
                if not self._reading.is_set():
                    await self._reading.wait()
        except (aiohttp.ClientError, OSError):
            self._answer.close()
            sink.failed(self._cut_short())
        else:
            sink.ended()

    def pause(self) -> None:
        """Stop reading; aiohttp pauses the socket once its own small buffer is full."""
        self._reading.clear()

    def resume(self) -> None:
        """Continue reading."""
        self._reading.set()

    def abort(self) -> None:
        """Close the connection, unless its answer is complete and it is back in the pool."""
        if self._pump_task is not None and self._pump_task is not asyncio.current_task():
            self._pump_task.cancel()
        self._answer.close()

    def _cut_short(self) -> UpstreamFailure:
        return UpstreamFailure(UPSTREAM_ERROR, f"Upstream `{self._name}` broke off its answer.", cause=RESET)


def malformed(name: str) -> UpstreamFailure:
    """The failure of an upstream whose answer is not valid HTTP/1.1."""
    return UpstreamFailure(UPSTREAM_INVALID_RESPONSE, f"Upstream `{name}` answered with malformed HTTP.", cause=INVALID)


def connect_cause(error: BaseException) -> OSError | None:
    """The system's error behind aiohttp's, if a connection or a TLS handshake failed, or None."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner: Exception = error.certificate_error
        return inner if isinstance(inner, OSError) else None
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error
    return error if isinstance(error, ssl.SSLError) else None


def proxy_for(base_url: str) -> str | None:
    """The HTTP proxy that the environment names for this address, or None."""
    parts = urlsplit(base_url)
    if proxy_bypass(parts.netloc):
        return None
    return getproxies_environment().get(parts.scheme)


async def _each(pieces: Pieces) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
