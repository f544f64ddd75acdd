"""The yardstick: aiohttp's server in front of aiohttp's client, and nothing else.

`python -m benchmarks.forwarder PORT UPSTREAM_PORT`. Lean and realistic: low-level server, no router, no access
log, no pool limit, no timeouts, no decompression; streams are forwarded chunk by chunk.
"""

import asyncio

import aiohttp
import uvloop
from aiohttp import web

from benchmarks.arguments import arguments


async def serve(port: int, upstream_port: int) -> None:
    """Forward every request until the process is ended."""
    base = f"http://127.0.0.1:{upstream_port}"

    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()  # `request.read()` stops at 1 MiB
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with session.request(request.method, base + request.path, data=body, headers=headers) as answer:
            headers = {"Content-Type": answer.headers["Content-Type"]}
            if answer.content_length is not None:
                return web.Response(status=answer.status, body=await answer.read(), headers=headers)
            reply = web.StreamResponse(status=answer.status, headers=headers)
            await reply.prepare(request)
            async for data in answer.content.iter_any():
                await reply.write(data)
            await reply.write_eof()
            return reply

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        runner = web.ServerRunner(web.Server(forward, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(*arguments(__doc__, port=int, upstream_port=int)))
