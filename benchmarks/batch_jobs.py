"""`python -m benchmarks.batch_jobs [LINES] [KILLS]`: batches of files through a gateway, against its live load.

rate    LINES lines of 4 KB (200 MB by default) at an engine that takes 20 ms a call, once as live calls, once as a
        batch: lines a second of both, and the memory that the batch adds to an idle gateway.
kills   5,000 lines at the same engine under KILLS kills (`kill -9`) at random moments, of one gateway and then of two
        that share the batch through Redis: every line once in the output, and no more upstream calls than lines and
        the slots at each kill.
live    live calls every 20 ms, with and without a batch: their p99 in both.
"""

import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import uvloop

from benchmarks.arguments import arguments
from benchmarks.contender import Contender, serving
from benchmarks.fake_upstream import start_timed
from benchmarks.limited import Redis
from benchmarks.measure import memory_bytes, tree

LINES, KILLS, SLOTS, CALL_S, TEXT = 50_000, 100, 64, 0.020, "x" * 3800
KILLED_LINES, SEED = 5_000, 7
LIVE_CALLS, LIVE_EVERY_S = 500, 0.020
PATH = "/v1/chat/completions"


class BatchGateway(Contender):
    """A gateway with batches in front of the engine; its folder outlives a kill."""

    name = "sluice"

    def __init__(self, upstream_port: int, redis: Redis | None = None, shared: Path | None = None) -> None:
        """With `redis` the files are in the folder `shared`."""
        super().__init__(upstream_port)
        self._redis, self._shared = redis, shared

    def command(self) -> list[str]:
        config: dict[str, Any] = {
            "server": {"port": self.port},
            "admin": {"port": 0},
            "upstreams": {
                "engine": {"base_url": f"http://127.0.0.1:{self.upstream_port}/v1", "max_concurrency": SLOTS}
            },
            "models": {"m": {"candidates": [{"upstream": "engine", "model": "fake-model"}]}},
            "usage": {"store": "off"},
            "batches": {"enabled": True, "path": str(self.folder / "batches"), "max_file": "1GiB"},
            "log": {"level": "warning"},
        }
        if self._redis is not None:
            config["redis"] = {**self._redis.section, "timeout": "1s"}
            config["batches"] = {"enabled": True, "url": f"file://{self._shared}"}
        return serving(self.folder, config)

    def kill(self) -> None:
        """Kill it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self.port}/v1"


def requests(lines: int) -> Iterator[dict[str, Any]]:
    """The bodies of so many lines."""
    for number in range(lines):
        yield {"model": "m", "messages": [{"role": "user", "content": f"{number} {TEXT}"}], "max_tokens": 8}


def written(folder: Path, lines: int) -> Path:
    """The input file."""
    path = folder / "in.jsonl"
    with path.open("w") as file:
        for number, body in enumerate(requests(lines)):
            file.write(json.dumps({"custom_id": str(number), "method": "POST", "url": PATH, "body": body}) + "\n")
    return path


async def submitted(http: aiohttp.ClientSession, gateway: BatchGateway, path: Path) -> str:
    """The id of a batch of this file."""
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    with path.open("rb") as file:
        form.add_field("file", file, filename="in.jsonl")
        async with http.post(f"{gateway.url}/files", data=form) as answer:
            answer.raise_for_status()
            id = (await answer.json())["id"]
    asked = {"input_file_id": id, "endpoint": PATH, "completion_window": "24h"}
    async with http.post(f"{gateway.url}/batches", json=asked) as answer:
        answer.raise_for_status()
        return str((await answer.json())["id"])


async def shown(http: aiohttp.ClientSession, gateway: BatchGateway, id: str) -> dict[str, Any]:
    """The batch as it is now."""
    async with http.get(f"{gateway.url}/batches/{id}") as answer:
        answer.raise_for_status()
        return dict(await answer.json())


async def ended(http: aiohttp.ClientSession, gateway: BatchGateway, id: str) -> tuple[dict[str, Any], int]:
    """The batch once it is completed, and the most memory that the gateway had until then."""
    most = 0
    assert gateway.process is not None
    while (batch := await shown(http, gateway, id))["status"] != "completed":
        if batch["status"] not in ("validating", "in_progress", "finalizing"):
            raise SystemExit(f"the batch ended otherwise: {batch}")
        most = max(most, memory_bytes(tree(gateway.process.pid)))
        await asyncio.sleep(0.1)
    return batch, most


async def live(http: aiohttp.ClientSession, gateway: BatchGateway, lines: int) -> float:
    """Calls a second of a client that keeps all slots of the engine busy."""
    bodies = requests(lines)
    began = monotonic()

    async def client() -> None:
        for body in bodies:
            async with http.post(f"{gateway.url}/chat/completions", json=body) as answer:
                await answer.read()

    await asyncio.gather(*(client() for _ in range(SLOTS)))
    return lines / (monotonic() - began)


async def rate(http: aiohttp.ClientSession, gateway: BatchGateway, lines: int) -> None:
    """Rate and memory."""
    path = written(gateway.folder, lines)
    assert gateway.process is not None
    live_rate = await live(http, gateway, min(lines, 10_000))
    idle = memory_bytes(tree(gateway.process.pid))
    id = await submitted(http, gateway, path)
    batch, most = await ended(http, gateway, id)
    took = batch["finalizing_at"] - batch["in_progress_at"]
    size = path.stat().st_size / 1e6
    print(f"live    {live_rate:,.0f} calls/s")
    print(f"batch   {lines / max(1, took):,.0f} lines/s over {took} s, {lines / max(1, took) / live_rate:.2f} of live")
    print(
        f"        {size:.0f} MB, {batch['request_counts']}; memory at most {(most - idle) / 2**20:+.0f} MiB from idle"
    )


async def kills(
    http: aiohttp.ClientSession, gateways: list[BatchGateway], count: int, longest_s: float, calls: list[int]
) -> None:
    """Every line once, whatever is killed; `longest_s` seconds at most between two kills."""
    rng, gateway = random.Random(SEED), gateways[0]
    before = len(calls)
    id = await submitted(http, gateway, written(gateway.folder, KILLED_LINES))
    done = 0
    for number in range(count):
        await asyncio.sleep(rng.uniform(0.0, longest_s))
        victim = rng.choice(gateways)
        victim.kill()
        await asyncio.to_thread(victim.start, 0)
        with suppress(aiohttp.ClientError):
            done = (await shown(http, gateway, id))["request_counts"]["completed"]
        if done >= KILLED_LINES:
            count = number + 1
            break
    batch, _ = await ended(http, gateway, id)
    async with http.get(f"{gateway.url}/files/{batch['output_file_id']}/content") as answer:
        ids = [json.loads(line)["custom_id"] for line in (await answer.text()).splitlines()]
    sent = len(calls) - before
    once = sorted(map(int, ids)) == list(range(KILLED_LINES))
    print(f"kills   {count} of {len(gateways)} gateways over {KILLED_LINES:,} lines: every line once: {once}")
    print(f"        {sent - KILLED_LINES:,} calls more, of at most {count * SLOTS:,}: the slots at each kill")
    if not once or sent > KILLED_LINES + count * SLOTS:
        raise SystemExit(1)


async def shared_kills(http: aiohttp.ClientSession, port: int, count: int, calls: list[int]) -> None:
    """The same with two gateways. A dead one's lines are free after 30 seconds, so the kills take minutes."""
    redis, shared = Redis(port), Path(tempfile.mkdtemp(prefix="bench-"))
    gateways = [BatchGateway(port, redis, shared) for _ in range(2)]
    try:
        for one in (redis, *gateways):
            await asyncio.to_thread(one.start, 0)
        await kills(http, gateways, count, 0.2, calls)
    finally:
        for one in (*gateways, redis):
            one.stop()
            shutil.rmtree(one.folder, ignore_errors=True)
        shutil.rmtree(shared, ignore_errors=True)


