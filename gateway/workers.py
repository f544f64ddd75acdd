"""Several processes on one port: a parent that starts them, restarts a dead one, and answers the admin port.

The kernel spreads connections over the workers (SO_REUSEPORT); the parent touches none of them. Counters live
in files that every worker maps into its memory (prometheus-client's multiprocess mode), so they stay exact
when a worker dies. What else the admin port shows is asked of the workers, over a Unix socket each.
"""

import asyncio
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from gateway.config.model import Config
from gateway.config.show import effective
from gateway.edge.admin import application
from gateway.log import logger
from gateway.metrics import InFlight
from gateway.process import READY, Signals, cannot_listen, listening

# prometheus-client leaves these two untyped.
_Collector: Callable[..., object] = MultiProcessCollector
_forget_gauges: Callable[[int, str], None] = mark_process_dead

_RESTART_S = 1.0  # between two starts of one worker, so that one that cannot start does not spin
_ASK_S = 1.0  # for a worker's answer to the admin port


def supervise(config: Config) -> int:
    """Run `config.server.workers` workers until a signal; gives the exit status."""
    return uvloop.run(_Parent(config).run())


@dataclass(slots=True)
class _Worker:
    number: int
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class _Parent:
    """Holds the port's number, the folder of counters and sockets, and one keeper task for each worker."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-"))
        self._workers = [_Worker(number) for number in range(config.server.workers)]
        self._stopping = False

    async def run(self) -> int:
        """Until a signal; gives the exit status."""
        signals = Signals(lambda: self._signal(signal.SIGKILL))
        admin = web.AppRunner(application(self), access_log=None, keepalive_timeout=75)
        try:
            with self._claim_port() as claimed:
                server = msgspec.structs.replace(self._config.server, port=claimed.getsockname()[1])
                self._config = msgspec.structs.replace(self._config, server=server)
                await admin.setup()
                await web.TCPSite(admin, self._config.admin.host, self._config.admin.port).start()
                await self._run_workers(signals, admin.addresses[0][1])
        except OSError as error:
            return cannot_listen(error)
        finally:
            await admin.cleanup()
            shutil.rmtree(self._folder, ignore_errors=True)
        logger.info("stopped")
        return 0

    async def _run_workers(self, signals: Signals, admin_port: int) -> None:
        keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        started = asyncio.gather(*(worker.ready.wait() for worker in self._workers))
        ends: set[asyncio.Future[Any]] = {started, signals.first}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not signals.first.done():
            listening(self._config, self._config.server.port, admin_port)
        await signals.first
        started.cancel()
        logger.info("draining; a second signal ends at once")
        self._stopping = True
        self._signal(signal.SIGTERM)
        await asyncio.gather(*keepers)

    def _claim_port(self) -> socket.socket:
        """Bind without listening: fixes a free port for all workers, and fails now if it is taken."""
        host = self._config.server.host
        claimed = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        claimed.bind((host, self._config.server.port))
        return claimed

    async def _keep(self, worker: _Worker) -> None:
        """Start a worker, and again whenever it has ended, until the gateway stops."""
        while not self._stopping:
            process = await self._spawn(worker)
            status = await process.wait()
            _forget_gauges(process.pid, str(self._folder))  # its counters stay
            if not self._stopping:
                logger.error(
                    "worker died; starting another", extra={"worker": worker.number, "status": status}
                )
                await asyncio.sleep(_RESTART_S)

    async def _spawn(self, worker: _Worker) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.worker",
            self._socket(worker),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._folder)},
            start_new_session=True,  # a Ctrl-C on the terminal is the parent's to pass on
        )
        worker.process = process
        if self._stopping:  # between the decision to start it and now
            process.terminate()
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        # Secrets go through the pipe, not through arguments or the environment. It stays open: a worker whose
        # parent has died sees it close, and drains.
        config = pickle.dumps(self._config)
        process.stdin.write(len(config).to_bytes(8, "big") + config)
        if await process.stdout.readline() == READY:
            worker.ready.set()
        return process

    def _socket(self, worker: _Worker) -> str:
        return str(self._folder / f"worker-{worker.number}.sock")

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.returncode is None:
                worker.process.send_signal(number)

    # What the admin port asks (gateway.edge.admin.Inside).

    async def registry(self) -> CollectorRegistry:
        """The counters of all workers, dead ones included, and what the living have under way."""
        registry = CollectorRegistry()
        upstreams = await self._upstreams()
        registry.register(InFlight(lambda: {name: seen.in_flight for name, seen in upstreams.items()}))
        _Collector(registry, path=str(self._folder))
        return registry

    async def not_ready(self) -> str | None:
        """Ready while one worker is."""
        if self._stopping:
            return "draining"
        answers = [answer for answer in await self._ask_all("/readyz") if answer is not None]
        if any(status == 200 for status, _ in answers):
            return None
        return answers[0][1].decode().strip() if answers else "no worker is running"

    def views(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """`/admin/...`."""
        return {"config": self._show_config, "stack": self._show_stack, "upstreams": self._show_upstreams}

    async def _show_config(self) -> object:
        return effective(self._config)

    async def _show_stack(self) -> object:
        for answer in await self._ask_all("/admin/stack"):
            if answer is not None:
                return msgspec.json.decode(answer[1])
        return []

    async def _show_upstreams(self) -> object:
        return await self._upstreams()

    async def _upstreams(self) -> dict[str, "_Seen"]:
        """In-flight calls summed; an upstream is as well as the worker sees it that sees it best."""
        merged = {name: _Seen("unknown", 0) for name in self._config.upstreams}
        for answer in await self._ask_all("/admin/upstreams"):
            seen = msgspec.json.decode(answer[1], type=dict[str, _Seen]) if answer is not None else {}
            for name, upstream in seen.items():
                known = merged[name]
                known.in_flight += upstream.in_flight
                if known.state != "up":
                    known.state = upstream.state
        return merged

    async def _ask_all(self, path: str) -> list[tuple[int, bytes] | None]:
        return await asyncio.gather(*(self._ask(worker, path) for worker in self._workers))

    async def _ask(self, worker: _Worker, path: str) -> tuple[int, bytes] | None:
        timeout = ClientTimeout(total=_ASK_S)
        try:
            async with (
                ClientSession(connector=UnixConnector(self._socket(worker)), timeout=timeout) as session,
                session.get(f"http://worker{path}") as answer,
            ):
                return answer.status, await answer.read()
        except (ClientError, OSError, TimeoutError):
            return None


class _Seen(msgspec.Struct):
    state: str
    in_flight: int
