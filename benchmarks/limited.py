"""The parts of the benchmarks of limits: a gateway with limited keys, a Redis, an engine, clients."""

import asyncio
import shutil
import socket
import sys
from time import monotonic
from typing import Any

from benchmarks.client import CHAT, Connection, post
from benchmarks.contender import Contender, free_port, serving

MODEL = "bench-model"


class Redis(Contender):
    """A redis-server without files."""

    name = "redis"

    def command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("needs redis-server: apt-get install redis-server")
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]

    @property
    def section(self) -> dict[str, str]:
        """The gateway's `redis`, all defaults."""
        return {"url": f"redis://127.0.0.1:{self.port}/0"}

    def ask(self, words: str) -> bytes:
        """Send one command on a new connection; returns the start of its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(words.encode() + b"\r\n")
            return link.recv(65536)

    def kill(self) -> None:
        """Kill it with its data; `start` starts an empty one."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _ready(self) -> bool:
        try:
            return self.ask("PING").startswith(b"+PONG")
        except OSError:
            return False


class Limited(Contender):
    """A gateway with these keys (`limits` by name; a key's text is `sk-bench-` and its name)."""

    name = "sluice"

    def __init__(
        self,
        upstream_port: int,
        keys: dict[str, dict[str, float]],
        redis: Redis | None = None,
        *,
        slots: int = 10_000,
        waiting: int = 10_000,
    ) -> None:
        """`slots` is the upstream's max_concurrency, `waiting` the server's max_queue."""
        super().__init__(upstream_port)
        self.admin_port = free_port()
        self.config: dict[str, Any] = {
            "server": {"port": self.port, "max_queue": waiting},
            "admin": {"port": self.admin_port},
            "keys": [{"name": name, "key": f"sk-bench-{name}", "limits": limits} for name, limits in keys.items()],
            "upstreams": {"fake": {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "max_concurrency": slots}},
            "models": {MODEL: {"candidates": [{"upstream": "fake", "model": "fake-model"}]}},
            "usage": {"store": "off"},
            "log": {"level": "error"},
        }
        if redis is not None:
            self.config["redis"] = redis.section

    def command(self) -> list[str]:
        return serving(self.folder, self.config)

    async def gauge(self, name: str) -> float:
        """The sum of a series of `/metrics`; 0 without any."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        found = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)


class SlowEngine(Contender):
    """The fake upstream with slots; SIGUSR1 stops it, SIGUSR2 resumes it."""

    name, ready_path = "engine", "/v1/models"

    def __init__(self, slots: int) -> None:
        super().__init__(0)
        self._slots = slots

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.fake_upstream", "slow", str(self.port), str(self._slots)]


class Client(Connection):
    """A connection that repeats one chat call with one key."""

    def __init__(self, port: int, key: str, text: str, **fields: object) -> None:
        super().__init__(port)
        self._request = chat(key, text, **fields)

    async def ask(self) -> tuple[int, dict[str, str], float]:
        """Status, headers, and the seconds it took. OSError or EOFError when the connection breaks."""
        begin = monotonic()
        response = await self.request(self._request)
        return response.status, response.headers, monotonic() - begin


def chat(key: str, text: str, **fields: object) -> bytes:
    """A chat request with the key of this name, as it goes over the wire."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
    return post(CHAT, body, f"sk-bench-{key}")