async def waits(http: aiohttp.ClientSession, gateway: BatchGateway) -> list[float]:
    """Milliseconds of live calls that come at a steady pace."""
    found: list[float] = []

    async def one(body: dict[str, Any]) -> None:
        began = monotonic()
        async with http.post(f"{gateway.url}/chat/completions", json=body) as answer:
            await answer.read()
        found.append(1000 * (monotonic() - began))

    async with asyncio.TaskGroup() as group:
        for body in requests(LIVE_CALLS):
            group.create_task(one(body))
            await asyncio.sleep(LIVE_EVERY_S)
    return found


async def beside(http: aiohttp.ClientSession, gateway: BatchGateway) -> None:
    """Live calls with and without a batch."""
    alone = await waits(http, gateway)
    id = await submitted(http, gateway, written(gateway.folder, 50_000))
    while (await shown(http, gateway, id))["status"] != "in_progress":  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    together = await waits(http, gateway)
    batch = await shown(http, gateway, id)
    await http.post(f"{gateway.url}/batches/{id}/cancel")
    a, b = (statistics.quantiles(each, n=100)[98] for each in (alone, together))
    print(f"live    p99 {a:.1f} ms alone, {b:.1f} ms beside a batch ({b / a:.2f} times), which did", end=" ")
    print(f"{batch['request_counts']['completed']:,} lines meanwhile")


async def run(lines: int, count: int) -> None:
    """All three."""
    calls: list[int] = []
    server, port = await start_timed(lambda body: CALL_S, began=lambda body: calls.append(1))
    gateway = BatchGateway(port)
    try:
        await asyncio.to_thread(gateway.start, 0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
            if lines:
                await rate(http, gateway, lines)
            await beside(http, gateway)
            if count:
                await kills(http, [gateway], count, 0.1, calls)
                await shared_kills(http, port, count, calls)
    finally:
        gateway.stop()
        shutil.rmtree(gateway.folder, ignore_errors=True)
        server.close()


if __name__ == "__main__":
    given = arguments(__doc__, lines=LINES, kills=KILLS)
    sys.exit(uvloop.run(run(*given)))
