"""The gateway under test: in the test's event loop, or as a process started as a user starts it."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from doubles.rawclient import call

ROOT = Path(__file__).resolve().parents[2]


class Metrics:
    """One scrape, parsed."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name whose labels hold these; 0 without any."""
        return sum(
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        )


class InProcessGateway:
    """The gateway on the running event loop, on ports chosen by the system."""

    clocks: ClassVar[dict[str, Callable[[], float]]] = {}
    """`clock` and `unix` of gateways made from now on; empty: the real ones."""

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        # Imported here, so that the doubles and their tests work without the gateway's code.
        from gateway.assembly.gateway import Gateway
        from gateway.config.load import load

        file = folder / "sluice.yaml"
        file.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
        loaded = load(file, {})
        assert loaded.config is not None, loaded.problems
        self._gateway = Gateway(loaded.config, **self.clocks)
        self.port = 0
        self.admin_port = 0

    async def start(self) -> Self:
        """Opens both ports."""
        await self._gateway.start()
        self.port, self.admin_port = self._gateway.port, self._gateway.admin_port
        return self

    async def stop(self) -> None:
        """Drains and closes."""
        await self._gateway.stop()

    @property
    def url(self) -> str:
        """The main port's address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def metrics(self) -> Metrics:
        """Scrapes the admin port."""
        answer = await call(self.admin_port, "GET", "/metrics")
        assert answer.status == 200
        return Metrics(answer.body.decode())

    async def counted(self, name: str, count: float, **labels: str) -> None:
        """Waits until the series (`Metrics.value`) has this value; a call is counted after its last byte."""
        value = -1.0
        try:
            async with asyncio.timeout(20):
                while (value := (await self.metrics()).value(name, **labels)) != count:
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{name}{labels} is {value}, not {count}") from None

    async def outcome(self, outcome: str, count: int = 1, **labels: str) -> None:
        """Waits until so many requests had this outcome, no request had another, and nothing is in flight."""
        await self.counted("sluice_requests_total", count, outcome=outcome, **labels)
        await self.counted("sluice_requests_total", count)
        await self.counted("sluice_upstream_inflight", 0)


def _command_of(pid: str) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


StartGateway = Callable[[Mapping[str, Any]], Awaitable[InProcessGateway]]
"""The fixture `start_gateway`: starts a gateway with this config, which stops at the end of the test."""


class GatewayProcess:
    """`python -m gateway serve` as a process; use it in a `with`, which expects a clean end."""

    def __init__(self, config: Mapping[str, Any], folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self._config = folder / "sluice.yaml"
        self._config.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
        self._log = folder / "gateway.out"
        self._environ = {**os.environ, **(environ or {})}
        self.url = ""
        self.admin_url = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(self._config)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self._environ, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._await_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self.process.poll() is None:
                self.stop()
        finally:
            self.process.kill()
            self.process.wait(10)

    @property
    def port(self) -> int:
        """The main port."""
        return int(self.url.rpartition(":")[2])

    @property
    def admin_port(self) -> int:
        """The admin port."""
        return int(self.admin_url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Its output so far, stdout and stderr."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self, within: float = 60.0) -> None:
        """Ends it with SIGTERM; an AssertionError unless it exits 0."""
        self.terminate()
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended within {within} s: {self.log[-3000:]}") from None
        assert status == 0, self.log[-3000:]

    def metrics(self) -> Metrics:
        """Scrapes the admin port."""
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=10) as answer:
            return Metrics(answer.read().decode())

    def workers(self) -> list[int]:
        """The living worker processes; Python may have started other children."""
        parent = self.process.pid
        listed = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
        return [int(pid) for pid in listed if b"gateway.process.worker" in _command_of(pid)]

    def fds(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss(self) -> int:
        """Resident memory now, in bytes."""
        return self._memory("VmRSS")

    def peak_rss(self) -> int:
        """The largest resident memory so far, in bytes."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024

    def _await_ready(self, within: float = 60.0) -> None:
        until = time.monotonic() + within
        while time.monotonic() < until:
            assert self.process.poll() is None, f"it ended: {self.log[-3000:]}"
            if self._listening() and self._healthy():
                return
            time.sleep(0.02)
        raise AssertionError(f"not ready within {within} s: {self.log[-3000:]}")

    def _listening(self) -> bool:
        for line in self.log.splitlines():
            if line.startswith("{") and '"listening"' in line:
                event = json.loads(line)
                self.url, self.admin_url = event["url"], event["admin"]
                return True
        return False

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
