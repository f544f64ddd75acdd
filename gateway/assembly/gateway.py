"""The composition root: one `Gateway` is a complete gateway on one event loop."""

import asyncio
import datetime
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from aiohttp import web

from gateway.assembly.admin import admin_access
from gateway.assembly.batch_jobs import BatchJobs
from gateway.assembly.builder import Pipeline, PipelineBuilder
from gateway.assembly.generations import GenerationReaper
from gateway.assembly.upstreams import SINGLE_WORKER, WorkerShare, provider_of
from gateway.auth.authenticate import ANONYMOUS
from gateway.config import model as cfg
from gateway.config.show import effective
from gateway.core.budget_status import BudgetView
from gateway.core.clock import Clock, monotonic
from gateway.core.clock import unix as unix_clock
from gateway.http import bind_errors
from gateway.http.client.transport import Transport
from gateway.http.descriptors import Descriptors
from gateway.http.server.admin import AdminRefused, AdminUnavailable, View, application, no_batch, no_call, no_upstream
from gateway.http.server.connection import Connection
from gateway.http.server.handler import RequestHandler
from gateway.http.server.listener import Listener
from gateway.http.server.paced import LongArray, LongObject
from gateway.http.server.streaming_response import DRAIN_NOTE
from gateway.resilience.circuit_breaker import CLOSED
from gateway.resilience.last_failures import FailureRun, LastFailures
from gateway.telemetry import logging as log
from gateway.telemetry.collectors import ReloadStatus, UpstreamStatus, budget_gauge, upstream_gauges
from gateway.telemetry.exposition import GatheredGauge
from gateway.telemetry.metrics import BREAKER, OTHER, Metrics
from gateway.telemetry.retention import Retention
from gateway.telemetry.semconv import NO_UPSTREAM
from gateway.telemetry.series_file import SeriesFile

BACKLOG = 1024
UNSENT_BYTES = 128 * 1024


