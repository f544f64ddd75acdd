"""Upstream connections by aiohttp's client, with everything off that a proxy must not do.

No redirects (they would carry the key along), no cookies (they would be shared between clients), no
decompression, no limit on connections (limits are the gateway's own). Of the environment only HTTP_PROXY,
HTTPS_PROXY and NO_PROXY count, not ~/.netrc: an HTTP proxy is what this transport is chosen for.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from gateway.core.errors import (
    CONNECT,
    INVALID,
    RESET,
    TLS,
    TOTAL,
    UPSTREAM_ERROR,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Cause,
    UpstreamFailure,
)
from gateway.http.client.transport import MAX_HEADER_BYTES, POOL_KEEPALIVE_S, BodySink, Exchange, Pieces

_ONE_WRITE = 256 * 1024  # bytes up to which joining the pieces is cheaper than sending them one by one


class AiohttpTransport:
    """A `Transport` over one ClientSession."""

    def __init__(self, name: str, base_url: str, headers: Sequence[tuple[str, str]]) -> None:
        """`headers` go out with every call. Must be created inside the event loop."""
        self._name = name
        self._base_url = base_url.rstrip("/")
        self._proxy = proxy_for(base_url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=POOL_KEEPALIVE_S, ttl_dns_cache=10),
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
        late: Cause,
    ) -> Exchange:
        """POST and wait for the head, as `Transport` says."""
        length = sum(map(len, body))
        data = b"".join(body) if length <= _ONE_WRITE else _each(body)
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._session.post(
                    URL(self._base_url + path, encoded=True),
                    data=data,
                    headers=[*headers, ("content-length", str(length))],
                    allow_redirects=False,
                    proxy=self._proxy,
                    timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s),
                )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failure(error, late) from error
        # Two things that aiohttp's client lets pass.
        if answer.status < 200 or answer.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            answer.close()
            raise malformed(self._name)
        return AiohttpExchange(self._name, answer)

    async def close(self) -> None:
        """Close the session and its connections."""
        await self._session.close()

    def _failure(self, error: Exception, late: Cause) -> UpstreamFailure:
        name = self._name
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            message = f"Upstream `{name}` did not accept a connection in time."
            return UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT)
        if isinstance(error, TimeoutError):
            message = f"Upstream `{name}` did not begin to answer in time."
            return UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=late)
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError | ssl.SSLError):
            return UpstreamFailure(
                UPSTREAM_ERROR, f"The TLS handshake with upstream `{name}` failed.", cause=TLS
            )
        if isinstance(error, aiohttp.ClientConnectorError):
            return UpstreamFailure(
                UPSTREAM_UNAVAILABLE, f"Upstream `{name}` cannot be reached.", cause=CONNECT
            )
        if isinstance(error, aiohttp.ClientResponseError | ValueError):
            return malformed(name)
        message = f"Upstream `{name}` closed the connection before it answered."
        return UpstreamFailure(UPSTREAM_ERROR, message, cause=RESET)


class AiohttpExchange:
    """An `Exchange` over one ClientResponse."""

    def __init__(self, name: str, answer: aiohttp.ClientResponse) -> None:
        self._name = name
        self._answer = answer
        self._pumping: asyncio.Task[None] | None = None
        self._go_on = asyncio.Event()
        self._go_on.set()
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def read(self, limit: int, deadline: float) -> bytes:
        """The whole body, as `Exchange` says."""
        pieces: list[bytes] = []
        length = 0
        content = self._answer.content
        try:
            async with asyncio.timeout_at(deadline):
                while piece := await content.readany():
                    length += len(piece)
                    if length > limit:
                        self.abort()
                        message = f"The answer of upstream `{self._name}` is too large."
                        raise UpstreamFailure(UPSTREAM_INVALID_RESPONSE, message, cause=INVALID)
                    pieces.append(piece)
        except TimeoutError as error:
            self.abort()
            message = f"Upstream `{self._name}` did not finish its answer in time."
            raise UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=TOTAL) from error
        except (aiohttp.ClientError, OSError) as error:
            self.abort()
            raise self._died(error) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pump(self, sink: BodySink) -> None:
        """Start the task that feeds the sink."""
        self._pumping = asyncio.get_running_loop().create_task(self._pump(sink))

    async def _pump(self, sink: BodySink) -> None:
        content = self._answer.content
        try:
            while piece := await content.readany():
                sink.data(piece)
                if not self._go_on.is_set():
                    await self._go_on.wait()
        except (aiohttp.ClientError, OSError) as error:
            self._answer.close()
            sink.failed(self._died(error))
        else:
            sink.ended()

    def pause(self) -> None:
        """No more pieces; aiohttp then pauses the socket once its own small buffer is full."""
        self._go_on.clear()

    def resume(self) -> None:
        """Go on."""
        self._go_on.set()

    def abort(self) -> None:
        """Close the connection; one whose answer has been read to its end is in the pool already."""
        if self._pumping is not None and self._pumping is not asyncio.current_task():
            self._pumping.cancel()
        self._answer.close()

    def _died(self, error: Exception) -> UpstreamFailure:
        return UpstreamFailure(UPSTREAM_ERROR, f"Upstream `{self._name}` broke off its answer.", cause=RESET)


def malformed(name: str) -> UpstreamFailure:
    """The failure of an upstream that does not speak HTTP/1.1 as it should."""
    return UpstreamFailure(
        UPSTREAM_INVALID_RESPONSE, f"Upstream `{name}` answered with malformed HTTP.", cause=INVALID
    )


def proxy_for(base_url: str) -> str | None:
    """The HTTP proxy that the environment names for this address."""
    parts = urlsplit(base_url)
    if proxy_bypass(parts.netloc):
        return None
    return getproxies_environment().get(parts.scheme)


async def _each(pieces: Pieces) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
