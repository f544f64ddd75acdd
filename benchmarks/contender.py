"""One process under test: it is started, polled until it serves, and stopped."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import memory_bytes, on_core, tree

ROOT = Path(__file__).parent.parent
START_LIMIT = 90.0  # seconds; LiteLLM takes some 20 of them


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serving(folder: Path, config: Mapping[str, object]) -> list[str]:
    """The command line of a gateway with this config, which it writes into the folder."""
    file = folder / "sluice.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    return [sys.executable, "-m", "gateway", "serve", "--config", str(file)]


class Contender:
    """One process (tree) under test, on a core of its own, between `start` and `stop`."""

    name = ""
    ready_path = "/health"  # answers 200 once the contender serves
    model = "bench-model"  # the name that clients ask for
    key = "sk-bench-0123456789abcdef"
    loads: frozenset[str] = frozenset()  # the loads it takes part in, by name; none: all

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def version(cls) -> str:
        """Its version in the table; empty for code of this repository."""
        return ""

    @classmethod
    def missing(cls) -> str:
        """How to install it; empty if it can run."""
        return ""

    def command(self) -> list[str]:
        """The command line; files it needs are written into `folder`."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """Its environment; None inherits this process's."""
        return None

    def headers(self) -> dict[str, str]:
        """Headers that each call needs beside the key."""
        return {}

    def pulse(self) -> tuple[int, str]:
        """Port and path of the cheapest GET that shows the lag of the contender's event loop."""
        return self.port, self.ready_path

    @property
    def pid(self) -> int:
        """The root of the process tree."""
        assert self.process is not None
        return self.process.pid

    def start(self, core: int) -> None:
        """Start it and wait until it serves. Raises RuntimeError with the end of its output."""
        with on_core(core), (self.folder / "output").open("wb") as output:
            process = self.process = subprocess.Popen(
                self.command(), cwd=self._home(), env=self.environment(), stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_LIMIT
        while not self._ready():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} does not serve: {said or 'no output'}")
            time.sleep(0.05)
        self.memory_at_start = memory_bytes(tree(process.pid))

    def _home(self) -> Path:
        return ROOT if self.environment() is None else self.folder

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """End it, if it was started, and remove its files."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
