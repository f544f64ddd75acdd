"""The parent of several workers on one port: starts them, restarts dead ones and serves the admin port.

The kernel spreads connections over the workers (SO_REUSEPORT); the parent handles none. Counters live in a
file per worker that it maps into memory, so they stay exact when a worker dies. For other views the parent asks
the workers, over a Unix socket each.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import uvloop
from aiohttp import web

from gateway.assembly.accounts import usage_store, usage_views
from gateway.assembly.admin import admin_access
from gateway.assembly.gateway import series_names
from gateway.assembly.reload import ConfigSource, Reloader
from gateway.assembly.upstreams import provider_of
from gateway.config.model import Config
from gateway.config.show import effective
from gateway.core.budget_calendar import Calendar
from gateway.core.budget_status import BudgetStatus, BudgetView, combined
from gateway.core.caller import LimitStatus
from gateway.core.clock import Clock, monotonic
from gateway.core.clock import unix as unix_clock
from gateway.core.kv_tokens import KvTokens
from gateway.http import bind_errors
from gateway.http.server.admin import AdminRefused, AdminUnavailable, View, application, no_batch, no_call, no_upstream
from gateway.inspector.call_filter import CallFilter, FilterError
from gateway.inspector.inspector import CallDetails, CallPage, merged, newest
from gateway.process.lifecycle import Signals, abort_process, cannot_listen, listening
from gateway.process.worker_handle import WorkerProcess
from gateway.process.worker_metrics import WorkerMetrics
from gateway.resilience.last_failures import FailureRun, combined_run
from gateway.telemetry import logging as log
from gateway.telemetry.collectors import ReloadStatus, UpstreamStatus, budget_gauge, upstream_gauges
from gateway.telemetry.logging import logger
from gateway.telemetry.metrics import BREAKER, Metrics
from gateway.telemetry.retention import Retention
from gateway.telemetry.series_file import SeriesRow
from gateway.usage.gpu_cost import WorkDone, as_json

_RESTART_S = 1.0  # between two starts of one worker, so that a broken one does not spin
# Linux limits the path of a Unix socket to 107 bytes; the rest is for the parent of our folder.
_LONGEST_PARENT = 107 - len("/sluice-12345678/worker-9999.sock")


def supervise(config: Config, source: ConfigSource) -> int:
    """Run `config.server.workers` workers until a signal and return the exit status."""
    return uvloop.run(Supervisor(config, source).run())


class Supervisor:
    """Owns the port's number, the folder for counters and sockets, and a task per worker that restarts it."""

    def __init__(
        self,
        config: Config,
        source: ConfigSource,
        clock: Clock = monotonic,
        unix: Clock = unix_clock,
    ) -> None:
        self._config = config
        self._folder = _make_folder()
        self._series_folder = _series_folder(config, self._folder)
        self._metrics = WorkerMetrics(Metrics(lambda upstream: provider_of(self._config, upstream)))
        self._retention = Retention(self._metrics.metrics.families.values())
        self._clock = clock
        self._workers: list[WorkerProcess] = []
        self._stopping = False
        self._drained: set[str] = set()
        self._reloads = ReloadStatus()
        self._reloader = Reloader(source, config, self.apply, self._reloads)
        calendar = Calendar(config.server.timezone, unix(), clock())
        self._usage_store = usage_store(config)
        self._usage = usage_views(self._usage_store, calendar, clock, lambda: self._config)

    async def run(self) -> int:
        """Run until a signal and return the exit status."""
        signals = Signals(self._end_at_once)
        admin = web.AppRunner(
            application(self, admin_access(lambda: self._config.admin, self._clock)),
            access_log=None,
            keepalive_timeout=75,
        )
        try:
            with self._claim_port() as claimed, self._port_lock():
                self._config = _on_port(self._config, claimed.getsockname()[1])
                numbers = range(self._config.server.workers)
                self._workers = [
                    WorkerProcess(number, self._folder, self._series_folder, self._config) for number in numbers
                ]
                await admin.setup()
                with bind_errors.naming("admin", self._config.admin.host, self._config.admin.port):
                    await web.TCPSite(admin, self._config.admin.host, self._config.admin.port).start()
                status = await self._run_workers(signals, admin.addresses[0][1])
        except OSError as error:
            return cannot_listen(error)
        finally:
            await admin.cleanup()
            if self._usage_store is not None:
                await self._usage_store.close()
            self._remove_folders()
        if status == 0:
            logger.info("stopped")
        return status

    async def _run_workers(self, signals: Signals, admin_port: int) -> int:
        keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        started = asyncio.create_task(self._all_ready())
        ends: set[asyncio.Future[None]] = {started, signals.first, *keepers}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # Before the stop, a keeper ends only if its worker cannot start at all.
        failed = not signals.first.done() and any(keeper.done() for keeper in keepers)
        if not failed:
            if not signals.first.done():
                listening(self._config, self._config.server.port, admin_port)
            reloading = asyncio.create_task(self._reloader.run(signals.reload))
            await signals.first
            reloading.cancel()
            logger.info("draining; a second signal ends at once", extra={"audit": "drain"})
        started.cancel()
        self._stopping = True
        self._signal(signal.SIGTERM)
        await asyncio.gather(*keepers)
        return 1 if failed else 0

    async def _all_ready(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()

    def _claim_port(self) -> socket.socket:
        """Bind without listening: reserves one port for all workers, and fails now if it is taken."""
        if self._config.server.port:
            # SO_REUSEPORT would share the port with another gateway's workers; without it, that is an error.
            self._bind(share=False).close()
        return self._bind(share=True)

    def _port_lock(self) -> contextlib.AbstractContextManager[object]:
        """Holds the address for this gateway alone, until the process ends.

        Until a worker listens, another gateway could share the port too, as both allow it. The lock is an abstract
        socket, which only Linux has; the kernel frees it however the process ends.
        """
        host, port = self._config.server.host, self._config.server.port
        if not port or sys.platform != "linux":
            return contextlib.nullcontext()
        lock = socket.socket(socket.AF_UNIX)
        try:
            with bind_errors.naming("server", host, port):
                lock.bind(f"\0sluice-gateway {host} {port}")
        except OSError:
            lock.close()
            raise
        return lock

    def _bind(self, share: bool) -> socket.socket:
        host = self._config.server.host
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            # Connections of an earlier run in TIME_WAIT must not block the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(share))
            with bind_errors.naming("server", host, self._config.server.port):
                bound.bind((host, self._config.server.port))
        except OSError:
            bound.close()
            raise
        return bound

    async def apply(self, config: Config) -> str | None:
        """Apply a config in all workers, or in none. Returns None, or the reason why it was not applied."""
        before, self._config = self._config, _on_port(config, self._config.server.port)
        answers = await asyncio.gather(*(worker.apply(self._config) for worker in self._workers))
        failures = [f"worker {number}: {answer}" for number, answer in enumerate(answers) if answer]
        if not failures:
            log.setup(config.log.level, config.log.format)
            self._retention.reloaded(series_names(config), self._clock())
            return None
        self._config = before
        await asyncio.gather(*(worker.apply(before) for worker in self._workers))
        return "; ".join(failures)

    async def _keep(self, worker: WorkerProcess) -> None:
        """Start a worker, and restart it whenever it dies, until the gateway stops.

        Logs and returns early if the worker has never been ready.
        """
        while not self._stopping:
            process = await worker.start()
            for name in tuple(self._drained):
                await worker.ask(f"/admin/upstreams/{quote(name, safe='')}/drain", "POST")
            status = await process.wait()
            self._metrics.fold(worker.series_path)
            if not self._stopping:
                if not worker.ready.is_set():
                    logger.error("a worker cannot start", extra={"worker": worker.number, "status": status})
                    return
                logger.error("worker died; starting another", extra={"worker": worker.number, "status": status})
                await asyncio.sleep(_RESTART_S)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.end(number)

    def _end_at_once(self) -> None:
        self._signal(signal.SIGKILL)
        for worker in self._workers:
            # Until it has ended, it may still write to the folder.
            if worker.pid is not None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(worker.pid, 0)
        self._remove_folders()
        abort_process()

    def _remove_folders(self) -> None:
        for folder in {self._folder, self._series_folder}:
            shutil.rmtree(folder, ignore_errors=True)

    # What the admin port needs (gateway.http.server.admin.AdminSource).

    def main_address(self) -> tuple[str, int]:
        """Host and port for clients."""
        return self._config.server.host, self._config.server.port

    async def metrics_text(self, only: Collection[str], *, openmetrics: bool) -> AsyncIterator[str]:
        """The counters of all workers, ended ones included, and the gauges of the running ones."""
        upstreams, budgets, in_memory = await asyncio.gather(self._upstreams(), self._budgets(), self._in_memory())
        statuses = {name: view.status() for name, view in upstreams.items() if name in self._config.upstreams}
        left = [(key, budget.left) for key, budget in budgets.items()]
        gauges = [*self._reloads.gauges(), *upstream_gauges(statuses), budget_gauge(left)]
        text = self._metrics.text(only, self._series_files, in_memory, gauges, openmetrics=openmetrics)
        async for piece in text:
            yield piece

    def _series_files(self) -> Iterable[Path]:
        return [worker.series_path for worker in self._workers if worker.pid is not None]

    async def _in_memory(self) -> list[SeriesRow]:
        """The series that workers could not write to their files."""
        answers = [answer for answer in await self._ask_all("/admin/series") if answer is not None]
        return [row for _, body in answers for row in msgspec.json.decode(body, type=list[SeriesRow])]

    async def not_ready(self) -> str | None:
        """Why the gateway is not ready; None while any worker is ready."""
        if self._stopping:
            return "draining"
        answers = [answer for answer in await self._ask_all("/readyz") if answer is not None]
        if any(status == 200 for status, _ in answers):
            return None
        return answers[0][1].decode().strip() if answers else "no worker is running"

    def views(self) -> Mapping[str, View]:
        """The views below `/admin`."""
        return {
            "config": self._show_config,
            "stack": self._show_stack,
            "upstreams": self._show_upstreams,
            **self._usage,
            "budgets": self._show_budgets,
            "keys": self._show_keys,
            **({"batches": self._show_batches} if self._config.batches.enabled else {}),
            "calls": self._show_calls,
            "calls/{id}": self._show_call,
        }

    def actions(self) -> Mapping[str, View]:
        """The actions below `/admin`."""
        return {
            "upstreams/{name}/drain": self._drain_upstream,
            "upstreams/{name}/resume": self._resume_upstream,
            "upstreams/{name}/close-breaker": partial(self._in_all_workers, "close-breaker"),
            "batches/{id}/cancel": self._cancel_batch,
            "reload": self._reload_files,
        }

    async def _drain_upstream(self, query: Mapping[str, str]) -> object:
        if query["name"] in self._config.upstreams:
            self._drained.add(query["name"])
        return await self._in_all_workers("drain", query)

    async def _resume_upstream(self, query: Mapping[str, str]) -> object:
        self._drained.discard(query["name"])
        return await self._in_all_workers("resume", query)

    async def _in_all_workers(self, action: str, query: Mapping[str, str]) -> object:
        """Do this to an upstream in all workers. One that does not answer is restarted, and a drain with it."""
        if query["name"] not in self._config.upstreams:
            return no_upstream(query["name"])
        path = f"/admin/upstreams/{quote(query['name'], safe='')}/{action}"
        answers = await self._ask_all(path, "POST")
        for status, body in filter(None, answers):
            if status != HTTPStatus.OK:
                return AdminRefused(msgspec.json.decode(body)["error"])
        answered = sum(answer is not None for answer in answers)
        if answered < len(answers):
            return AdminUnavailable(f"{answered} of {len(answers)} workers have answered; try again")
        return msgspec.json.decode(next(body for _, body in filter(None, answers)))

    async def _cancel_batch(self, query: Mapping[str, str]) -> object:
        """Any worker can: they share the batches."""
        for worker in self._workers:
            answer = await worker.ask(f"/admin/batches/{quote(query['id'], safe='')}/cancel", "POST")
            if answer is not None:
                status, body = answer
                return msgspec.json.decode(body) if status == HTTPStatus.OK else no_batch(query["id"])
        return AdminUnavailable("no worker is running")

    async def _reload_files(self, query: Mapping[str, str]) -> object:
        failures = await self._reloader.reload("admin")
        return AdminRefused("; ".join(failures)) if failures else {"reloaded": True}

    async def _show_config(self, query: Mapping[str, str]) -> object:
        return effective(self._config)

    async def _show_stack(self, query: Mapping[str, str]) -> object:
        for answer in await self._ask_all("/admin/stack"):
            if answer is not None:
                return msgspec.json.decode(answer[1])
        return []

    async def _show_upstreams(self, query: Mapping[str, str]) -> object:
        return await self._upstreams()

    async def _show_batches(self, query: Mapping[str, str]) -> object:
        """What the first worker that can says: all have one store."""
        answers = [answer for answer in await self._ask_all("/admin/batches") if answer is not None]
        for status, body in answers:
            if status == 200:
                return msgspec.json.decode(body)
        return AdminUnavailable("no worker can read the batches")

    async def _show_keys(self, query: Mapping[str, str]) -> object:
        """What each key has left, as the worker saw it that saw the least."""
        least: dict[str, LimitStatus] = {}
        for status, body in filter(None, await self._ask_all("/admin/keys")):
            views = msgspec.json.decode(body, type=dict[str, LimitStatus]) if status == 200 else {}
            for name, view in views.items():
                seen = least.get(name, view)
                least[name] = min(seen, view, key=lambda one: (one.requests_left, one.tokens_left))
        return least

    async def _show_calls(self, query: Mapping[str, str]) -> object:
        try:
            wanted = CallFilter.of(query)
        except FilterError as error:
            return {"error": str(error)}
        answers = await self._ask_all(f"/admin/calls?{urlencode(query)}")
        pages = [msgspec.json.decode(body, type=CallPage) for status, body in filter(None, answers) if status == 200]
        return merged(pages, wanted.limit)

    async def _show_call(self, query: Mapping[str, str]) -> object:
        answers = await self._ask_all(f"/admin/calls/{quote(query['id'], safe='')}")
        found = [msgspec.json.decode(body, type=CallDetails) for status, body in filter(None, answers) if status == 200]
        return newest(found) or no_call(query["id"])

    async def _show_budgets(self, query: Mapping[str, str]) -> object:
        return {key: BudgetView.of(status) for key, status in (await self._budgets()).items()}

    async def _budgets(self) -> dict[str, BudgetStatus]:
        """Today's budgets by key, from what all workers report."""
        reported: dict[str, list[BudgetStatus]] = {}
        for answer in await self._ask_all("/admin/budgets"):
            budgets = msgspec.json.decode(answer[1], type=dict[str, BudgetView]) if answer is not None else {}
            for key, budget in budgets.items():
                reported.setdefault(key, []).append(budget.status())
        return {key: combined(statuses) for key, statuses in reported.items()}

    async def _upstreams(self) -> dict[str, "_Upstream"]:
        """Calls added up; the state by `_combined`, the breaker's worst, the latest error."""
        upstreams = self._config.upstreams  # a reload may replace the config while the workers answer
        merged = {name: _Upstream("unknown", 0, 0, 0.0, BREAKER[0]) for name in upstreams}
        done: dict[str, WorkDone] = {}
        reported: dict[str, list[_Upstream]] = {name: [] for name in upstreams}
        for answer in await self._ask_all("/admin/upstreams"):
            views = msgspec.json.decode(answer[1], type=dict[str, _Upstream]) if answer is not None else {}
            for name, upstream in views.items():
                total = merged.get(name)
                if total is None:  # a worker is a reload ahead or behind
                    continue
                total.in_flight += upstream.in_flight
                total.waiting += upstream.waiting
                total.max_concurrency += upstream.max_concurrency
                total.kv = _all_tokens(total.kv, upstream.kv)
                total.oldest_s = max(total.oldest_s, upstream.oldest_s)
                total.breaker = max(total.breaker, upstream.breaker, key=BREAKER.index)
                total.engine = total.engine or upstream.engine
                if upstream.machine:
                    done[name] = done.get(name, WorkDone()).combined(WorkDone(**upstream.machine["done"]))
                reported[name].append(upstream)
                total.last_error = max(total.last_error, upstream.last_error, key=_when)
        for name, views_of_one in reported.items():
            merged[name].state, merged[name].failures = _combined(views_of_one)
        for name, work in done.items():
            price = upstreams[name].gpu_hour_usd
            if price is not None:
                merged[name].machine = as_json(price, work, waiting=merged[name].waiting > 0)
        return merged

    async def _ask_all(self, path: str, method: str = "GET") -> list[tuple[int, bytes] | None]:
        return await asyncio.gather(*(worker.ask(path, method) for worker in self._workers))


def _on_port(config: Config, port: int) -> Config:
    server = msgspec.structs.replace(config.server, port=port)
    return msgspec.structs.replace(config, server=server)


def _make_folder() -> Path:
    """A new temporary folder; in /tmp if the usual place makes the paths of the sockets too long."""
    parent = tempfile.gettempdir()
    short = len(os.fsencode(parent)) <= _LONGEST_PARENT
    return Path(tempfile.mkdtemp(prefix="sluice-", dir=parent if short else "/tmp"))


def _series_folder(config: Config, otherwise: Path) -> Path:
    """A new folder for the files of series, in the configured one if there is one."""
    parent = config.server.metrics_dir
    return otherwise if parent is None else Path(tempfile.mkdtemp(prefix="sluice-", dir=parent))


_STATES = ("unknown", "down", "up", "drained")
"""The states of an upstream besides `failing`: of what the workers report, the last counts."""


def _combined(reported: Sequence["_Upstream"]) -> tuple[str, FailureRun]:
    """What several workers report of an upstream, as if it were one: it is `failing` if all their calls fail."""
    run = combined_run(upstream.failures for upstream in reported)
    # A worker that finds it failing can connect to it.
    states = ["up" if upstream.state == "failing" else upstream.state for upstream in reported]
    state = max(states, key=_STATES.index, default="unknown")
    return "failing" if state not in ("down", "drained") and run.failing else state, run


def _when(error: dict[str, str] | None) -> str:
    return "" if error is None else error["at"]


class _Upstream(msgspec.Struct):
    state: str
    in_flight: int
    waiting: int
    oldest_s: float
    breaker: str
    failures: FailureRun = FailureRun()
    last_error: dict[str, str] | None = None
    engine: dict[str, float | None] | None = None
    machine: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    max_concurrency: int = 0
    kv: dict[str, int | None] | None = None

    def status(self) -> UpstreamStatus:
        up = {"up": True, "failing": True, "down": False}.get(self.state)
        return UpstreamStatus(
            self.in_flight,
            self.waiting,
            self.oldest_s,
            BREAKER.index(self.breaker),
            self.max_concurrency,
            up,
            None if self.kv is None else KvTokens(self.kv["capacity"] or 0, self.kv["ledger"] or 0, self.kv["engine"]),
        )


def _all_tokens(one: dict[str, int | None] | None, other: dict[str, int | None] | None) -> dict[str, int | None] | None:
    """The KV cache by the ledgers of several workers, which add up; its size and the engine's figure are the same."""
    if one is None or other is None:
        return one or other
    return {**one, **other, "ledger": (one["ledger"] or 0) + (other["ledger"] or 0)}
