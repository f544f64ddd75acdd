"""`python -m benchmarks.spill`: more calls than your own engine can serve, with and without spill-over.

The own engine has 4 slots, each call takes 100 ms on average (exponentially distributed): 40 a second. A paid
upstream of the same speed has slots for every call. Calls arrive at random times, 60 a second; the settings take
turns. Upstreams and gateway share one core.
"""

import itertools
import os
import urllib.request
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final

import uvloop

from benchmarks.arguments import parser_of
from benchmarks.client import CHAT, KEY, Pool, drive, post, timed
from benchmarks.contender import Contender, free_port, serving
from benchmarks.limited import SlowEngine
from benchmarks.measure import machine

OWN_SLOTS, PAID_SLOTS = 4, 512
RATE: Final = 60.0
PRICE: Final = {"input": 1000, "output": 1000}
"""Dollars a million tokens; an answer counts 9 tokens, and its prompt is estimated at more."""
BODY: Final = {"model": "m", "messages": [{"role": "user", "content": "yes?"}], "max_tokens": 1}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "no way past": {},
    "spill_after 2s": {"spill_after": "2s"},
    "spill_after 500ms": {"spill_after": "500ms"},
    "spill_after 500ms, a budget": {"spill_after": "500ms", "usd_per_day": 1.0},
}


class Gateway(Contender):
    """A gateway in front of both upstreams."""

    def __init__(self, own: int, paid: int, fields: Mapping[str, Any]) -> None:
        super().__init__(own)
        self.admin_port = free_port()
        budget = fields.get("usd_per_day")
        model = {name: value for name, value in fields.items() if name != "usd_per_day"}
        candidates = [{"upstream": "own"}, {"upstream": "paid", "price": PRICE}]
        self._config = {
            "server": {"port": self.port},
            "admin": {"port": self.admin_port},
            "keys": [{"name": "bench", "key": KEY, "limits": {"usd_per_day": budget}}],
            "upstreams": {
                "own": _upstream(own, kind="vllm", max_concurrency=OWN_SLOTS),
                "paid": _upstream(paid, max_concurrency=PAID_SLOTS),
            },
            "models": {"m": {"candidates": candidates, **model}},
            "batching": {"policy": "off"},
            "usage": {"store": "off"},
            "log": {"level": "warning"},
        }

    def command(self) -> list[str]:
        return serving(self.folder, self._config)

    def served(self) -> dict[str, float]:
        """The calls that each upstream served, and their cost in dollars."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=5) as answer:
            page = answer.read().decode()
        found = {"own": 0.0, "paid": 0.0, "usd": 0.0}
        for line in page.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("sluice_upstream_attempts_total") and 'result="success"' in name:
                found["own" if 'upstream="own"' in name else "paid"] += float(value)
            elif name.startswith("sluice_cost_usd_total"):
                found["usd"] += float(value)
        return found


def _upstream(port: int, **fields: Any) -> dict[str, Any]:
    return {"base_url": f"http://127.0.0.1:{port}/v1", **fields}


async def calls(port: int, seconds: float, seed: int) -> list[float]:
    """The duration of each call, in seconds; calls arrive whether or not earlier ones are answered."""
    pool, requests = Pool(port), itertools.repeat(post(CHAT, BODY))
    try:
        run = await drive(timed(pool), requests, rate=RATE, seconds=seconds, seed=seed)
    finally:
        pool.close()
    return [sample.end - sample.due for sample in run.samples]


def main() -> None:
    """Print a row for each setting."""
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    core = (os.cpu_count() or 1) - 1
    print(machine())
    print("| way | calls | p50 s | p99 s | longest s | paid share | own engine's calls a second | dollars |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    own, paid = SlowEngine(OWN_SLOTS), SlowEngine(PAID_SLOTS)
    try:
        for engine in (own, paid):
            engine.start(core)
        for name, fields in WAYS.items():
            _row(name, Gateway(own.port, paid.port, fields), seconds, core)
    finally:
        for engine in (own, paid):
            engine.stop()


def _row(name: str, gateway: Gateway, seconds: float, core: int) -> None:
    try:
        gateway.start(core)
        began = perf_counter()
        durations = sorted(uvloop.run(calls(gateway.port, seconds, 1)))
        whole_s = perf_counter() - began
        seen = gateway.served()
    finally:
        gateway.stop()
    p50, p99 = (durations[int(part * len(durations))] for part in (0.5, 0.99))
    share = seen["paid"] / len(durations)
    print(
        f"| {name} | {len(durations)} | {p50:.2f} | {p99:.2f} | {durations[-1]:.2f} | {share:.0%} "
        f"| {seen['own'] / whole_s:.1f} | {seen['usd']:.3f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
