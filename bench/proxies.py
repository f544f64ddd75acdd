"""The contenders and how each is started. A further rival is one more small class in `CONTENDERS`."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import memory_bytes, on_core, tree

ROOT = Path(__file__).parent.parent
START_LIMIT = 90.0  # seconds; LiteLLM's kind takes long


def free_port() -> int:
    """A port of the loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Contender:
    """One process (tree) under test, on a core of its own, between `start` and `stop`."""

    name = ""
    ready_path = "/health"  # answers 200 once the contender serves
    model = "bench-model"  # the name that clients ask for
    key = "sk-bench-0123456789abcdef"

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line; files it needs are written into `folder`."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The root of the process tree."""
        assert self.process is not None
        return self.process.pid

    def start(self, core: int) -> None:
        """Start it and wait until it serves. Raises RuntimeError with the end of its output."""
        with on_core(core), (self.folder / "output").open("wb") as output:
            process = self.process = subprocess.Popen(self.command(), cwd=ROOT, stdout=output, stderr=output)
        deadline = time.monotonic() + START_LIMIT
        while not self._ready():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} does not serve: {said or 'no output'}")
            time.sleep(0.05)
        self.memory_at_start = memory_bytes(tree(process.pid))

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

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


class Upstream(Contender):
    """The fake upstream itself: as a contender it shows how much the harness can do without a proxy."""

    name = "direct"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.upstream", str(self.port)]


class Forwarder(Contender):
    """bench/forwarder.py, to which every other contender is compared."""

    name = "bare aiohttp"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.forwarder", str(self.port), str(self.upstream_port)]


class Sluice(Contender):
    """The gateway with keys, metrics and request ids on, limits out of the way."""

    name = "sluice"

    def command(self) -> list[str]:
        config = {
            "server": {"port": self.port},
            "admin": {"port": free_port()},
            "keys": [{"name": "bench", "key": self.key}],
            "upstreams": {
                "fake": {"base_url": f"http://127.0.0.1:{self.upstream_port}/v1", "max_concurrency": 10000}
            },
            "models": {self.model: {"candidates": [{"upstream": "fake", "model": "fake-model"}]}},
            "usage": {"path": str(self.folder / "usage.db")},
            "log": {"level": "warning"},
        }
        file = self.folder / "sluice.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        return [sys.executable, "-m", "gateway", "serve", "--config", str(file)]


NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_rlimit_nofile 16000;
events {{ worker_connections 8000; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream fake {{ server 127.0.0.1:{upstream_port}; keepalive 4096; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; keepalive_requests 100000000;
    location / {{
      proxy_pass http://fake; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


class Nginx(Contender):
    """nginx as a plain reverse proxy (Debian package `nginx-light`); `$NGINX` names another binary."""

    name = "nginx"

    def command(self) -> list[str]:
        binary = shutil.which(os.environ.get("NGINX", "nginx"))
        if binary is None:
            raise RuntimeError("nginx is not installed")
        file = self.folder / "nginx.conf"
        values = {"folder": self.folder, "port": self.port, "upstream_port": self.upstream_port}
        file.write_text(NGINX.format_map(values))
        return [binary, "-c", str(file), "-e", str(self.folder / "error.log")]


# The first is the yardstick, the first two run always, the others when --rivals names them.
CONTENDERS: dict[str, type[Contender]] = {kind.name: kind for kind in (Forwarder, Sluice, Nginx, Upstream)}
