"""Finds the Redis server to talk to: the one of the URL, a cluster's for one slot, or the one that sentinels name.

All names that one connection uses share a hash tag, so in a cluster one node serves them all. It is found by
its MOVED replies; the other nodes are remembered, to ask them when that one is gone.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis, Sentinel
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, ResponseError

from gateway.core.units import Secret

_SENTINEL: Final = "+sentinel"
_SENTINEL_PORT: Final = 26379
_SENTINEL_TIMEOUT_S: Final = 0.3
MAX_HOPS: Final = 5
"""Nodes that are asked one after the other because each names the next."""

_UNKNOWN_HOST: Final = ("", "?")
"""How a cluster's node names a host that it does not know: the client keeps the one that it used."""

_NOT_LOCATED: Final = "sentinel.invalid"
"""The host while the sentinels have not been asked yet."""

_Address = tuple[str, int]


class RedisServers:
    """The servers behind one URL, and which of them to connect to next."""

    def __init__(self, url: Secret, **options: Any) -> None:
        """`options` are those of redis-py's connection."""
        text = url.reveal()
        scheme, _, rest = text.partition("://")
        self.tls: Final = scheme.startswith("rediss")
        self._sentinels: list[_Address] = []
        self._service = ""
        if scheme.endswith(_SENTINEL):
            text, self._sentinels, self._service = _sentinels(scheme.removesuffix(_SENTINEL), rest)
        pool = ConnectionPool.from_url(text, retry=Retry(NoBackoff(), 0), **options)
        self._class: type[AbstractConnection] = pool.connection_class
        self._arguments: dict[str, Any] = pool.connection_kwargs
        first = self._arguments.get("host", "localhost"), self._arguments.get("port", 6379)
        self._first: _Address = first
        self._nodes: list[_Address] = [first]
        self._at: _Address = first

    @property
    def where(self) -> str:
        """The address of the server to connect to, for messages."""
        if "path" in self._arguments:
            return str(self._arguments["path"])
        if self._at[0] == _NOT_LOCATED:
            return ", ".join(f"{host}:{port}" for host, port in self._sentinels)
        host, port = self._at
        return f"{host}:{port}"

    async def locate(self) -> None:
        """Ask the sentinels, if the URL names any, where the master is now."""
        if self._sentinels:
            self._at = await self._master()

    def connection(self) -> AbstractConnection:
        """A new connection, not opened yet."""
        return self._class(**self._connect_to())

    async def client(self, key: str) -> Redis:
        """A client of the server that has this key."""
        await self.locate()
        for _ in range(MAX_HOPS):
            connection = self.connection()
            try:
                await connection.send_command("EXISTS", key, check_health=False)
                await connection.read_response()
            except MovedError as error:
                self.follow(error)
                continue
            except ResponseError:  # what is wrong shows at the next command
                pass
            else:
                await self.learn(connection)
            finally:
                await connection.disconnect()
            break
        return Redis.from_pool(ConnectionPool(connection_class=self._class, **self._connect_to()))

    def _connect_to(self) -> dict[str, Any]:
        if "path" in self._arguments:
            return self._arguments
        host, port = self._at
        return self._arguments | {"host": host, "port": port}

    def follow(self, moved: MovedError) -> None:
        """Connect to the node that this reply names."""
        host, port = moved.node_addr
        self._at = self._known_host(host), port
        if self._at not in self._nodes:
            self._nodes.append(self._at)

    async def learn(self, connection: AbstractConnection) -> None:
        """Remember the other nodes, if this is a cluster."""
        await connection.send_command("CLUSTER", "SLOTS", check_health=False)
        try:
            slots = await connection.read_response()
        except ResponseError:  # no cluster, or a user without this right
            return
        nodes = {self._at: None}
        for host, port in _nodes(slots):
            nodes[self._known_host(host), port] = None
        # The URL's own address comes last: it may be a name that stands for any of them.
        self._nodes = list(nodes | {self._first: None})

    def give_up(self) -> None:
        """Connect to another known server next: this one cannot be reached."""
        at = self._nodes.index(self._at) if self._at in self._nodes else -1
        self._at = self._nodes[(at + 1) % len(self._nodes)]

    def _known_host(self, host: str) -> str:
        return self._at[0] if host in _UNKNOWN_HOST else host

    async def _master(self) -> _Address:
        login = {name: self._arguments.get(name) for name in ("username", "password")}
        common: dict[str, Any] = {
            "ssl": self.tls,
            "socket_timeout": _SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": _SENTINEL_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
        }
        # Few sentinels have a password of their own, and then it is mostly that of their Redis.
        for extra in ({}, login) if login["password"] else ({},):
            make: Callable[..., Sentinel] = Sentinel  # untyped in redis-py
            sentinel = make(self._sentinels, sentinel_kwargs=common | extra)
            try:
                host, port = await sentinel.discover_master(self._service)
                return str(host), int(port)
            except MasterNotFoundError:
                pass
            finally:
                for client in sentinel.sentinels:
                    await client.aclose()
        asked = ", ".join(f"{host}:{port}" for host, port in self._sentinels)
        raise MasterNotFoundError(f"no sentinel ({asked}) knows a living master named {self._service}")


def _sentinels(scheme: str, rest: str) -> tuple[str, list[_Address], str]:
    """The URL of a Redis with this login and database, the sentinels' addresses, and the service's name."""
    login, at, tail = rest.rpartition("@")
    hosts, _, path = tail.partition("/")
    path, mark, query = path.partition("?")
    service, _, database = path.partition("/")
    addresses: list[_Address] = []
    for one in hosts.split(","):
        parts = urlsplit(f"//{one}")
        addresses.append((parts.hostname or "", parts.port or _SENTINEL_PORT))
    return f"{scheme}://{login}{at}{_NOT_LOCATED}/{database}{mark}{query}", addresses, service


def _nodes(slots: Any) -> Iterable[_Address]:
    """The nodes in a reply to CLUSTER SLOTS: first and last slot, then name, port and more of each node."""
    for entry in slots if isinstance(slots, list) else ():
        for node in entry[2:] if isinstance(entry, list) else ():
            if isinstance(node, list) and len(node) >= 2:
                host, port = node[:2]
                yield (host.decode() if isinstance(host, bytes) else str(host or "")), int(port)
