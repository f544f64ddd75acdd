"""`python -m benchmarks.growth`: what many keys, models, connections and ledger rows cost, and what looking costs.

For each size: time to start and to reload, memory, CPU of one call, time of `/metrics` and `/admin/usage`, and the
longest pause of the event loop meanwhile, seen by a probe that asks every 2 ms. The last rows are calls' p99 while
`/metrics` and `/admin/usage` are read in a loop, beside without. `--quick` takes a tenth of each size; `--tree DIR`
measures another checkout. Five minutes; with `--quick` one.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

from benchmarks.arguments import parser_of
from benchmarks.client import CHAT, Connection, post
from benchmarks.contender import free_port
from benchmarks.proxies import Upstream
from gateway.core.budget_calendar import Calendar
from gateway.core.clock import unix

LIMITS = {"rpm": 10**6, "usd_per_day": 1000}
PRICE = {"input": 1, "output": 2}
COLUMNS = (
    "start, s",
    "reload, s",
    "memory, MiB",
    "CPU a call, ms",
    "`/metrics`, s",
    "`/metrics`, MB",
    "pause, ms",
    "`/admin/usage`, s",
    "pause, ms",
    "pause of a reload, ms",
)
CALLS = 400


class Gateway:
    """A gateway of this size, as a process of `tree`."""

    def __init__(self, upstream_port: int, tree: Path, keys: int = 10, models: int = 5, usage: str = "") -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.models, self.keys = models, keys
        self._tree = tree
        self._folder = Path(tempfile.mkdtemp(prefix="growth-"))
        names = [f"u{number}" for number in range(min(60, models))]
        upstream = {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "max_concurrency": 1000}
        self.config: dict[str, Any] = {
            "server": {"port": self.port},
            "admin": {"port": self.admin_port},
            "keys": [
                {"name": f"k{number}", "key": f"sk-bench-{number:08}", "limits": LIMITS} for number in range(keys)
            ],
            "upstreams": dict.fromkeys(names, upstream),
            "models": {
                f"m{number}": {
                    "candidates": [{"upstream": names[number % len(names)], "model": "fake-model", "price": PRICE}]
                }
                for number in range(models)
            },
            "usage": {"store": "sqlite", "path": usage} if usage else {"store": "off"},
            "log": {"level": "error"},
        }
        self.process: subprocess.Popen[bytes]

    def start(self) -> float:
        """Start it; returns the seconds until it answers."""
        self._write()
        began = monotonic()
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(self._folder / "sluice.yaml")]
        self.process = subprocess.Popen(command, cwd=self._tree, stderr=subprocess.PIPE)
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(self.process.communicate()[1].decode()[-500:])
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return monotonic() - began
            except OSError:
                sleep(0.02)

    def reload(self) -> float:
        """Change the last key's limit; returns the seconds until the new config is in force."""
        self.config["keys"][-1]["limits"] = {**LIMITS, "rpm": 10**6 - 1}
        self._write()
        began = monotonic()
        self.process.send_signal(signal.SIGHUP)
        while b"sluice_config_generation 2" not in self.look("/metrics?name[]=sluice_config_generation")[1]:
            if monotonic() - began > 60:
                raise RuntimeError("the reload takes more than a minute")
            sleep(0.01)
        return monotonic() - began

    def look(self, path: str) -> tuple[float, bytes]:
        """Read a path of the admin port; returns seconds and body."""
        began = monotonic()
        with urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=120) as answer:
            body = answer.read()
        return monotonic() - began, body

    @property
    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def cpu_s(self) -> float:
        """CPU time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def _write(self) -> None:
        (self._folder / "sluice.yaml").write_text(json.dumps(self.config))  # JSON is YAML


async def call(gateway: Gateway, calls: int, at_once: int = 8) -> list[float]:
    """Make so many calls, of all models and keys in turn; returns their seconds."""
    numbers, seconds = iter(range(calls)), []

    async def caller() -> None:
        connection = Connection(gateway.port)
        for number in numbers:
            body = {"model": f"m{number % gateway.models}", "messages": [{"role": "user", "content": "ping"}]}
            began = monotonic()
            (await connection.request(post(CHAT, body, f"sk-bench-{number % gateway.keys:08}"))).checked()
            seconds.append(monotonic() - began)
        connection.close()

    await asyncio.gather(*(caller() for _ in range(at_once)))
    return seconds


@contextmanager
def paused(gateway: Gateway) -> Iterator[list[float]]:
    """The seconds of a probe's requests to the event loop: the longest one is its longest pause."""
    seconds: list[float] = []
    over = threading.Event()

    async def probe() -> None:
        connection = Connection(gateway.port)
        while not over.is_set():
            began = monotonic()
            await connection.request(b"GET /health HTTP/1.1\r\nhost: bench\r\n\r\n")
            seconds.append(monotonic() - began)
            await asyncio.sleep(0.002)
        connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(probe()))
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


def row(name: str, *cells: float) -> None:
    """Print a row of the table."""
    print(f"| {name} | {' | '.join(f'{cell:.3g}' for cell in cells)} |", flush=True)


