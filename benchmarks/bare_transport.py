"""The gateway's listener and its upstream transport, with nothing between them.

`python -m benchmarks.bare_transport PORT UPSTREAM_PORT`. No keys, no inspection of bodies, no checks, whole answers only:
the gateway's cost beyond this is its features.
"""

import asyncio
import math

import uvloop

from benchmarks.arguments import arguments
from gateway.core.clock import monotonic
from gateway.core.errors import TOTAL
from gateway.http.client.h1_pool import H1Transport
from gateway.http.server.connection import Request
from gateway.http.server.listener import Listener
from gateway.http.server.response import JSON, Response
from gateway.http.ticker import Ticker

_LARGEST = 2**30


async def serve(port: int, upstream_port: int) -> None:
    """Listen on the loopback until the process is ended."""
    sweep = Ticker(0.5, monotonic)
    json = [("content-type", "application/json")]
    upstream = H1Transport("fake", f"http://127.0.0.1:{upstream_port}/v1", json, sweep, monotonic)

    async def forward(request: Request) -> Response:
        if request.method == "GET":
            answer = Response(200, JSON, b"{}")
        else:
            pieces = []
            while piece := await request.content.readany():
                pieces.append(piece)
            path = request.target.removeprefix("/v1")
            exchange = await upstream.send(path, [], pieces, 5.0, math.inf, TOTAL)
            answer = Response(exchange.status, JSON, await exchange.read(_LARGEST, math.inf))
        answer.write(request)
        return answer

    def complain(request: Request, status: int, _: BaseException | None) -> Response:
        answer = Response(status, JSON, b"{}")
        answer.write(request)
        return answer

    listener = Listener(forward, complain, 75.0)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(*arguments(__doc__, port=int, upstream_port=int)))
