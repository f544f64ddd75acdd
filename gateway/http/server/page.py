"""Serves the page on the admin port: its screens, its files, one event stream per open page, and the chat box's way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.clock import monotonic
from gateway.http.server.paced import LongArray, LongObject, Pacer
from gateway.inspector.inspector import CallDetails, CallPage
from gateway.page import figures, screens
from gateway.page.figures import Sample, Totals
from gateway.page.render import SCREENS, Place, page, screen
from gateway.page.texts import spoken

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
REFRESH_S: Final = 2.0
_USAGE_S: Final = 10.0  # between two looks into the ledger
_SPAN: Final = 5  # refreshes that rates are taken over
_MOST_VIEWERS: Final = 20
_HEARTBEAT_S: Final = 15.0
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_FILES: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MAX_CHAT: Final = 1024 * 1024
_CHAT: Final = "/v1/chat/completions"

View = Callable[[Mapping[str, str]], Awaitable[object]]
"""Takes the URL's parameters and returns a value to encode as JSON."""


class PageSource(Protocol):
    """What the page shows: one gateway, or the supervisor of several workers."""

    def metrics_text(self, only: Collection[str], *, openmetrics: bool) -> AsyncIterator[str]:
        """The pieces of `/metrics`, of the metrics named in `only`, of all if it is empty."""

    def views(self) -> Mapping[str, View]:
        """The view behind each `/admin/NAME`; a `{name}` in it becomes a parameter."""

    def main_address(self) -> tuple[str, int]:
        """Host and port for clients."""


