"""What a gateway holds while no client is connected, and whether it has grown (for `benchmarks.soak`)."""

import asyncio
import contextlib
import os
import signal
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mixed_traffic import CALLERS
from benchmarks.proxies import SluiceAllOn

FLAT_FROM = 2  # tenths: what the gateway keeps on purpose is full by then
# Of the value at the second tenth; beside the blocks, the C heap frays a little.
MEMORY_MAY_GROW, BLOCKS_MAY_GROW = 0.05, 0.01
FEW = 2  # descriptors, threads or tasks more: a scrape's connection, the ledger's writer at work


class Gateway(SluiceAllOn):
    """The gateway under test, with a cache of 4 MiB and a config that changes."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.generation = 1

    def config(self) -> dict[str, Any]:
        """Each generation changes the cache's TTL, a candidate's price and a key's limit."""
        config = super().config()
        new = self.generation
        config["cache"] |= {"max_bytes": "4MiB", "ttl": 3600 + new}
        config["models"][self.model]["candidates"][0]["price"]["input"] = (500 + new) / 1000
        config["keys"][0]["limits"]["rpm"] -= new
        return config

    @property
    def found(self) -> Path:
        """The file that `benchmarks.introspect` writes."""
        return self.folder / "inside"

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "benchmarks.introspect", str(self.found), *arguments]

    async def reload(self) -> None:
        """Change the config and wait until it is in force.

        Raises TimeoutError if it is not within 20 s.
        """
        self.generation += 1
        super().command()  # writes the file
        os.kill(self.pid, signal.SIGHUP)
        async with asyncio.timeout(20):
            while await self.metric("sluice_config_generation") < self.generation:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def metric(self, name: str) -> float:
        """The sum of a series."""
        url = f"http://127.0.0.1:{self.admin_port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def inside(self) -> tuple[int, int]:
        """Its number of tasks and memory blocks."""
        self.found.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR2)
        async with asyncio.timeout(20):
            while not self.found.exists():  # noqa: ASYNC110 - it is another process that writes it
                await asyncio.sleep(0.02)
        tasks, blocks = self.found.read_text().split()
        return int(tasks), int(blocks)


@dataclass(frozen=True, slots=True)
class Held:
    """What the gateway holds while no client is connected."""

    calls: int
    memory: int  # bytes of its own, no file mapped
    blocks: int  # that Python's allocator has handed out: nearly every object is one or more
    descriptors: int  # but for the connections to the upstream
    idle: int  # open connections to the upstream
    threads: int
    tasks: int
    inflight: int

    def row(self) -> str:
        """A row of the table."""
        shown = [f"{self.calls:,}", f"{self.memory / 1e6:.1f}", f"{self.blocks:,}"]
        shown += map(str, (self.descriptors, self.idle, self.threads, self.tasks, self.inflight))
        return f"| {' | '.join(shown)} |"


async def held(gateway: Gateway, calls: int) -> Held:
    """Read it once the number of descriptors is stable, or after 5 s."""
    before, until = (-1, -1), time.monotonic() + 5
    while (open_ := descriptors(gateway)) != before and time.monotonic() < until:
        before = open_
        await asyncio.sleep(0.5)
    tasks, blocks = await gateway.inside()
    inflight = int(await gateway.metric("sluice_upstream_inflight"))
    threads = len(os.listdir(f"/proc/{gateway.pid}/task"))
    return Held(calls, anonymous(gateway.pid), blocks, *open_, threads, tasks, inflight)


def anonymous(pid: int) -> int:
    """Private anonymous memory of a process, in bytes."""
    lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def descriptors(gateway: Gateway) -> tuple[int, int]:
    """The descriptors of its process, and how many of them are connections to the upstream."""
    folder = Path("/proc", str(gateway.pid))
    targets = []
    for file in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed while we looked
            targets.append(str(file.readlink()))
    upstream = f":{gateway.upstream_port:04X}"
    lines = [line.split() for line in (folder / "net" / "tcp").read_text().splitlines()[1:]]
    theirs = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(upstream)}
    idle = sum(target in theirs for target in targets)
    return len(targets) - idle, idle


def verdict(rows: list[Held]) -> list[str]:
    """What has grown since the second tenth; empty if nothing has."""
    base, later = rows[FLAT_FROM - 1], rows[FLAT_FROM:]
    most = {
        "memory": int(base.memory * (1 + MEMORY_MAY_GROW)),
        "blocks": int(base.blocks * (1 + BLOCKS_MAY_GROW)),
        "descriptors": base.descriptors + FEW,
        "idle": CALLERS,
        "threads": base.threads + FEW,
        "tasks": base.tasks + FEW,
        "inflight": 0,
    }
    return [
        f"{name} at {row.calls:,} calls: {getattr(row, name):,}, at most {bound:,} expected"
        for name, bound in most.items()
        for row in later
        if getattr(row, name) > bound
    ]
