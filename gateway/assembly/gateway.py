"""Composition root: the only place that builds things from the config.

One `Gateway` is one event loop's worth of it.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry

from gateway.assembly.builder import PipelineBuilder
from gateway.assembly.generations import GenerationReaper
from gateway.assembly.upstreams import SINGLE_WORKER, WorkerShare, provider_of
from gateway.config import model as cfg
from gateway.config.show import effective
from gateway.core.clock import monotonic
from gateway.core.units import usd
from gateway.http.client.transport import Transport
from gateway.http.server.admin import View, application
from gateway.http.server.connection import Connection
from gateway.http.server.handler import RequestHandler
from gateway.http.server.listener import Listener
from gateway.http.server.stream_session import DRAIN_NOTE
from gateway.telemetry import logging as log
from gateway.telemetry.collectors import BudgetCollector, ReloadCollector, UpstreamCollector, UpstreamStatus
from gateway.telemetry.metrics import BREAKER, Metrics

BACKLOG = 1024
UNSENT_BYTES = 128 * 1024


class Gateway:
    """A whole gateway on the running event loop: `start`, use `port` and `admin_port`, `reload`, `stop`."""

    def __init__(
        self,
        config: cfg.Config,
        *,
        admin_socket: str | None = None,
        reuse_port: bool = False,
        share: WorkerShare = SINGLE_WORKER,
    ) -> None:
        """With `admin_socket` the admin application listens on that Unix socket instead of its TCP port.

        `share` is this process's part of what several workers hold together.
        """
        self._config = config
        self._admin_socket = admin_socket
        self._reuse_port = reuse_port
        self._share = share
        self.port = 0
        self.admin_port = 0
        self.metrics = Metrics(lambda upstream: provider_of(self._pipeline.config, upstream))
        self.reloads = ReloadCollector()
        self.metrics.registry.register(self.reloads)

    async def start(self) -> None:
        """Build everything and listen. OSError when a port is taken, UsageTrouble for a ledger of no use."""
        config = self._config
        self._new_request_id = _request_ids()
        self._pipelines = PipelineBuilder(config, self._share, self.metrics, monotonic)
        self._accounts = self._pipelines.accounts
        await self._accounts.start()
        self._pipeline = self._pipelines.build(config, None, await self._pipelines.prepare(config))
        await self._accounts.connect()
        await self._pipelines.caches.connect()
        self.metrics.registry.register(UpstreamCollector(self._seen))
        self.metrics.registry.register(BudgetCollector(self._accounts.budgets))
        self._serve = RequestHandler(self._pipeline.generation, self._new_request_id, monotonic)
        self._retired = GenerationReaper(self._serve.open_calls)
        self._pipelines.sweep.add(self._retired)
        log.output().count = self.metrics.log_dropped.inc
        self._pipelines.sweep.add(log.output())
        await self._listen()

    async def reload(self, config: cfg.Config) -> None:
        """New calls go by this config; those under way finish on what they started with.

        It must not differ in what only a start can change (`reload.immovable`). UsageTrouble where a key's
        new budget cannot be known; then nothing has changed.
        """
        spent = await self._pipelines.prepare(config)
        before, self._pipeline = self._pipeline, self._pipelines.build(config, self._pipeline, spent)
        self._serve.generation = self._pipeline.generation
        # They are no open calls, so nobody would keep their connections for them.
        await self._pipelines.router.tiers.close()
        self._retired.replaced(before, self._pipeline)
        await self._accounts.connect()
        await self._pipelines.caches.connect()

    def _seen(self) -> dict[str, UpstreamStatus]:
        queue, health, now = self._pipeline.queue, self._pipeline.attempt.health, monotonic()
        upstreams, reachability = self._pipeline.config.upstreams, self._pipeline.reachability
        in_flight, depth, oldest_s = queue.in_flight(), queue.depth(), queue.oldest_s()
        return {
            name: UpstreamStatus(
                in_flight[name],
                depth[name],
                oldest_s[name],
                one.breaker.state(now),
                upstreams[name].max_concurrency,
                reachability.of(name),
            )
            for name, one in health.items()
        }

    async def _listen(self) -> None:
        server, admin = self._config.server, self._config.admin
        self._listener = Listener(self._serve, self._serve.respond_error, server.keepalive_timeout)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._listener, server.host, server.port, backlog=BACKLOG, reuse_port=self._reuse_port or None
        )
        for listening in self._server.sockets:
            # Accepted sockets inherit it. Of what a slow reader has not been sent, the kernel holds this much
            # and no megabytes: its progress is seen, and its memory bounded.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self.port = _port(self._server.sockets)
        self._admin_runner = web.AppRunner(application(self), access_log=None, keepalive_timeout=75)
        await self._admin_runner.setup()
        if self._admin_socket is not None:
            await web.UnixSite(self._admin_runner, self._admin_socket).start()
        else:
            await web.TCPSite(self._admin_runner, admin.host, admin.port).start()
            self.admin_port = self._admin_runner.addresses[0][1]

    def accept(self) -> Connection:
        """The protocol for one more client, for whoever brings a transport of its own."""
        return self._listener()

    def upstream_transport(self, upstream: str) -> Transport:
        """The pool of connections to an upstream."""
        return self._pipeline.upstreams[upstream].transport

    # What the admin port asks (gateway.http.server.admin.Inside).

    async def registry(self) -> CollectorRegistry:
        """The series of this process."""
        return self.metrics.registry

    async def not_ready(self) -> str | None:
        """Why no new calls should be sent here, or None."""
        if self._serve.draining:
            return "draining"
        return None if self._pipeline.reachability.any() else "no upstream can be reached"

    def views(self) -> Mapping[str, View]:
        """`/admin/...`."""
        return {
            "config": self._show_config,
            "stack": self._show_stack,
            "upstreams": self._show_upstreams,
            **self._accounts.views(lambda: self._pipeline.config),
            "budgets": self._show_budgets,
        }

    async def _show_config(self, query: Mapping[str, str]) -> object:
        return effective(self._pipeline.config)

    async def _show_stack(self, query: Mapping[str, str]) -> object:
        return self._pipeline.generation.stack.entries

    async def _show_upstreams(self, query: Mapping[str, str]) -> object:
        states = {True: "up", False: "down", None: "unknown"}
        reachability, machines, now = self._pipeline.reachability, self._pipelines.machines, monotonic()
        return {
            name: {
                "state": states[reachability.of(name)],
                "in_flight": seen.in_flight,
                "waiting": seen.waiting,
                "oldest_s": round(seen.oldest_s, 3),
                "breaker": BREAKER[seen.breaker],
                "batching": self._pipeline.batching.view(name),
                "engine": self._pipeline.engines.view(name),
                **machines.view(name, seen.waiting, now),
            }
            for name, seen in self._seen().items()
        }

    async def _show_budgets(self, query: Mapping[str, str]) -> object:
        return {key: {"left_usd": usd(nanos)} for key, nanos in self._accounts.budgets().items()}

    async def stop(self) -> None:
        """Drain: not ready at once, then no new connections, then open calls get their time, then an end."""
        drain = self._pipeline.config.server.drain
        self._serve.draining = True
        if drain.delay > 0:
            await asyncio.sleep(drain.delay)
        self._server.close()
        self._serve.closed = True
        self._listener.drain()
        self._pipeline.batching.flush()
        if self._serve.open_calls:
            await asyncio.wait(set(self._serve.open_calls), timeout=drain.timeout)
        for task in tuple(self._serve.open_calls):
            task.cancel(DRAIN_NOTE)
        if self._serve.open_calls:
            await asyncio.wait(set(self._serve.open_calls), timeout=5)
        await self.close()

    async def close(self) -> None:
        """End at once and let go of everything."""
        self._server.close()
        await self._listener.shutdown(timeout=1)
        await self._admin_runner.cleanup()
        await self._pipelines.router.tiers.close()
        await self._accounts.stop()
        await self._pipelines.caches.close()
        await self._pipeline.batching.close()
        await self._pipeline.offers.close()
        await self._pipeline.reachability.close()
        await self._pipeline.engines.close()
        await asyncio.gather(*(one.transport.close() for one in self._pipeline.upstreams.values()))
        await self._retired.close()
        await self._pipelines.traces.close()
        for sweep in {self._pipelines.sweep, self._pipeline.generation.sweep}:
            sweep.close()


def _request_ids() -> Callable[[], str]:
    source = random.Random(random.SystemRandom().getrandbits(128))
    return lambda: f"req-{source.getrandbits(128):032x}"


def _port(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])
