"""`python -m benchmarks.soak [--requests 200000]`: does anything grow in a gateway over a long run?

Mixed calls with all features on: of ten, five are plain answers, two are streams read to their end, three are
streams whose client leaves, before the first event or after some, half of them by a reset. The config is changed
and reloaded every 2,000 calls. After each tenth the load pauses, the clients hang up, and the gateway's state is
read: private memory, Python's allocated blocks, descriptors, threads, tasks, calls in flight. Its bounded stores
(cached answers, recent prompt prefixes) are full within the first fifth of the default number of calls; from
then on everything must stay constant. Exits with 1 if it does not, or if one answer was wrong.
"""

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter

import uvloop

from benchmarks.arguments import parser_of
from benchmarks.leak_check import Gateway, Held, held, verdict
from benchmarks.measure import on_core
from benchmarks.mixed_traffic import TEN, MixedTraffic
from benchmarks.proxies import Upstream

TENTHS = 10
RELOAD_EVERY = 2000  # calls


async def soak(gateway: Gateway, requests: int, seen: Counter[str]) -> list[Held]:
    """Run the load, pause and read the state, ten times; print each reading."""
    rows: list[Held] = []
    traffic = MixedTraffic(gateway, random.Random(1), seen)
    print("| calls | memory MB | Python blocks | descriptors | idle upstream | threads | tasks | in flight |")
    print("| --: | --: | --: | --: | --: | --: | --: | --: |")
    for tenth in range(1, TENTHS + 1):
        for begun in range(0, requests // TENTHS, RELOAD_EVERY):
            running = asyncio.create_task(traffic.run(min(RELOAD_EVERY, requests // TENTHS - begun)))
            await gateway.reload()  # with calls of both configs under way
            await running
        traffic.close()
        rows.append(await held(gateway, requests // TENTHS * tenth))
        print(rows[-1].row(), flush=True)
    return rows


def main() -> None:
    """Start the upstream and the gateway, run, and print the verdict."""
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    requests = parser.parse_args().requests
    cores = sorted(os.sched_getaffinity(0))
    upstream, seen, began = Upstream(0), Counter[str](), time.monotonic()
    gateway = None
    try:
        upstream.start(cores[-1])
        gateway = Gateway(upstream.port)
        gateway.start(cores[0])
        with on_core(cores[-1]):
            rows = uvloop.run(soak(gateway, requests, seen))
        output = (gateway.folder / "output").read_text(errors="replace")
        lines = [line for line in output.splitlines() if '"level":"error"' in line or "Traceback" in line]
    finally:
        for one in (gateway, upstream):
            if one is not None:
                one.stop()
    for kind, count in sorted(seen.items()):
        print(f"- {kind}: {count:,}")
    print(f"- reloads: {gateway.generation - 1}; errors in the log: {len(lines)}")
    print(f"- {time.monotonic() - began:.0f} s")
    faults = verdict(rows) + lines[:5] + [kind for kind in seen if kind not in set(TEN)]
    print("\n".join([f"NOT FLAT, or not right: {fault}" for fault in faults] or ["Flat from 20 % to 100 %."]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
