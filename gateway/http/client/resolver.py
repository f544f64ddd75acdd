"""Names of upstreams to addresses, so that a name server that hangs holds up nobody but the name it hangs on.

`getaddrinfo` blocks a thread, and no timeout frees it: in a pool shared by all names, one name that hangs
starves the rest. Here every lookup has a daemon thread of its own, concurrent lookups of a name share one,
and a name has at most `MAX_THREADS` at a time. An address needs no lookup.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.core.clock import Clock, monotonic
from gateway.telemetry.logging import logger

HANGS_S: Final = 0.25
"""Seconds after which the last good addresses are used instead of waiting for a lookup."""
RETRY_S: Final = 5.0
"""Seconds after which a lookup is given up: the next call for its name starts another one."""
MAX_THREADS: Final = 2
"""Threads that may hang on one name at a time."""
LAST_GOOD_S: Final = 86_400.0
"""How long addresses stand in for a lookup that hangs or cannot be made (RFC 8767 recommends 1 to 3 days)."""

_ADDRESS: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}|[0-9A-Fa-f.]*:[^/\[\]]*")
_TEMPORARY: Final = frozenset({socket.EAI_AGAIN, socket.EAI_SYSTEM})
"""Errors that say that the name server did not answer, not that the name does not exist."""

Address = tuple[Any, Any, int, str, Any]
"""As `getaddrinfo` returns it."""
LookupOutcome = list[Address] | OSError | UnicodeError
Lookup = Callable[[str], list[Address]]
"""Blocks; raises OSError or UnicodeError."""


def system_lookup(host: str) -> list[Address]:
    """The system's own lookup, which blocks."""
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)


class _Name:
    """What is known of one name."""

    __slots__ = ("good", "good_at", "lookup", "started_at", "threads", "waited")

    def __init__(self) -> None:
        self.lookup: asyncio.Future[LookupOutcome] | None = None  # the newest one, while it runs
        self.started_at = 0.0
        self.threads = 0
        self.waited = False  # somebody has waited HANGS_S for the running lookup
        self.good: list[Address] = []
        self.good_at = 0.0


class Resolver:
    """Resolves names for one event loop. Must be used inside it; `now` of `clock` is in monotonic seconds."""

    def __init__(self, lookup: Lookup | None = None, clock: Clock = monotonic, hangs_s: float = HANGS_S) -> None:
        """`lookup` blocks and runs in threads; by default `system_lookup`."""
        self._lookup = lookup
        self._clock = clock
        self._hangs_s = hangs_s
        self._names: dict[str, _Name] = {}

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """All addresses of a host, in the system's order. OSError or UnicodeError if there are none.

        Waits as long as the lookup takes, unless earlier addresses can be used; the caller bounds the time.
        """
        if _ADDRESS.fullmatch(host):
            flags = socket.AI_NUMERICHOST
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        name = self._names.get(host) or self._names.setdefault(host, _Name())
        lookup = self._running(host, name)
        good = name.good if self._clock() - name.good_at <= LAST_GOOD_S else []
        if good and not lookup.done():
            if not name.waited:
                await asyncio.wait((lookup,), timeout=self._hangs_s)
            if not lookup.done():
                if not name.waited:
                    logger.warning("name lookup hangs; using the last addresses", extra={"host": host})
                name.waited = True
                return _with_port(good, port)
        # A wait does not cancel the lookup when this caller leaves: others share it.
        await asyncio.wait((lookup,))
        outcome = lookup.result()
        if isinstance(outcome, list):
            return _with_port(outcome, port)
        if good and isinstance(outcome, socket.gaierror) and outcome.errno in _TEMPORARY:
            return _with_port(good, port)
        # A new object: raised in several callers, one would collect their frames.
        raise type(outcome)(*outcome.args)

    def _running(self, host: str, name: _Name) -> "asyncio.Future[LookupOutcome]":
        """The lookup to wait for: the one that runs, unless it has been given up and a thread is free."""
        now, lookup = self._clock(), name.lookup
        if lookup is not None and (now - name.started_at < RETRY_S or name.threads >= MAX_THREADS):
            return lookup
        loop = asyncio.get_running_loop()
        started = name.lookup = loop.create_future()
        name.started_at, name.waited = now, name.waited and lookup is not None
        name.threads += 1
        thread = threading.Thread(
            target=self._look_up, args=(loop, host, name, started), name=f"resolve-{host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._done(name, started, OSError(f"no thread for the lookup: {error}"))
        return started

    def _look_up(
        self, loop: asyncio.AbstractEventLoop, host: str, name: _Name, future: "asyncio.Future[LookupOutcome]"
    ) -> None:
        outcome: LookupOutcome = OSError("the lookup failed")
        try:
            outcome = (self._lookup or system_lookup)(host)
        except (OSError, UnicodeError) as error:
            outcome = error
            outcome.__traceback__ = None
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._done, name, future, outcome)

    def _done(self, name: _Name, future: "asyncio.Future[LookupOutcome]", outcome: LookupOutcome) -> None:
        name.threads -= 1
        if isinstance(outcome, list) and outcome:
            name.good, name.good_at = outcome, self._clock()
        if name.lookup is future:
            name.lookup, name.waited = None, False
        if not future.done():
            future.set_result(outcome or OSError("the name has no address"))


class AiohttpResolver(AbstractResolver):
    """aiohttp's interface to a `Resolver`."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """See aiohttp."""
        return [
            ResolveResult(
                hostname=host,
                host=_numeric(address[4]),
                port=port,
                family=address[0],
                proto=address[2],
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._resolver.addresses(host, port)
            if family in (socket.AF_UNSPEC, address[0])
        ]

    async def close(self) -> None:
        """See aiohttp; the resolver is shared."""


def _with_port(addresses: list[Address], port: int) -> list[Address]:
    return [(*address[:4], (address[4][0], port, *address[4][2:])) for address in addresses]


def _numeric(sockaddr: Any) -> str:
    """The address as text, with the zone of a link-local one."""
    return str(socket.getnameinfo(sockaddr, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0])
