"""`python -m benchmarks.page`: what the inspector and an open page cost the gateway, in CPU time.

A real gateway with its defaults serves 1,000 chat requests a second. Phases with the overview open in one page (its
stream of events is read), with the list of calls open, and with none alternate; a second gateway that keeps no calls
(`inspector.calls: 0`) alternates with the first one. Prints CPU time per second and per request, and the differences in
percent of a core. Takes two minutes.
"""

import asyncio
import itertools
import sys
from contextlib import suppress
from statistics import median
from time import perf_counter

from benchmarks.arguments import arguments
from benchmarks.client import Pool, drive
from benchmarks.contender import Contender, free_port, serving
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import MODEL, chat
from benchmarks.measure import cpu_seconds, tree
from gateway.cli.bench.client import TimedCall

RATE, PHASE_S, ROUNDS = 1000.0, 5.0, 4
PAGES = {"closed": None, "overview open": "/", "calls open": "/calls"}


class Gateway(Contender):
    """A gateway that keeps so many calls."""

    name = "sluice"

    def __init__(self, upstream_port: int, calls: int) -> None:
        super().__init__(upstream_port)
        self.admin_port = free_port()
        self._calls = calls

    def command(self) -> list[str]:
        config = {
            "server": {"port": self.port},
            "admin": {"port": self.admin_port},
            "inspector": {"calls": self._calls},
            "upstreams": {"fake": {"base_url": f"http://127.0.0.1:{self.upstream_port}/v1", "max_concurrency": 4096}},
            "models": {MODEL: {"candidates": [{"upstream": "fake"}]}},
            "usage": {"store": "off"},
            "log": {"level": "error"},
        }
        return serving(self.folder, config)


async def watch(port: int, screen: str) -> None:
    """Read the stream of events of a page, for ever."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET /events?screen={screen} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while await reader.read(65536):
            pass
    finally:
        writer.close()


async def phase(gateway: Gateway, screen: str | None) -> tuple[float, float]:
    """CPU seconds per second and per call, with this screen open."""
    pool = Pool(gateway.port)
    watching = asyncio.create_task(watch(gateway.admin_port, screen)) if screen is not None else None
    pids = tree(gateway.pid)
    used, began = cpu_seconds(pids), perf_counter()

    answered = 0

    async def call(request: bytes, due: float) -> TimedCall:
        nonlocal answered
        response = await pool.request(request)
        answered += response.status == 200
        return TimedCall(due, perf_counter())

    await drive(call, itertools.repeat(chat("any", "x")), rate=RATE, seconds=PHASE_S)
    used, took = cpu_seconds(pids) - used, perf_counter() - began
    if watching is not None:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    pool.close()
    return used / took, used / max(1, answered)


async def run() -> None:
    """All phases, and the table."""
    server, port = await start_timed(lambda body: 0.0)
    kept, none = Gateway(port, 1000), Gateway(port, 0)
    shares: dict[str, list[float]] = {}
    per_call: dict[str, list[float]] = {}
    try:
        for gateway in (kept, none):
            await asyncio.to_thread(gateway.start, 1)
            await phase(gateway, None)
        for _ in range(ROUNDS):
            for name, screen in PAGES.items():
                share, each = await phase(kept, screen)
                shares.setdefault(name, []).append(share)
                per_call.setdefault(name, []).append(each)
            share, each = await phase(none, None)
            shares.setdefault("no calls kept", []).append(share)
            per_call.setdefault("no calls kept", []).append(each)
    finally:
        kept.stop()
        none.stop()
        server.close()
    print("| 1,000 requests a second | CPU, % of a core | µs a request | against closed, points of a core |")
    print("| --- | --: | --: | --: |")
    closed = median(shares["closed"])
    for name, values in shares.items():
        more = (median(values) - closed) * 100
        print(f"| {name} | {median(values) * 100:.1f} | {median(per_call[name]) * 1e6:.0f} | {more:+.1f} |", flush=True)


if __name__ == "__main__":
    arguments(__doc__)
    sys.exit(asyncio.run(run()))