async def measure(name: str, gateway: Gateway, connections: int = 0) -> None:
    """Print what a gateway of this size costs."""
    started = gateway.start()
    idle = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(connections)]
    await call(gateway, max(CALLS, gateway.models))
    before = gateway.cpu_s
    await call(gateway, CALLS)
    cpu = (gateway.cpu_s - before) / CALLS
    with paused(gateway) as pauses:
        metrics_s, text = await asyncio.to_thread(gateway.look, "/metrics")
    with paused(gateway) as usage_pauses:
        usage_s, _ = await asyncio.to_thread(gateway.look, "/admin/usage?days=100")
    with paused(gateway) as reload_pauses:
        reload_s = await asyncio.to_thread(gateway.reload)
    looked = metrics_s, len(text) / 1e6, max(pauses) * 1000, usage_s, max(usage_pauses) * 1000
    row(name, started, reload_s, gateway.rss_mib, cpu * 1000, *looked, max(reload_pauses) * 1000)
    for _, writer in idle:
        writer.close()
    gateway.stop()


def ledger(folder: Path, rows: int) -> str:
    """A ledger with so many rows of the last 100 days; returns its path."""
    path = folder / "usage.db"
    begun = Gateway(1, Path.cwd(), usage=str(path))
    begun.start()
    begun.process.terminate()
    begun.process.wait()
    calendar = Calendar("UTC", unix(), 0.0)
    names = "day, key, model, upstream, requests, input, output, cached_input, reasoning, nano_usd"
    with sqlite3.connect(path) as connection:
        connection.executemany(
            f"INSERT INTO usage ({names}) VALUES (?, ?, ?, 'u0', 1, 100, 50, 0, 0, 1000)",
            (
                (calendar.before(0.0, number % 100), f"k{number // 100 % 100}", f"m{number // 10_000}")
                for number in range(rows)
            ),
        )
    return str(path)


@contextmanager
def reading(loops: list[str]) -> Iterator[None]:
    """Run these shell loops meanwhile."""
    processes = [subprocess.Popen(["sh", "-c", loop], start_new_session=True) for loop in loops]
    try:
        yield
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def watched(name: str, gateway: Gateway, paths: list[str]) -> None:
    """Print the p99 of calls while these paths are read in a loop, beside without."""
    gateway.start()
    await call(gateway, max(CALLS, gateway.models))
    p99 = []
    for looking in (False, True, False, True):
        loops = [f"while :; do curl -s -o /dev/null '127.0.0.1:{gateway.admin_port}{path}'; done" for path in paths]
        with reading(loops if looking else []):
            seconds = sorted(await call(gateway, 10 * CALLS, 4))
        p99.append(seconds[int(0.99 * len(seconds))] * 1000)
    without, looked = (p99[0] + p99[2]) / 2, (p99[1] + p99[3]) / 2
    print(f"{name}: calls' p99 {looked:.3g} ms, without {without:.3g} ms: {looked / without:.2f} times")
    gateway.stop()


async def main() -> None:
    """Measure all sizes, or those of some kinds."""
    kinds = ["keys", "models", "connections", "ledger"]
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tree", type=Path, default=Path.cwd(), metavar="DIR")
    parser.add_argument("--keys", type=int, nargs="*", default=[10, 1000, 20_000])
    parser.add_argument("--only", nargs="*", choices=kinds, default=kinds)
    options = parser.parse_args()
    part = 10 if options.quick else 1
    upstream = Upstream(0)
    await asyncio.to_thread(upstream.start, 1)

    def made(**sizes: Any) -> Gateway:
        return Gateway(upstream.port, options.tree, **sizes)

    try:
        print(f"| size | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}", flush=True)
        for keys in options.keys if "keys" in options.only else ():
            await _tried(f"{keys // part or 1:,} keys", made(keys=keys // part or 1))
        for models in (5, 200, 2000) if "models" in options.only else ():
            await _tried(f"{models // part or 1:,} models", made(models=models // part or 1, keys=1000 // part))
        if "connections" in options.only:
            await _tried(f"{10_000 // part:,} idle connections", made(), 10_000 // part)
        if "ledger" in options.only:
            rows = 10**6 // part
            with tempfile.TemporaryDirectory() as folder:
                usage = await asyncio.to_thread(ledger, Path(folder), rows)
                await _tried(f"{rows:,} ledger rows", made(usage=usage))
                large = made(models=2000 // part, keys=1000 // part, usage=usage)
                paths = ["/metrics", "/admin/usage?days=100", "/admin/savings?days=100"]
                await watched("`/metrics`, `/admin/usage` and `/admin/savings` in a loop", large, paths)
    finally:
        upstream.stop()


async def _tried(name: str, gateway: Gateway, connections: int = 0) -> None:
    try:
        await measure(name, gateway, connections)
    except RuntimeError as error:
        print(f"| {name} | {' '.join(str(error).split())[-120:]} |", flush=True)
        gateway.stop()


if __name__ == "__main__":
    asyncio.run(main())
