"""A cluster of three real redis-servers, or a master with its replica and a sentinel, started by the test."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from doubles.redis_server import RedisServer

_LAST_SLOT: Final = 16383


class RedisCluster:
    """Three masters that share the slots, and optionally a replica of each."""

    def __init__(self, folder: Path, *options: str, replicas: bool = False) -> None:
        """`options` are added to each node's command line."""
        self._stack = ExitStack()
        self.nodes = [cluster_node(folder, name, options) for name in ("a", "b", "c")]
        self.replicas = [cluster_node(folder, name, options) for name in ("d", "e", "f")] if replicas else []

    def __enter__(self) -> Self:
        servers = [*self.nodes, *self.replicas]
        for server in servers:
            self._stack.enter_context(server)
        for index, node in enumerate(self.nodes):
            first, last = index * (_LAST_SLOT + 1) // 3, (index + 1) * (_LAST_SLOT + 1) // 3 - 1
            assert node.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)).startswith(b"+OK")
            assert node.command("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1)).startswith(b"+OK")
        for server in servers[1:]:
            bus = server.command("CONFIG", "GET", "cluster-port").split(b"\r\n")[-2].decode()
            servers[0].command("CLUSTER", "MEET", "127.0.0.1", str(server.port), bus)
        until(lambda: all(_knows(server, len(servers)) for server in servers))
        for node, replica in zip(self.nodes, self.replicas, strict=False):
            name = node.command("CLUSTER", "MYID").split(b"\r\n")[1].decode()
            until(lambda of=name, one=replica: one.command("CLUSTER", "REPLICATE", of).startswith(b"+OK"))
        until(lambda: all(b"master_link_status:up" in one.command("INFO", "replication") for one in self.replicas))
        until(lambda: all(b"cluster_state:ok" in server.command("CLUSTER", "INFO") for server in servers))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def owner(self, key: str) -> RedisServer:
        """The node of a key's slot."""
        return next(node for node in self.nodes if not node.command("EXISTS", key).startswith(b"-MOVED"))


class RedisSentinel(RedisServer):
    """A sentinel that watches one master under a name."""

    def __init__(self, folder: Path, name: str, master: RedisServer, password: str) -> None:
        folder.mkdir()
        file = folder / "sentinel.conf"
        file.write_text(
            f"sentinel monitor {name} 127.0.0.1 {master.port} 1\n"
            f"sentinel auth-pass {name} {password}\n"
            f"sentinel down-after-milliseconds {name} 300\n"
            f"sentinel failover-timeout {name} 1000\n",
            encoding="utf-8",
        )
        super().__init__(folder, before=(str(file), "--sentinel"))


def until(done: Callable[[], bool], within: float = 30.0) -> None:
    """Wait until servers of other processes have come this far."""
    deadline = time.monotonic() + within
    while not done():
        assert time.monotonic() < deadline, "the servers have not come to agree"
        time.sleep(0.02)


def cluster_node(folder: Path, name: str, options: tuple[str, ...] = ()) -> RedisServer:
    """A server in cluster mode, without slots and not started."""
    inside = folder / name
    inside.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bus = free.getsockname()[1]  # its usual place, 10,000 above the port, may be no port at all
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "500")
    return RedisServer(inside, *cluster, *options)


def _knows(server: RedisServer, count: int) -> bool:
    return server.command("CLUSTER", "NODES").count(b" connected") == count
