"""`python -m benchmarks.counter_accuracy`: do the counters of two workers agree with their clients, if one is killed halfway?

32 clients make 10,000 calls as fast as they can. After half of them one worker gets a SIGKILL in the middle of
its calls; a client that loses an answer repeats the call on another connection. A worker counts a call right
after its last byte, so the call at which it dies may be answered and not counted, and a call whose answer is
lost on its way may be counted. All others must agree exactly.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from benchmarks.arguments import arguments
from benchmarks.limited import Client, Limited
from benchmarks.proxies import Upstream

CALLS, CLIENTS = 10_000, 32


class Clients:
    """32 clients, and the answers that they got."""

    def __init__(self, gateway: Limited) -> None:
        self.seen: Counter[str] = Counter()
        self.half = asyncio.Event()
        self._port = gateway.port
        self._left = CALLS

    async def one(self) -> None:
        """Make calls until none are left."""
        client = Client(self._port, "exact", "a short one")
        while self._left > 0:
            self._left -= 1
            while (status := await _status(client)) != 200:
                self.seen[f"not answered ({status or 'broken'})"] += 1
            self.seen["answered"] += 1
            if self.seen["answered"] == CALLS // 2:
                self.half.set()


async def _status(client: Client) -> int:
    """The status; 0 if the connection broke."""
    try:
        return (await client.ask())[0]
    except (OSError, EOFError):
        return 0


def a_worker_of(parent: int) -> int:
    """The first of the gateway's worker processes."""
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])


async def main() -> None:
    """Start everything, run, end everything."""
    arguments(__doc__)
    upstream = Upstream(0)
    gateway = Limited(upstream.port, {"exact": {}})
    gateway.config["server"]["workers"] = 2
    try:
        for one in (upstream, gateway):
            await asyncio.to_thread(one.start, 1)
        clients = Clients(gateway)
        running = [asyncio.create_task(clients.one()) for _ in range(CLIENTS)]
        await clients.half.wait()
        assert gateway.process is not None
        os.kill(a_worker_of(gateway.process.pid), signal.SIGKILL)
        await asyncio.gather(*running)
        await asyncio.sleep(1)
        counted = await gateway.gauge("sluice_requests_total")
        print("| | calls |\n| --- | --: |")
        for what, calls in sorted(clients.seen.items()):
            print(f"| clients: {what} | {calls:,} |")
        print(f"| the gateway's counters | {counted:,.0f} |")
        print(f"| difference | {counted - clients.seen['answered']:+,.0f} |")
    finally:
        for one in (gateway, upstream):
            one.stop()


if __name__ == "__main__":
    asyncio.run(main())
