"""`python -m benchmarks.rate_window`: 600 single embedding calls within one minute at an upstream that takes 60.

They arrive evenly over the minute, each from its own caller, through a gateway with `policy: window`. The
upstream counts over every sliding minute and answers 429 to the 61st call. It takes a minute and needs no engine.
"""

import asyncio
import time
from collections import deque

from aiohttp import web

from benchmarks.arguments import arguments
from benchmarks.batching import Gateway
from benchmarks.client import Connection, post
from benchmarks.contender import free_port

CALLS, MINUTE_S, ALLOWED = 600, 60.0, 60


class Minutely:
    """The upstream, with its limit per minute."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.refused = 0
        self._recent: deque[float] = deque()

    async def serve(self, port: int) -> web.AppRunner:
        """Serve on the loopback interface until the runner is cleaned up."""
        app = web.Application()
        app.router.add_post("/v1/embeddings", self._embed)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    async def _embed(self, request: web.Request) -> web.Response:
        now = time.monotonic()
        while self._recent and now - self._recent[0] >= MINUTE_S:
            self._recent.popleft()
        if len(self._recent) >= ALLOWED:
            self.refused += 1
            return web.json_response({"error": {"message": "too many requests"}}, status=429)
        self._recent.append(now)
        given = (await request.json())["input"]
        items = [given] if isinstance(given, str) else given
        self.sizes.append(len(items))
        data = [{"object": "embedding", "index": at, "embedding": [1.0]} for at in range(len(items))]
        usage = {"prompt_tokens": len(items), "total_tokens": len(items)}
        return web.json_response({"object": "list", "model": "tiny", "data": data, "usage": usage})


async def run() -> None:
    """Send the calls and print the result."""
    rules = {"policy": "window", "max_wait": "1s"}
    upstream, gateway = Minutely(), Gateway("window", free_port(), rules, rate={"rpm": ALLOWED})
    runner = await upstream.serve(gateway.upstream_port)
    await asyncio.to_thread(gateway.start, 0)
    failed: list[str] = []
    durations: list[float] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number * MINUTE_S / CALLS)
        connection, asked = Connection(gateway.port), time.monotonic()
        body = {"model": "tiny", "input": f"text {number}"}
        try:
            (await connection.request(post("/v1/embeddings", body))).checked()
        except (RuntimeError, OSError) as error:
            failed.append(str(error))
        finally:
            connection.close()
        durations.append(time.monotonic() - asked)
        print(f"\r{len(durations)} of {CALLS}", end="", flush=True)

    try:
        await asyncio.gather(*(one(number) for number in range(CALLS)))
    finally:
        gateway.stop()
        await runner.cleanup()
    durations.sort()
    print(
        f"\r{CALLS - len(failed)} of {CALLS} succeeded, in {len(upstream.sizes)} upstream calls "
        f"({max(upstream.sizes)} at most in one), {upstream.refused} refused by the upstream; "
        f"p50 {durations[len(durations) // 2]:.2f} s, longest {durations[-1]:.2f} s"
    )
    for error in failed[:5]:
        print(error)


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(run())