class Gateway:
    """A complete gateway on the running loop: `start`, use `port` and `admin_port`, `reload`, `stop`."""

    def __init__(
        self,
        config: cfg.Config,
        *,
        admin_socket: str | None = None,
        reuse_port: bool = False,
        share: WorkerShare = SINGLE_WORKER,
        clock: Clock = monotonic,
        unix: Clock = unix_clock,
        series: SeriesFile | None = None,
    ) -> None:
        """With `admin_socket` the admin application listens on that Unix socket instead of its TCP port.

        `series` keeps the metrics, by default memory does.

        `share` is this worker's share of what all workers split. `clock` gives monotonic seconds, `unix` the
        seconds since 1970.
        """
        self._config = config
        self._admin_socket = admin_socket
        self._reuse_port = reuse_port
        self._share = share
        self._clock = clock
        self._unix = unix
        self._series_file = series
        self.port = 0
        self.admin_port = 0
        self.reload_files: Callable[[], Awaitable[Sequence[str]]] | None = None
        """Reads the config's files again; returns why not, if they are not applied. Set by whoever knows the files."""
        self.metrics = Metrics(lambda upstream: provider_of(self._pipeline.config, upstream), series)
        self.reloads = ReloadStatus()

    async def start(self) -> None:
        """Build everything and listen. OSError if a port is taken, UsageUnavailable if the ledger is."""
        config = self._config
        self._new_request_id = _request_ids()
        self._descriptors = Descriptors(clock=self._clock)
        self._pipelines = PipelineBuilder(config, self._share, self.metrics, self._clock, self._unix, self._descriptors)
        self._accounts = self._pipelines.accounts
        await self._accounts.start()
        self._batch_jobs = BatchJobs(
            config, self._pipelines, self.metrics, self._clock, self._unix, first=self._share.number == 0
        )
        self._pipelines.stored_api = await self._batch_jobs.open()
        self._pipeline = self._pipelines.build(config, None, await self._pipelines.prepare(config))
        await self._accounts.connect()
        await self._pipelines.caches.connect()
        await self._pipelines.stored.connect()
        self._retention = Retention(self.metrics.families.values())
        self._pipelines.ticker.add(self._retention)
        self._serve = RequestHandler(self._pipeline.generation, self._new_request_id, self._clock)
        self._pipelines.inspector.live = self._serve.live.values
        self._batch_jobs.start(self._serve, lambda: self._pipeline)
        self._retired = GenerationReaper(self._serve.open_calls)
        self._pipelines.ticker.add(self._retired)
        log.output().count = self.metrics.log_dropped.count
        self._pipelines.ticker.add(log.output())
        await self._listen()

    async def reload(self, config: cfg.Config) -> None:
        """Use this config for new calls; calls in flight finish with what they started with.

        Fields that need a restart must not differ (`reload.immovable`). UsageUnavailable if the spending of a
        key with a new budget cannot be read; then nothing has changed.
        """
        spent = await self._pipelines.prepare(config)
        before, self._pipeline = self._pipeline, self._pipelines.build(config, self._pipeline, spent)
        self._serve.generation = self._pipeline.generation
        # Shadow calls are not open calls, so the reaper would close their connections under them.
        await self._pipelines.router.tiers.close()
        self._retired.replaced(before, self._pipeline)
        self._retention.reloaded(series_names(config), self._clock())
        await self._accounts.connect()
        await self._pipelines.caches.connect()

    def _gauges(self) -> Iterator[GatheredGauge]:
        yield from self.reloads.gauges()
        yield from upstream_gauges(self._statuses())
        yield budget_gauge((name, budget.left) for name, budget in self._accounts.budget_statuses())

    def _statuses(self) -> dict[str, UpstreamStatus]:
        queue, health, now = self._pipeline.queue, self._pipeline.attempt.health, self._clock()
        reachability = self._pipeline.reachability
        in_flight, depth, oldest_s = queue.in_flight(), queue.depth(), queue.oldest_s()
        return {
            name: UpstreamStatus(
                in_flight[name],
                depth[name],
                oldest_s[name],
                state.breakers.state(now),
                queue.queue(name).permits,
                reachability.of(name),
                queue.kv_tokens(name),
            )
            for name, state in health.items()
        }

    async def _listen(self) -> None:
        server, admin = self._config.server, self._config.admin
        self._listener = Listener(self._serve, self._serve.respond_error, server.keepalive_timeout, self._descriptors)
        loop = asyncio.get_running_loop()
        with bind_errors.naming("server", server.host, server.port):
            self._server = await loop.create_server(
                self._listener, server.host, server.port, backlog=BACKLOG, reuse_port=self._reuse_port or None
            )
        for listening in self._server.sockets:
            # Accepted sockets inherit it. For a slow reader the kernel then buffers only this much unsent
            # data, not megabytes: the gateway sees its progress, and memory stays bounded.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self.port = _port(self._server.sockets)
        self._admin_runner = web.AppRunner(self._admin_application(), access_log=None, keepalive_timeout=75)
        await self._admin_runner.setup()
        try:
            if self._admin_socket is not None:
                await web.UnixSite(self._admin_runner, self._admin_socket).start()
            else:
                with bind_errors.naming("admin", admin.host, admin.port):
                    await web.TCPSite(self._admin_runner, admin.host, admin.port).start()
                self.admin_port = self._admin_runner.addresses[0][1]
        except BaseException:
            self._server.close()
            await self._admin_runner.cleanup()
            raise

    def _admin_application(self) -> web.Application:
        if self._admin_socket is not None:  # in a folder that only the supervisor can enter
            return application(self, None)
        return application(self, admin_access(lambda: self._pipeline.config.admin, self._clock))

    def accept(self) -> Connection:
        """The protocol for one client connection, for callers with their own transport."""
        return self._listener()

    def upstream_transport(self, upstream: str) -> Transport:
        """The pool of connections to this upstream."""
        return self._pipeline.upstreams[upstream].transport

    # What the admin port needs (gateway.http.server.admin.AdminSource).

    def main_address(self) -> tuple[str, int]:
        """Host and port for clients."""
        return self._config.server.host, self.port

    async def metrics_text(self, only: Collection[str], *, openmetrics: bool) -> AsyncIterator[str]:
        """The metrics of this process as text, piece by piece."""
        for piece in self.metrics.exposition(only, gauges=self._gauges(), openmetrics=openmetrics):
            yield piece

    async def not_ready(self) -> str | None:
        """Why this gateway should get no new requests; None if it should."""
        if self._serve.draining:
            return "draining"
        return None if self._pipeline.reachability.any() else "no upstream can be reached"

    def views(self) -> Mapping[str, View]:
        """The views below `/admin`."""
        return {
            "config": self._show_config,
            "stack": self._show_stack,
            "upstreams": self._show_upstreams,
            **self._accounts.views(lambda: self._pipeline.config),
            "budgets": self._show_budgets,
            "keys": self._show_keys,
            **({"batches": self._batch_jobs.view} if self._config.batches.enabled else {}),
            "calls": self._show_calls,
            "calls/{id}": self._show_call,
            **({"series": self._show_series} if self._series_file is not None else {}),
        }

    async def _show_config(self, query: Mapping[str, str]) -> object:
        return effective(self._pipeline.config)

    async def _show_stack(self, query: Mapping[str, str]) -> object:
        return self._pipeline.generation.stack.entries

    async def _show_upstreams(self, query: Mapping[str, str]) -> object:
        pipeline, machines, now = self._pipeline, self._pipelines.machines, self._clock()
        return LongObject(
            (
                name,
                {
                    **self._upstream_view(pipeline, name, status, now),
                    **machines.view(name, status.waiting, now),
                },
            )
            for name, status in self._statuses().items()
        )

    def _upstream_view(self, pipeline: Pipeline, name: str, status: UpstreamStatus, now: float) -> dict[str, object]:
        failures, reachable = pipeline.attempt.health[name].breakers.failures, pipeline.reachability.of(name)
        failing, drained = (
            reachable is not False and failures.run.failing,
            pipeline.attempt.health[name].breakers.drained,
        )
        run = failures.run.moved(self._unix() - now)
        return {
            "state": "drained"
            if drained
            else "failing"
            if failing
            else {True: "up", False: "down", None: "unknown"}[reachable],
            "last_error": _last_error(failures, run),
            "failures": run,
            "in_flight": status.in_flight,
            "waiting": status.waiting,
            "oldest_s": round(status.oldest_s, 3),
            "breaker": BREAKER[status.breaker],
            "batching": pipeline.batching.view(name),
            "max_concurrency": status.most,
            "kv": None if status.kv is None else status.kv._asdict(),
            "engine": pipeline.engines.view(name),
        }

    async def _show_series(self, query: Mapping[str, str]) -> object:
        """For the supervisor: the series that are in no file."""
        rows = [] if self._series_file is None else list(self._series_file.in_memory.items())
        return LongArray(((name, labels, cells) for (name, labels), cells in rows))

    async def _show_budgets(self, query: Mapping[str, str]) -> object:
        return LongObject((key, BudgetView.of(status)) for key, status in self._accounts.budget_statuses())

    async def _show_keys(self, query: Mapping[str, str]) -> object:
        return LongObject(self._accounts.limit_statuses())

    async def _show_calls(self, query: Mapping[str, str]) -> object:
        return self._pipelines.inspector.page(query)

    async def _show_call(self, query: Mapping[str, str]) -> object:
        return self._pipelines.inspector.details(query["id"]) or no_call(query["id"])

    def actions(self) -> Mapping[str, View]:
        """The actions below `/admin`."""
        return {
            "upstreams/{name}/drain": self._drain_upstream,
            "upstreams/{name}/resume": self._resume_upstream,
            "upstreams/{name}/close-breaker": self._close_breaker,
            "batches/{id}/cancel": self._cancel_batch,
            "reload": self._reload_files,
        }

    async def _drain_upstream(self, query: Mapping[str, str]) -> object:
        name, runner = query["name"], self._pipeline.attempt
        if name not in runner.health:
            return no_upstream(name)
        self._pipelines.resilience.drain(name, runner)
        return {"upstream": name, "drained": True}

    async def _resume_upstream(self, query: Mapping[str, str]) -> object:
        name, runner = query["name"], self._pipeline.attempt
        if name not in runner.health:
            return no_upstream(name)
        if runner.health[name].breakers.drained:
            self._pipelines.resilience.close(name, runner, self._clock())
        return {"upstream": name, "drained": False}

    async def _close_breaker(self, query: Mapping[str, str]) -> object:
        name, runner = query["name"], self._pipeline.attempt
        if name not in runner.health:
            return no_upstream(name)
        if runner.health[name].breakers.drained:
            return AdminRefused(f"the upstream {name} is drained; resume it")
        self._pipelines.resilience.close(name, runner, self._clock())
        return {"upstream": name, "breaker": BREAKER[CLOSED]}

    async def _cancel_batch(self, query: Mapping[str, str]) -> object:
        status = await self._batch_jobs.cancel(query["id"])
        return no_batch(query["id"]) if status is None else {"batch": query["id"], "status": status}

    async def _reload_files(self, query: Mapping[str, str]) -> object:
        if self.reload_files is None:
            return AdminUnavailable("this process reads no config file itself")
        failures = await self.reload_files()
        return AdminRefused("; ".join(failures)) if failures else {"reloaded": True}

    async def stop(self) -> None:
        """Drain: report not ready, close the port after the delay, and end open calls after the timeout."""
        drain = self._pipeline.config.server.drain
        self._serve.draining = True
        if drain.delay > 0:
            await asyncio.sleep(drain.delay)
        self._server.close()
        self._serve.closed = True
        self._listener.drain()
        self._batch_jobs.drain()
        self._pipeline.batching.flush()
        if self._serve.open_calls:
            await asyncio.wait(set(self._serve.open_calls), timeout=drain.timeout)
        for task in tuple(self._serve.open_calls):
            task.cancel(DRAIN_NOTE)
        if self._serve.open_calls:
            await asyncio.wait(set(self._serve.open_calls), timeout=5)
        await self.close()

    async def close(self) -> None:
        """Stop at once and release everything."""
        self._server.close()
        await self._batch_jobs.close()
        await self._listener.shutdown(timeout=1)
        await self._admin_runner.cleanup()
        await self._pipelines.router.tiers.close()
        await self._accounts.stop()
        await self._pipelines.caches.close()
        await self._pipelines.stored.close()
        await self._pipeline.batching.close()
        await self._pipelines.learned.close()
        await self._pipeline.offers.close()
        await self._pipeline.reachability.close()
        await self._pipeline.engines.close()
        await self._pipelines.identity.close()
        await asyncio.gather(*(client.transport.close() for client in self._pipeline.upstreams.values()))
        await self._retired.close()
        await self._pipelines.traces.close()
        for ticker in {self._pipelines.ticker, self._pipeline.generation.ticker}:
            ticker.close()


def _request_ids() -> Callable[[], str]:
    source = random.Random(random.SystemRandom().getrandbits(128))
    return lambda: f"req-{source.getrandbits(128):032x}"


def _last_error(failures: LastFailures, run: FailureRun) -> dict[str, str] | None:
    """Why the last failed attempt failed, and when; `run` is in Unix seconds."""
    if run.last_at is None:
        return None
    at = datetime.datetime.fromtimestamp(run.last_at, datetime.UTC)
    return {"at": at.isoformat(timespec="seconds"), "message": failures.sentence}


def series_names(config: cfg.Config) -> Mapping[str, frozenset[str]]:
    """The values that labels of metrics can have with this config, of the labels that name its parts."""
    models = frozenset((*config.models, OTHER))
    names = {
        "model": models,
        "from_model": models,
        "to_model": models,
        "upstream": frozenset((*config.upstreams, NO_UPSTREAM)),
    }
    if not config.auth.jwt:  # identity providers name further callers
        names["key"] = frozenset((ANONYMOUS.name, *(key.name for key in config.keys)))
    return names


def _port(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])
