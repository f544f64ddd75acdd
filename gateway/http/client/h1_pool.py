"""Upstream connections of the lean kind: a keep-alive pool that costs a call almost nothing.

The most recently used connection is taken first, so that a quiet pool shrinks; one that has been idle for
`POOL_KEEPALIVE_S` is closed. Names are resolved anew for every connection, and several addresses are tried as
RFC 8305 says (happy eyeballs, by aiohappyeyeballs).
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from gateway.core.clock import Clock
from gateway.core.errors import (
    CONNECT,
    TLS,
    UPSTREAM_ERROR,
    UPSTREAM_TIMEOUT,
    UPSTREAM_UNAVAILABLE,
    Cause,
    UpstreamFailure,
)
from gateway.http.client.h1_connection import H1Connection, StaleConnection
from gateway.http.client.transport import POOL_KEEPALIVE_S, Exchange, Pieces
from gateway.http.ticker import Ticker

_NEXT_ADDRESS_S = 0.25  # RFC 8305: how long one address is tried alone
_UNTAKEN_MS = 30_000  # what is not acknowledged for so long went to nobody; Linux would wait for 15 minutes
_Address = tuple[Any, Any, int, str, Any]  # as `getaddrinfo` gives them


class H1Transport:
    """A `Transport`; also the pool of its connections, and the watcher over their deadlines."""

    def __init__(
        self, name: str, base_url: str, headers: Sequence[tuple[str, str]], sweep: Ticker, clock: Clock
    ) -> None:
        """`headers` go out with every call. Must be created inside the event loop."""
        parts = urlsplit(base_url)
        self._name = name
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        fixed = [("host", parts.netloc), *((key, value) for key, value in headers if key != "host")]
        self._fixed = "".join(f"{key}: {value}\r\n" for key, value in fixed)
        self._sweep = sweep
        self._clock = clock
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
        late: Cause,
    ) -> Exchange:
        """POST and wait for the head, as `Transport` says."""
        length = sum(map(len, body))
        own = "".join([f"{name}: {value}\r\n" for name, value in headers])
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\n{self._fixed}{own}content-length: {length}\r\n\r\n".encode(
                "latin-1"
            )
        )
        connection = self._idle.pop() if self._idle else await self._connect(connect_s, deadline)
        while True:
            connection.deadline, connection.late = deadline, late
            self._busy.add(connection)
            self._sweep.add(self)
            exchange = connection.send(head, body, length)
            try:
                await exchange.head()
            except BaseException:
                exchange.abort()
                raise
            if (failure := exchange.failure) is None:
                return exchange
            if not isinstance(failure, StaleConnection):
                raise failure
            # Closed just as it was used again; nothing has been answered, so a new one may try.
            connection = await self._connect(connect_s, deadline)

    async def _connect(self, connect_s: float, deadline: float) -> H1Connection:
        loop = asyncio.get_running_loop()
        timeout = min(connect_s, deadline - self._clock())
        try:
            async with asyncio.timeout(timeout):
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                sock = await start_connection(
                    self._in_turn(found), happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1
                )
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if sys.platform == "linux":
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNTAKEN_MS)
                _, connection = await loop.create_connection(
                    lambda: H1Connection(self, self._name),
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
        except TimeoutError as error:
            message = f"Upstream `{self._name}` did not accept a connection in time."
            raise UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT) from error
        except ssl.SSLError as error:
            message = f"The TLS handshake with upstream `{self._name}` failed."
            raise UpstreamFailure(UPSTREAM_ERROR, message, cause=TLS) from error
        except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
            message = f"Upstream `{self._name}` cannot be reached."
            raise UpstreamFailure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT) from error
        return connection

    def _in_turn(self, found: list[_Address]) -> list[_Address]:
        """Each address of the preferred family is the first in its turn: a name may be many servers."""
        alike = [one for one in found if one[0] == found[0][0]]
        at = self._connects % (len(alike) or 1)
        self._connects += 1
        return [*alike[at:], *alike[:at], *(one for one in found if one[0] != found[0][0])]

    def release(self, connection: H1Connection) -> None:
        """Pool: an answer is complete and its connection stays open."""
        self._busy.discard(connection)
        connection.deadline = 0.0
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def discard(self, connection: H1Connection) -> None:
        """Pool: a connection is closed."""
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def tick(self, now: float) -> None:
        """Watcher: calls that are late, and connections that have been idle for too long."""
        for connection in tuple(self._busy):
            if 0.0 < connection.deadline < now:
                message = f"Upstream `{self._name}` did not answer in time."
                connection.fail(UpstreamFailure(UPSTREAM_TIMEOUT, message, cause=connection.late))
        # The list is in the order of idleness, because connections are taken from its end.
        while self._idle and now - self._idle[0].idle_since > POOL_KEEPALIVE_S:
            self._idle.pop(0).close()
        if not self._busy and not self._idle:
            self._sweep.discard(self)

    async def close(self) -> None:
        """Close every connection."""
        self._sweep.discard(self)
        for connection in (*self._busy, *self._idle):
            connection.close()
