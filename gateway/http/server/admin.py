"""The admin port: metrics, probes and a look inside. Not for the world: loopback by default, no key."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

View = Callable[[Mapping[str, str]], Awaitable[object]]
"""Takes the query, gives what is shown as JSON."""


class AdminUnavailable(NamedTuple):
    """In place of what is shown: why it cannot be, now."""

    error: str


class AdminSource(Protocol):
    """Who knows the answers: one gateway, or the parent of several."""

    async def registry(self) -> CollectorRegistry:
        """What `/metrics` exposes."""

    async def not_ready(self) -> str | None:
        """Why no calls should be sent here, or None."""

    def views(self) -> Mapping[str, View]:
        """What each `/admin/NAME` shows, as JSON."""


def application(inside: AdminSource) -> web.Application:
    """The admin port's aiohttp application."""

    async def metrics(request: web.Request) -> web.Response:
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encoder(await inside.registry()), headers={"Content-Type": content_type})

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        reason = await inside.not_ready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=reason + "\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    for name, view in inside.views().items():
        app.router.add_get(f"/admin/{name}", _shown(view))
    return app


def _shown(view: View) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        shown, status = await view(request.query), 200
        if isinstance(shown, AdminUnavailable):
            shown, status = shown._asdict(), 503
        return web.Response(body=msgspec.json.encode(shown), status=status, content_type="application/json")

    return handle
