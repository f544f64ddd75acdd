"""Composition root: the only place that builds things from the config.

One `Gateway` is one event loop's worth of it.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from gateway import __version__, log
from gateway.call import Caller, Candidate, Route, Stack
from gateway.clock import monotonic, unix_now
from gateway.config import model as cfg
from gateway.config.show import effective
from gateway.edge.admin import application
from gateway.edge.aiohttp_transport import AiohttpTransport, proxy_for
from gateway.edge.body import BodyReader
from gateway.edge.cors import Cors
from gateway.edge.forward import Forward
from gateway.edge.lean_transport import LeanTransport
from gateway.edge.models import ModelList
from gateway.edge.reachability import Reachability
from gateway.edge.serve import Serve
from gateway.edge.server import Connection, Listener, assert_c_parser
from gateway.edge.streaming import DRAIN_NOTE
from gateway.edge.sweep import Sweep, interval_for
from gateway.edge.transport import Transport
from gateway.edge.upstream import Upstream, fixed_headers, secrets_of
from gateway.metrics import InFlight, Metrics
from gateway.stack import Deps, build
from gateway.wire.mask import Masker

BACKLOG = 1024
UNSENT_BYTES = 128 * 1024


class Gateway:
    """A whole gateway on the running event loop: `start`, use `port` and `admin_port`, `stop`."""

    def __init__(
        self, config: cfg.Config, *, admin_socket: str | None = None, reuse_port: bool = False
    ) -> None:
        """With `admin_socket` the admin application listens on that Unix socket instead of its TCP port."""
        assert_c_parser()
        self._config = config
        self._admin_socket = admin_socket
        self._reuse_port = reuse_port
        self.port = 0
        self.admin_port = 0
        self.metrics = Metrics()

    async def start(self) -> None:
        """Build everything and listen. OSError when a port is taken."""
        config = self._config
        self._new_request_id = _request_ids()
        self._sweep = Sweep(interval_for(_shortest(config)), monotonic)
        self._upstreams = {
            name: _upstream(upstream, self._sweep) for name, upstream in config.upstreams.items()
        }
        self._reachability = Reachability({name: _first_hop(up) for name, up in config.upstreams.items()})
        self._forward = Forward(
            self._upstreams, config.server.max_body, self.metrics, self._sweep, self._reachability, monotonic
        )
        self.metrics.registry.register(InFlight(self._forward.in_flight))
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

    def _build_stack(self, forward: Forward) -> Stack:
        config = self._config
        names = list(config.models)
        callers = {key.digest(): Caller(key.name, _usable(key.models, names)) for key in config.keys}
        routes = {name: _route(model) for name, model in config.models.items()}
        return build(Deps(self.metrics, log.access, callers, routes, forward))

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

    def views(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """`/admin/...`."""
        return {"config": self._show_config, "stack": self._show_stack, "upstreams": self._show_upstreams}

    async def _show_config(self) -> object:
        return effective(self._config)

    async def _show_stack(self) -> object:
        return self._stack.entries

    async def _show_upstreams(self) -> object:
        states = {True: "up", False: "down", None: "unknown"}
        in_flight = self._forward.in_flight()
        return {
            name: {
                "state": states[self._reachability.of(name)],
                "in_flight": in_flight[name],
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
        await self._reachability.close()
        await asyncio.gather(*(upstream.transport.close() for upstream in self._upstreams.values()))
        self._sweep.close()


def _upstream(config: cfg.Upstream, sweep: Sweep) -> Upstream:
    key = config.api_key.reveal() if config.api_key is not None else None
    extra = {name: value.reveal() for name, value in config.headers.items()}
    fixed = fixed_headers(key, extra, f"sluice/{__version__}")
    transport: Transport
    if config.transport == "lean":
        transport = LeanTransport(config.name, config.base_url, fixed, sweep, monotonic)
    else:
        transport = AiohttpTransport(config.name, config.base_url, fixed)
    return Upstream(
        config.name,
        transport,
        masker=Masker(secrets_of(config.base_url, key, extra)),
        forward_headers=config.forward_headers,
        connect_s=config.timeouts.connect,
        first_byte_s=config.timeouts.first_byte,
        idle_s=config.timeouts.idle,
        total_s=config.timeouts.total,
    )


def _first_hop(config: cfg.Upstream) -> str:
    """Where connections to an upstream go first."""
    return (config.transport == "aiohttp" and proxy_for(config.base_url)) or config.base_url


def _route(model: cfg.Model) -> Route:
    candidates = tuple(
        Candidate(candidate.upstream, candidate.model, msgspec.json.encode(candidate.model))
        for candidate in model.candidates
    )
    return Route(model.name, msgspec.json.encode(model.name), candidates)


def _usable(patterns: Sequence[str], models: Sequence[str]) -> frozenset[str] | None:
    if "*" in patterns:
        return None
    return frozenset(name for name in models if any(fnmatchcase(name, pattern) for pattern in patterns))


def _shortest(config: cfg.Config) -> float:
    """The shortest time that the sweep has to keep, in seconds."""
    times = [config.server.heartbeat or 15.0]
    for upstream in config.upstreams.values():
        limits = upstream.timeouts
        times += [limits.idle, limits.total, limits.first_byte or limits.total]
    return min(times)


def _request_ids() -> Callable[[], str]:
    source = random.Random(random.SystemRandom().getrandbits(128))
    return lambda: f"req-{source.getrandbits(128):032x}"


def _port(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])
