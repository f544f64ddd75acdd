"""What the checks of limits run: a gateway with limited keys, a Redis, and an upstream that keeps count."""

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from benchmarks import upstream
from benchmarks.contender import Contender, free_port, serving

MODEL = "bench-model"


class Redis(Contender):
    """A redis-server without files, which may be stopped and killed."""

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
        """One command on a connection of its own; the start of its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(words.encode() + b"\r\n")
            return link.recv(65536)

    def kill(self) -> None:
        """What it held is lost; `start` brings an empty one."""
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
        """`slots` is the upstream's max_concurrency, `waiting` how many may wait for one."""
        super().__init__(upstream_port)
        self.admin_port = free_port()
        self.config: dict[str, Any] = {
            "server": {"port": self.port, "max_queue": waiting},
            "admin": {"port": self.admin_port},
            "keys": [
                {"name": name, "key": f"sk-bench-{name}", "limits": limits} for name, limits in keys.items()
            ],
            "upstreams": {
                "fake": {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "max_concurrency": slots}
            },
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
    """`benchmarks.slow_engine`; SIGUSR1 makes it stand still, SIGUSR2 go on."""

    name, ready_path = "engine", "/v1/models"

    def __init__(self, slots: int) -> None:
        super().__init__(0)
        self._slots = slots

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.slow_engine", str(self.port), str(self._slots)]


class Counting(upstream.Upstream):
    """The fake upstream, answering after `seconds(body)` and telling `seen(body)` and `gone(body)`."""

    def __init__(
        self,
        seconds: Callable[[bytes], float],
        seen: Callable[[bytes], None],
        gone: Callable[[bytes], None],
    ) -> None:
        self.seconds, self.seen, self.gone = seconds, seen, gone
        self.asked: bytes | None = None

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"GET":
            super().on_message_complete()
            return
        self.asked, self.body = bytes(self.body), bytearray()
        self.seen(self.asked)
        asyncio.get_running_loop().call_later(self.seconds(self.asked), self.answer)

    def answer(self) -> None:
        """The call is over."""
        if self.asked is not None:
            self.over()
            self.transport.write(upstream.CHAT)

    def over(self) -> None:
        """No more of it."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            self.gone(asked)

    def connection_lost(self, error: Exception | None) -> None:
        self.over()


class Client:
    """One keep-alive connection with one key."""

    def __init__(self, port: int, key: str, text: str, **more: object) -> None:
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}], **more}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer sk-bench-{key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._port, self._request = port, head.encode() + body
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> tuple[int, dict[str, str], float]:
        """Status, headers, and the seconds it took. OSError or EOFError when the connection breaks."""
        begin = monotonic()
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            await reader.readexactly(int(headers["content-length"]))
        except (OSError, EOFError):
            self.close()
            raise
        return int(head[0].split()[1]), headers, monotonic() - begin

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