class _Feed:
    """Collects the figures, for all open pages together, and not at all while none is open."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._views = source.views()
        self._history: list[tuple[float, Totals]] = []
        self._usage: tuple[float, float | None] | None = None
        self._exchange = asyncio.Lock()
        self.viewers = 0

    async def overview(self) -> dict[str, Any]:
        """The figures of the overview."""
        totals = await self.totals()
        first_at, first = self._history[0]
        last_at, _ = self._history[-1]
        return {"figures": figures.overview(totals, first, last_at - first_at), "today_usd": await self._today()}

    async def totals(self) -> Totals:
        """The counts now; not older than a second."""
        async with self._exchange:
            now = monotonic()
            if self._history and now - self._history[-1][0] > 2 * REFRESH_S * _SPAN:
                self._history.clear()  # nobody has looked for a while
            if not self._history or now - self._history[-1][0] > REFRESH_S / 2:
                self._history.append((now, figures.totals(await self._samples())))
                del self._history[: -_SPAN - 1]
            return self._history[-1][1]

    async def _samples(self) -> list[Sample]:
        samples: list[Sample] = []
        pacer = Pacer()
        async for piece in self._source.metrics_text(figures.METRICS, openmetrics=False):
            for family in text_string_to_metric_families(piece):
                samples += [(sample.name, sample.labels, sample.value) for sample in family.samples]
            if pacer.over:
                await pacer.pause()
        return samples

    async def _today(self) -> float | None:
        now = monotonic()
        if self._usage is None or now - self._usage[0] > _USAGE_S:
            self._usage = now, screens.spent_today(await self._plain("usage", {"days": "1", "by": "day"}))
        return self._usage[1]

    async def plain(self, name: str) -> Any:
        """A view as plain data."""
        return await self._plain(name, {})

    async def _plain(self, name: str, query: Mapping[str, str]) -> Any:
        value = await self._views[name](query)
        return await value.plain() if isinstance(value, LongObject | LongArray) else msgspec.to_builtins(value)

    async def batches(self) -> list[dict[str, Any]] | str:
        """The newest batches, or why they cannot be read."""
        view = self._views.get("batches")
        found = [] if view is None else await view({})
        return found if isinstance(found, list) else str(getattr(found, "error", ""))

    async def calls(self, query: Mapping[str, str]) -> CallPage | dict[str, str]:
        """A page of calls, or an `error`."""
        found = await self._views["calls"](query)
        return found if isinstance(found, CallPage) else msgspec.convert(found, dict[str, str])

    async def call(self, id: str) -> CallDetails | None:
        """One call."""
        found = await self._views["calls/{id}"]({"id": id})
        return found if isinstance(found, CallDetails) else None


def add_page(app: web.Application, source: PageSource) -> None:
    """Add the page's routes to the admin port's application."""
    served = _Page(source)
    for _, path in SCREENS:
        app.router.add_get(path, served.whole)
    app.router.add_get("/calls/{id}", served.whole)
    app.on_shutdown.append(served.close)
    app.router.add_get("/find", served.find)
    app.router.add_get("/events", served.events)
    app.router.add_post("/try", served.chat)
    for name in _FILES:
        app.router.add_get(f"/page/{name}", served.file)


class _Page:
    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._feed = _Feed(source)
        self._closing = asyncio.Event()
        self._files = {name: (files("gateway.page") / "static" / name).read_bytes() for name in _FILES}

    async def close(self, app: web.Application) -> None:
        """End the event streams: the gateway stops, and an open page must not hold it up."""
        self._closing.set()

    async def file(self, request: web.Request) -> web.Response:
        """A script, a style or a picture of the page."""
        name = request.path.rpartition("/")[2]
        return web.Response(body=self._files[name], content_type=_FILES[name], headers=HEADERS)

    async def whole(self, request: web.Request) -> web.Response:
        """A screen as a whole page, or with `part=screen` its changing part only."""
        place = _place(request.path, request.query, request)
        name, context = await self._context(place)
        missing = name == "call" and context["record"] is None
        if request.query.get("part") == "screen":
            text = screen(name, place, context)
        else:
            text = page(name, place, {**context, **await self._still(name, place)})
        return _html(text, 404 if missing else 200)

    async def find(self, request: web.Request) -> web.Response:
        """Go to the call with the id that the form asks for."""
        place = _place("/find", request.query, request)
        id = request.query.get("id", "").strip()[:128]
        found = Place(f"/calls/{quote(id, safe='')}" if id else "/calls", {"lang": place.lang}, "")
        raise web.HTTPSeeOther(found.url(), headers=HEADERS)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send a screen's changing part whenever it has changed, as server-sent events."""
        path = request.query.get("screen", "/")
        query = {name: value for name, value in request.query.items() if name != "screen"}
        place = _place(path, query, request)
        if _screen_of(path) is None:
            return _html("", 404)
        if self._feed.viewers >= _MOST_VIEWERS:
            return web.Response(status=503, text="too many open pages\n", headers=HEADERS)
        self._feed.viewers += 1
        try:
            return await self._follow(request, place)
        finally:
            self._feed.viewers -= 1

    async def _follow(self, request: web.Request, place: Place) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        last, written_at = "", monotonic()
        with suppress(ConnectionError):  # the browser has gone
            while not self._closing.is_set():
                name, context = await self._context(place)
                html = screen(name, place, context)
                if html != last:
                    await response.write(b"data: " + msgspec.json.encode(html) + b"\n\n")
                    last, written_at = html, monotonic()
                elif monotonic() - written_at >= _HEARTBEAT_S:
                    await response.write(b": still here\n\n")
                    written_at = monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(REFRESH_S):
                        await self._closing.wait()
        return response

    async def _context(self, place: Place) -> tuple[str, dict[str, Any]]:
        """The name of the screen, and what it shows."""
        feed, name = self._feed, _screen_of(place.path) or "overview"
        if name == "try":
            return name, {}
        if name == "call":
            details = await feed.call(place.path.removeprefix("/calls/"))
            return name, screens.call_context(details, place.words, self._base_url())
        if name == "calls":
            found = await feed.calls(place)
            if isinstance(found, CallPage):
                older = place.url(before=found.next) if found.next is not None else ""
                return name, {"calls": found, "older": older, "error": ""}
            return name, {"error": found["error"]}
        if name == "batches":
            batches = await feed.batches()
            return name, {"batches": batches, "error": ""} if isinstance(batches, list) else {"error": batches}
        config, totals = await feed.plain("config"), await feed.totals()
        if name == "keys":
            left, budgets = await feed.plain("keys"), await feed.plain("budgets")
            rows = screens.key_rows(config, left, budgets, totals)
            return name, {"keys": rows, "more_keys": screens.hidden_keys(config)}
        views = await feed.plain("upstreams")
        if name == "models":
            return name, {"models": screens.model_rows(views, config, totals)}
        rows = screens.upstream_rows(views, config, totals)
        if name == "upstreams":
            return name, {"upstreams": rows}
        return name, {**await feed.overview(), "upstreams": rows, "calls": await feed.calls({"limit": "10"})}

    async def _still(self, name: str, place: Place) -> dict[str, Any]:
        """What a page shows outside of its changing part."""
        config = await self._feed.plain("config")
        kept = config["inspector"]
        still: dict[str, Any] = {
            "bodies_kept": kept["bodies"] and kept["calls"] > 0,
            "has_batches": config["batches"]["enabled"],
        }
        if name == "calls":
            asked = ("status", "outcome", "model", "key", "upstream", "slow")
            still |= {"query": {one: place.get(one, "") for one in asked}, "outcomes": figures.OUTCOMES}
        if name == "try":
            models = list(config["models"])
            body = msgspec.json.encode({"model": models[0], "messages": [{"role": "user", "content": "Hello"}]})
            example = screens.curl(self._base_url(), _CHAT, body.decode())
            still |= {"models": models, "asks_key": bool(config["keys"]), "curl": example}
        return still

    def _base_url(self) -> str:
        host, port = self._source.main_address()
        host = _LOOPBACK.get(host, host)
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Pass a chat request of the page on to the main port, with the key that it was given."""
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            return web.Response(status=403, text="only the page itself may ask\n", headers=HEADERS)
        if request.content_type != "application/json":
            return web.Response(status=415, text="send application/json\n", headers=HEADERS)
        if (request.content_length or _MAX_CHAT + 1) > _MAX_CHAT:
            return web.Response(status=413, text="too long\n", headers=HEADERS)
        headers = {"Content-Type": "application/json"}
        if "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        body = await request.read()
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=None), trust_env=False) as session,
                session.post(self._base_url() + _CHAT, data=body, headers=headers) as answer,
            ):
                passed = ("Content-Type", "X-Request-Id")
                kept = {name: answer.headers[name] for name in passed if name in answer.headers}
                response = web.StreamResponse(status=answer.status, headers={**HEADERS, **kept})
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except (ClientError, OSError):
            if request.transport is None or request.transport.is_closing():
                raise asyncio.CancelledError from None
            return web.Response(status=502, text="the main port does not answer\n", headers=HEADERS)


def _place(path: str, query: Mapping[str, str], request: web.Request) -> Place:
    return Place(path, query, spoken(request.headers.get("Accept-Language", "")))


def _screen_of(path: str) -> str | None:
    if path.startswith("/calls/") and len(path) > len("/calls/"):
        return "call"
    return next((name for name, at in SCREENS if at == path), None)


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)
