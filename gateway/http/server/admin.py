"""The admin port: the page, metrics, probes, JSON views and actions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec
from aiohttp import web

from gateway.http.server.admin_access import WHO, AdminAccess, harden
from gateway.http.server.known_paths import elsewhere
from gateway.http.server.paced import LongArray, LongObject, Pacer, respond
from gateway.http.server.page import PageSource, add_page
from gateway.http.server.page import View as View
from gateway.telemetry.logging import logger

_ON_MAIN_PORT = "OpenAI's API is on the main port (server.port)"


_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class AdminUnavailable(NamedTuple):
    """Returned by a view that cannot answer now; sent with status 503."""

    error: str


class AdminMissing(NamedTuple):
    """Returned by a view of one thing that does not exist; sent with status 404."""

    error: str


class AdminRefused(NamedTuple):
    """Returned by an action that cannot be done as things are; sent with status 409."""

    error: str


def no_upstream(name: str) -> AdminMissing:
    """The answer about an upstream that the config does not have."""
    return AdminMissing(f"no upstream named {name[:64]}")


def no_batch(id: str) -> AdminMissing:
    """The answer about a batch that nobody made, or where batches are off."""
    return AdminMissing(f"no batch {id[:128]}")


def no_call(id: str) -> AdminMissing:
    """The answer about a call that the inspector does not have."""
    return AdminMissing(f"no call with the id {id[:128]} is kept; inspector.calls says how many are")


class AdminSource(PageSource, Protocol):
    """The data behind the admin port: one gateway, or the supervisor of several workers."""

    def metrics_text(self, only: Collection[str], *, openmetrics: bool) -> AsyncIterator[str]:
        """The pieces of `/metrics`, of the families named in `only`, of all if it is empty."""

    async def not_ready(self) -> str | None:
        """The reason why this gateway should receive no traffic, or None if it is ready."""

    def actions(self) -> Mapping[str, View]:
        """What a POST to each `/admin/NAME` does; a `{name}` in it becomes a parameter."""


def application(source: AdminSource, access: AdminAccess | None) -> web.Application:
    """The admin port's aiohttp application. Without `access` it asks for nothing: for a socket of our own."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        pieces = source.metrics_text(frozenset(request.query.getall("name[]", ())), openmetrics=openmetrics)
        return await respond(request, pieces, {"Content-Type": _OPENMETRICS if openmetrics else _TEXT}, Pacer())

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        reason = await source.not_ready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=reason + "\n")

    app = web.Application()
    app.on_response_prepare.append(harden)
    if access is not None:
        access.add_to(app)
    add_page(app, source)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    for name, view in source.views().items():
        app.router.add_get(f"/admin/{name}", _handler(view))
    for name, action in source.actions().items():
        app.router.add_post(f"/admin/{name}", _acting(name, action))
    resources = list(app.router.resources())
    paths = [route.resource.canonical for route in app.router.routes() if route.resource is not None]
    listed = "".join(f"{path}\n" for path in dict.fromkeys(paths))

    async def unknown(request: web.Request) -> web.Response:
        allowed = set[str]().union(*[(await one.resolve(request))[1] for one in resources])
        if allowed:
            methods = ", ".join(sorted(allowed))
            return web.Response(status=405, text=f"405: use {methods}\n", headers={"Allow": methods})
        hint = _ON_MAIN_PORT if request.path.startswith(("/v1", "/chat")) else elsewhere(request.path)
        return web.Response(status=404, text=f"404: {hint or 'no such path'}\nGET:\n{listed}")

    app.router.add_route("*", "/{path:.*}", unknown)
    return app


def _acting(name: str, action: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    act = _handler(action)

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = await act(request)
        if WHO in request:
            target = next(iter(request.match_info.values()), "")
            audit = {"audit": name.rpartition("/")[2], "target": target, "by": request[WHO], "status": answer.status}
            logger.info("admin action", extra=audit)
        return answer

    return handle


def _handler(view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        value, status = await view({**request.query, **request.match_info}), 200
        if isinstance(value, LongObject | LongArray):
            return await respond(request, value.pieces(), {"Content-Type": "application/json"}, Pacer())
        if isinstance(value, AdminUnavailable):
            value, status = value._asdict(), 503
        elif isinstance(value, AdminMissing):
            value, status = value._asdict(), 404
        elif isinstance(value, AdminRefused):
            value, status = value._asdict(), 409
        return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")

    return handle
