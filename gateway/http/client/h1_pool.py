"""The `httptools` transport: a keep-alive pool of HTTP/1.1 connections with very little overhead per call.

The most recently used connection is reused first, so a quiet pool shrinks: one that is idle for
`POOL_KEEPALIVE_S` is closed, and one that is older than `MAX_AGE_S` is not reused. Every new connection
resolves the name again and tries several addresses by RFC 8305 (happy eyeballs, with aiohappyeyeballs).
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from gateway.core.clock import Clock
from gateway.core.errors import (
    CONNECT,
    RESET,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Cause,
    UpstreamFailure,
)
from gateway.http.client.connect_errors import failure_of, out_of_descriptors
from gateway.http.client.h1_connection import H1Connection, StaleConnection, closed_early
from gateway.http.client.resolver import Address, Resolver
from gateway.http.client.transport import MAX_AGE_S, PLAIN, POOL_KEEPALIVE_S, Exchange, Pieces, SendOptions
from gateway.http.descriptors import DESCRIPTOR_TRIES, Descriptors
from gateway.http.ticker import Ticker

_NEXT_ADDRESS_S = 0.25  # RFC 8305's delay before the next address is tried in parallel
_UNACKNOWLEDGED_MS = 30_000  # TCP gives up on a silent peer after this; Linux's default is 15 minutes
_AGES = 16  # connections opened together are replaced over this many seconds


class H1Transport:
    """A `Transport`: the pool of its connections, which also enforces their deadlines."""

    def __init__(
        self,
        name: str,
        base_url: str,
        headers: Sequence[tuple[str, str]],
        ticker: Ticker,
        clock: Clock,
        *,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`headers` are sent with every call. Must be created inside the event loop.

        `tls` is the context for an address with https, by default that of the system.
        """
        parts = urlsplit(base_url)
        self._name = name
        self._host = parts.hostname or ""
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        self._root = self._path.removesuffix("/v1")
        fixed = [("host", parts.netloc), *((key, value) for key, value in headers if key != "host")]
        self._fixed = "".join(f"{key}: {value}\r\n" for key, value in fixed)
        self._untyped = "".join(f"{key}: {value}\r\n" for key, value in fixed if key != "content-type")
        self._ticker = ticker
        self._clock = clock
        self._resolver = resolver or Resolver()
        self._descriptors = descriptors or Descriptors()
        self._connects = 0
        self._idle: list[H1Connection] = []
        self._busy: set[H1Connection] = set()

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
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        base, fixed = self._path, self._fixed
        if options is not PLAIN:
            base, fixed = self._root if options.at_root else base, self._untyped if options.typed else fixed
        text = f"{options.method} {base}{path} HTTP/1.1\r\n{fixed}{lines}content-length: {length}\r\n\r\n"
        head = text.encode("latin-1")
        stale: StaleConnection | None = None
        connection = self._idle.pop() if self._idle else await self._connect(connect_s, deadline)
        while True:
            connection.deadline, connection.timeout_cause = deadline, timeout_cause
            self._busy.add(connection)
            self._ticker.add(self)
            exchange = connection.send(head, body, length)
            try:
                await exchange.head()
            except BaseException:
                exchange.abort()
                raise
            if (failure := exchange.failure) is None:
                return exchange
            if not isinstance(failure, StaleConnection):
                if stale is not None and isinstance(failure, UpstreamFailure) and failure.cause == RESET:
                    failure.sendings = 2  # so the first close was no coincidence
                raise failure
            # The idle connection closed just as it was reused. Nothing was answered: try a new connection.
            if not resend:
                raise closed_early(self._name)
            stale = failure
            try:
                connection = await self._connect(connect_s, deadline)
            except UpstreamFailure:
                if stale.received:  # it did not close an idle connection, it died
                    raise closed_early(self._name) from None
                raise

    async def _connect(self, connect_s: float, deadline: float) -> H1Connection:
        loop = asyncio.get_running_loop()
        timeout = min(connect_s, deadline - self._clock())
        step = "name could not be looked up"
        try:
            async with asyncio.timeout(timeout):
                addresses = self._rotate(await self._resolver.addresses(self._host, self._port))
                step = "host did not accept a connection"
                sock = await self._open(addresses)
                step = "host did not finish the TLS handshake"
                try:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if sys.platform == "linux":
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
                    _, connection = await loop.create_connection(
                        lambda: H1Connection(self, self._name),
                        sock=sock,
                        ssl=self._tls,
                        server_hostname=self._host if self._tls else None,
                    )
                except BaseException:
                    sock.close()  # the event loop closes it only once it has a transport
                    raise
        except TimeoutError as error:
            message = f"Upstream `{self._name}` cannot be reached: its {step} in time."
            raise UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name at all
            raise failure_of(self._name, error) from error
        connection.reusable_until = self._clock() + MAX_AGE_S + self._connects % _AGES
        return connection

    async def _open(self, addresses: Sequence[Address]) -> socket.socket:
        """A connected socket; idle clients are closed where descriptors are short."""
        for left in reversed(range(DESCRIPTOR_TRIES)):
            try:
                sock = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1)
                break
            except OSError as error:
                # What was freed may be taken by a call that has just arrived.
                if not left or not out_of_descriptors(error) or not await self._descriptors.relieve():
                    raise
        self._descriptors.note_upstream(sock.fileno())
        return sock

    def _rotate(self, addresses: Sequence[Address]) -> list[Address]:
        """Round-robin over the addresses of the preferred family: one name may stand for many servers."""
        family = addresses[0][0] if addresses else None
        preferred = [address for address in addresses if address[0] == family]
        at = self._connects % (len(preferred) or 1)
        self._connects += 1
        return [*preferred[at:], *preferred[:at], *(each for each in addresses if each[0] != family)]

    def release(self, connection: H1Connection) -> None:
        """ConnectionPool: the answer is complete and the connection stays open."""
        self._busy.discard(connection)
        connection.deadline = 0.0
        connection.idle_since = now = self._clock()
        if now < connection.reusable_until:
            self._idle.append(connection)
        else:
            connection.close()

    def discard(self, connection: H1Connection) -> None:
        """ConnectionPool: the connection is closed."""
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def tick(self, now: float) -> None:
        """Tickable: fail calls past their deadline and close connections idle for too long."""
        for connection in tuple(self._busy):
            if 0.0 < connection.deadline < now:
                message = f"Upstream `{self._name}` did not answer in time."
                connection.fail(UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=connection.timeout_cause))
        # Connections are reused from the end, so the longest idle ones are first.
        while self._idle and now - self._idle[0].idle_since > POOL_KEEPALIVE_S:
            self._idle.pop(0).close()
        if not self._busy and not self._idle:
            self._ticker.discard(self)

    async def close(self) -> None:
        """Close every connection."""
        self._ticker.discard(self)
        for connection in (*self._busy, *self._idle):
            connection.close()
