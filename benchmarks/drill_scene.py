"""The scene of a drill: two upstreams, a gateway and a Redis on loopback, and a shell."""

import asyncio
import copy
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.contender import ROOT, Contender, free_port
from benchmarks.limited import Redis

PATIENCE_S = 20.0
PRICE = {"input": 3, "output": 15}
KEYS = {name: f"sk-drill-{name}-0123456789" for name in ("team-a", "team-b")}
_ADMIN = "http://127.0.0.1:9464"


class Engine:
    """An upstream in one of the modes `well`, `failing`, `hanging` and `cutting` (streams off)."""

    def __init__(self) -> None:
        self.port, self.mode = free_port(), "well"
        self.released = asyncio.Event()  # hanging calls wait for it
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen, on the same port each time."""
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Refuse connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "small"}, {"id": "large"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if self.mode == "failing":
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        if self.mode == "hanging":
            await self.released.wait()
        delta = {"index": 0, "delta": {"content": "pong"}, "finish_reason": None}
        if asked.get("stream"):
            answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await answer.prepare(request)
            await answer.write(_event({"id": "c", "choices": [delta]}))
            if self.mode == "cutting":
                assert request.transport is not None
                request.transport.close()
                return answer
            await answer.write(_event({"id": "c", "choices": [{**delta, "delta": {}, "finish_reason": "stop"}]}))
            await answer.write(b"data: [DONE]\n\n")
            return answer
        message = {"role": "assistant", "content": "pong"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": "c", "model": asked["model"], "choices": [choice], "usage": usage})


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class Gateway(Contender):
    """`sluice serve` in its own folder, with its config in `sluice.yaml` and its stderr in `sluice.log`."""

    name = "sluice"
    module = "gateway"

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(0)
        self.admin_port = free_port()
        self.config = {**config, "server": {"port": self.port}, "admin": {"port": self.admin_port}}
        self.write(self.config)
        (self.folder / "sluice.log").symlink_to(self.folder / "output")

    def write(self, config: dict[str, Any]) -> None:
        """Replace the config file atomically."""
        fresh = self.folder / "fresh.yaml"
        fresh.write_text(json.dumps(config))  # JSON is YAML
        fresh.replace(self.folder / "sluice.yaml")

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, "serve", "--config", "sluice.yaml"]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}

    def kill(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class Scene:
    """Upstreams, Redis and gateway, and what a drill does with them."""

    def __init__(self, redis: Redis) -> None:
        self.local, self.spare, self.redis = Engine(), Engine(), redis
        self.scrape_s = 0.0  # until Prometheus has seen a new series; what a counter begins with is no growth to it
        upstreams = {
            name: {
                "base_url": f"http://127.0.0.1:{one.port}/v1",
                "breaker": {"open_for": "1s", "max_open_for": "1s"},
            }
            for name, one in (("local", self.local), ("spare", self.spare))
        }
        self.gateway = Gateway(
            {
                "upstreams": upstreams | {"local": {**upstreams["local"], "max_concurrency": 2}},
                "models": {
                    "small": {"candidates": [{"upstream": "local", "price": PRICE}]},
                    "large": {"candidates": [{"upstream": "spare"}]},
                },
                "keys": [
                    {"name": "team-a", "key": KEYS["team-a"]},
                    {"name": "team-b", "key": KEYS["team-b"], "limits": {"usd_per_day": 0.01}},
                ],
                "redis": {**redis.section, "timeout": "200ms"},
                "retry": {"attempts": 2, "backoff_base": "1ms"},
                "usage": {"store": "sqlite", "path": "usage.db"},
                "batches": {"enabled": True, "path": "batches"},
                "log": {"format": "json"},
            }
        )

    async def start(self) -> None:
        """Start everything and wait until it serves."""
        await asyncio.gather(self.local.start(), self.spare.start())
        await asyncio.to_thread(self.redis.start, 0)
        await asyncio.to_thread(self.gateway.start, 0)
        await self.ready()

    async def stop(self) -> None:
        """Stop everything that still runs."""
        for engine in (self.local, self.spare):
            engine.released.set()
            await engine.stop()
        await asyncio.to_thread(self.gateway.stop)
        await asyncio.to_thread(self.redis.stop)

    async def ready(self) -> None:
        """Whether the gateway is ready, and all upstreams and Redis are up."""
        await self.until("sluice_upstream_up", lambda value: value == 2)
        await self.until("sluice_redis_up", lambda value: value == 1)

    async def shell(self, command: str) -> tuple[int, str]:
        """Run a command of the page in the gateway's folder, as a reader would; returns status and output."""
        here = command.replace(_ADMIN, f"http://127.0.0.1:{self.gateway.admin_port}")
        script = f'sluice() {{ "{sys.executable}" -m gateway "$@"; }}\n{here}'
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self.gateway.folder,
            env=self.gateway.environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    async def submit(self, lines: int, window: str) -> None:
        """Start a batch of so many lines."""
        messages = [{"role": "user", "content": "ping"}]
        line = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "small", "messages": messages}}
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        content = "".join(json.dumps({**line, "custom_id": str(number)}) + "\n" for number in range(lines))
        form.add_field("file", content.encode(), filename="in.jsonl")
        headers = {"authorization": f"Bearer {KEYS['team-a']}"}
        url = f"http://127.0.0.1:{self.gateway.port}/v1"
        async with aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:
            async with session.post(f"{url}/files", data=form) as answer:
                file = (await answer.json())["id"]
            asked = {"input_file_id": file, "endpoint": line["url"], "completion_window": window}
            async with session.post(f"{url}/batches", json=asked):
                pass

    async def ask(self, model: str = "small", key: str = "team-a", text: str = "ping", **more: Any) -> int:
        """Make one call; returns its status, or 0 if the answer broke off."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100, **more}
        headers = {"authorization": f"Bearer {KEYS[key]}"}
        url = f"http://127.0.0.1:{self.gateway.port}/v1/chat/completions"
        with suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=body, headers=headers) as answer,
            ):
                said = await answer.read()
                return 0 if b'"error"' in said and answer.status == 200 else answer.status
        return 0

    async def value(self, name: str, **labels: str) -> float:
        """The sum of a series of `/metrics` whose labels hold these; 0 without any."""
        url = f"http://127.0.0.1:{self.gateway.admin_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(value) for has, value in found if all(one in has for one in wanted))

    async def until(self, name: str, true: Callable[[float], bool], within: float = PATIENCE_S, **labels: str) -> None:
        """Wait until a series has this value. Raises TimeoutError."""
        end, value = monotonic() + within, 0.0
        while monotonic() < end:
            with suppress(aiohttp.ClientError):
                value = await self.value(name, **labels)
                if true(value):
                    return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"{name}{labels} is {value} after {within:g} s")

    async def scraped(self) -> None:
        """Wait until Prometheus, if it runs, has scraped the present state."""
        await asyncio.sleep(self.scrape_s)

    async def reload(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Write a changed config and wait until it is in force, a second or two later."""
        before = await self.value("sluice_config_generation")
        self.gateway.config = copy.deepcopy(self.gateway.config)
        change(self.gateway.config)
        self.gateway.write(self.gateway.config)
        await self.until("sluice_config_generation", lambda value: value > before)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A running scene, stopped at the end."""
    one = Scene(Redis(0))
    try:
        await one.start()
        yield one
    finally:
        await one.stop()
