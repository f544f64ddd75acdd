"""A real Prometheus for one test: on loopback, with its data in the test's folder."""

import json
import math
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

PROGRAM = shutil.which("prometheus")
"""Debian's package `prometheus`; None where it is not installed."""


class PrometheusServer:
    """A Prometheus with this config, while in its `with` block."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """The config and the data are written into `folder`."""
        self._folder = folder
        (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        self._log = folder / "prometheus.log"
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{one.getsockname()[1]}"

    def __enter__(self) -> Self:
        assert PROGRAM is not None, "prometheus is not installed"
        command = [
            PROGRAM,
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        until = time.monotonic() + 60
        while not self._ready():
            assert self._process.poll() is None, f"it ended: {self.log[-3000:]}"
            assert time.monotonic() < until, f"not ready: {self.log[-3000:]}"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series of the expression now, without those that are not finite."""
        result = self.ask("query", query=expr)["result"]
        samples = [(series["metric"], float(series["value"][1])) for series in result]
        return [(labels, value) for labels, value in samples if math.isfinite(value)]

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of `/api/v1/...`; a refusal is an AssertionError with its text."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read().decode()
        raise AssertionError(f"{parameters}: {text}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
