"""Composition root: the only place that builds things from the config.

One `Gateway` is one event loop's worth of it.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry

from gateway import assembly, log
from gateway.accounts import Accounts
from gateway.assembly import ALONE, Share
from gateway.call import Stack
from gateway.clock import monotonic, unix_now
from gateway.config import model as cfg
from gateway.config.show import effective
from gateway.edge.admin import View, application
from gateway.edge.body import BodyReader
from gateway.edge.cors import Cors
from gateway.edge.forward import Forward
from gateway.edge.models import ModelList
from gateway.edge.reachability import Reachability
from gateway.edge.serve import Serve
from gateway.edge.server import Connection, Listener, assert_c_parser
from gateway.edge.streaming import DRAIN_NOTE
from gateway.edge.sweep import Sweep, interval_for
from gateway.edge.transport import Transport
from gateway.layers.attempt import Attempt, Counts, Health, Rules
from gateway.layers.estimates import Estimates
from gateway.layers.queue import Queue
from gateway.layers.spend import Spend
from gateway.metrics import BREAKER, Metrics, Queues, counter, observer
from gateway.policy.breaker import Breaker
from gateway.policy.limit import Limit
from gateway.policy.line import Line
from gateway.policy.order import WaitingRoom
from gateway.policy.pace import Pace
from gateway.policy.retry import RetryBudget
from gateway.policy.tokens import Estimator
from gateway.stack import Deps, build
from gateway.wire import exact_tokens

BACKLOG = 1024
UNSENT_BYTES = 128 * 1024


class Gateway:
    """A whole gateway on the running event loop: `start`, use `port` and `admin_port`, `stop`."""

    def __init__(
        self,
        config: cfg.Config,
        *,
        admin_socket: str | None = None,
        reuse_port: bool = False,
        share: Share = ALONE,
    ) -> None:
        """With `admin_socket` the admin application listens on that Unix socket instead of its TCP port.

        `share` is this process's part of what several workers hold together.
        """
        assert_c_parser()
        self._config = config
        self._admin_socket = admin_socket
        self._reuse_port = reuse_port
        self._share = share
        self.port = 0
        self.admin_port = 0
        self.metrics = Metrics()

    async def start(self) -> None:
        """Build everything and listen. OSError when a port is taken, UsageTrouble for a ledger of no use."""
        config = self._config
        self._new_request_id = _request_ids()
        self._sweep = Sweep(interval_for(assembly.shortest(config)), monotonic)
        self._upstreams = {
            name: assembly.upstream(upstream, self._sweep) for name, upstream in config.upstreams.items()
        }
        self._reachability = Reachability(
            {name: assembly.first_hop(upstream) for name, upstream in config.upstreams.items()}
        )
        self._accounts = Accounts(config, self.metrics, self._sweep)
        await self._accounts.start()
        sent = {one.model for model in config.models.values() for one in model.candidates}
        self._estimates = Estimates(Estimator(exact_tokens.load(sent)), self.metrics)
        self._queue = self._build_queue()
        self._attempt = self._build_attempt()
        self.metrics.registry.register(Queues(self._queue.in_flight, self._queue.depth, self._breakers))
        self._forward = Forward(
            self._upstreams,
            config.server.max_body,
            self._sweep,
            self._reachability,
            self._queue.learn,
            monotonic,
        )
        self._stack = self._build_stack(self._forward)
        self._serve = Serve(
            self._stack,
            ModelList(config.models, unix_now()),
            BodyReader(config.server.max_body, config.server.body_timeout),
            Cors(config.server.cors_origins),
            self._sweep,
            config.server.heartbeat,
            self._new_request_id,
            monotonic,
        )
        await self._listen()

    def _build_attempt(self) -> Attempt:
        retry, rng = self._config.retry, random.Random()
        health = {
            name: Health(
                Breaker(upstream.breaker.failures, upstream.breaker.open, upstream.breaker.max_open, rng),
                RetryBudget(retry.budget),
                upstream.timeouts.total,
            )
            for name, upstream in self._config.upstreams.items()
        }
        counts = Counts(
            *(counter(one) for one in (self.metrics.attempts, self.metrics.retries, self.metrics.fallbacks))
        )
        rules = Rules(retry.attempts, retry.base, retry.max)
        return Attempt(health, rules, counts, monotonic, asyncio.sleep, rng)

    def _breakers(self) -> dict[str, int]:
        now = monotonic()
        return {name: one.breaker.state(now) for name, one in self._attempt.health.items()}

    def _build_queue(self) -> Queue:
        share, config = self._share, self._config
        lines = {}
        for name, upstream in config.upstreams.items():
            rpm, tpm = share.part(upstream.rate.rpm), share.part(upstream.rate.tpm)
            pace = None if rpm is None and tpm is None else Pace(rpm, tpm)
            lines[name] = Line(name, share.of(upstream.max_concurrency), pace, upstream.timeouts.total)
        waited = {name: observer(self.metrics.queue_wait.labels(name)) for name in lines}
        room = WaitingRoom(share.of(config.server.max_queue))
        return Queue(room, lines, monotonic, waited, self._estimates.make)

    def _build_stack(self, forward: Forward) -> Stack:
        config, accounts = self._config, self._accounts
        names = list(config.models)
        callers = {
            key.digest(): assembly.caller(key, names, accounts.of.get(key.name)) for key in config.keys
        }
        routes = assembly.routes(config)
        limit = Limit(self._estimates.make, accounts.calendar, self.metrics)
        spend = Spend(
            accounts.calendar,
            self._estimates.make,
            self.metrics,
            (accounts.book, self._estimates.book),
            always=accounts.keeps,
        )
        return build(
            Deps(self.metrics, log.access, callers, routes, limit, spend, self._attempt, self._queue, forward)
        )

    async def _listen(self) -> None:
        server, admin = self._config.server, self._config.admin
        self._listener = Listener(self._serve, server.keepalive_timeout, self._new_request_id)
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
        return self._upstreams[upstream].transport

    # What the admin port asks (gateway.edge.admin.Inside).

    async def registry(self) -> CollectorRegistry:
        """The series of this process."""
        return self.metrics.registry

    async def not_ready(self) -> str | None:
        """Why no new calls should be sent here, or None."""
        if self._serve.draining:
            return "draining"
        return None if self._reachability.any() else "no upstream can be reached"

    def views(self) -> Mapping[str, View]:
        """`/admin/...`."""
        return {
            "config": self._show_config,
            "stack": self._show_stack,
            "upstreams": self._show_upstreams,
            "usage": self._accounts.report(),
        }

    async def _show_config(self, query: Mapping[str, str]) -> object:
        return effective(self._config)

    async def _show_stack(self, query: Mapping[str, str]) -> object:
        return self._stack.entries

    async def _show_upstreams(self, query: Mapping[str, str]) -> object:
        states = {True: "up", False: "down", None: "unknown"}
        in_flight, waiting = self._queue.in_flight(), self._queue.depth()
        return {
            name: {
                "state": states[self._reachability.of(name)],
                "in_flight": in_flight[name],
                "waiting": waiting[name],
                "breaker": BREAKER[self._breakers()[name]],
            }
            for name in self._upstreams
        }

    async def stop(self) -> None:
        """Drain: not ready at once, then no new connections, then open calls get their time, then an end."""
        drain = self._config.server.drain
        self._serve.draining = True
        if drain.delay > 0:
            await asyncio.sleep(drain.delay)
        self._server.close()
        self._serve.closed = True
        self._listener.drain()
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
        await self._accounts.stop()
        await self._reachability.close()
        await asyncio.gather(*(upstream.transport.close() for upstream in self._upstreams.values()))
        self._sweep.close()


def _request_ids() -> Callable[[], str]:
    source = random.Random(random.SystemRandom().getrandbits(128))
    return lambda: f"req-{source.getrandbits(128):032x}"


def _port(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])
