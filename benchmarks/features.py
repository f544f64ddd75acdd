"""What each feature adds to a call: function calls and CPU time of the path without sockets, one feature at a time.

`python -m benchmarks.features 2>/dev/null` prints the tables of docs/benchmarks.md; the log goes to stderr. Every prompt
is unique, so that a cache misses. The features take turns, and a time is the least of a feature's rounds: it is compared within a run only.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path as File
from time import process_time
from types import FrameType
from typing import Any

import uvloop

from benchmarks.arguments import arguments
from benchmarks.call_path import Path
from gateway.config import model as cfg
from gateway.telemetry import logging as log

_MUCH = 10**12
_REQUESTS = cfg.LimitsConfig(rpm=_MUCH, concurrency=_MUCH)
_TOKENS = cfg.LimitsConfig(tpm=_MUCH)
_ALL_FOUR = cfg.LimitsConfig(rpm=_MUCH, tpm=_MUCH, concurrency=_MUCH, usd_per_day=10**15)
_CHEAP = cfg.PriceConfig(input=250_000_000, output=500_000_000)
_DEAR = cfg.PriceConfig(input=500_000_000, output=1_000_000_000)

FEATURES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "limits of requests": {"limits": _REQUESTS},
    "limits of tokens": {"limits": _TOKENS},
    "all four limits": {"limits": _ALL_FOUR, "price": _CHEAP},
    "prices": {"price": _CHEAP},
    "cache, missed": {"cache": True},
    "cheapest of two": {"price": _CHEAP, "route": "cheapest"},
    "complexity": {"price": _CHEAP, "route": "complexity"},
    "JSON log": {"log": True},
    "everything": {"limits": _ALL_FOUR, "price": _CHEAP, "cache": True, "route": "cheapest", "log": True},
}


class FeaturePath(Path):
    """A path with some features on; each of its calls has another prompt, of about `size` bytes."""

    def __init__(
        self,
        *,
        size: int,
        limits: cfg.LimitsConfig | None = None,
        price: cfg.PriceConfig | None = None,
        cache: bool = False,
        route: Any = "priority",
        log: bool = False,
    ) -> None:
        super().__init__(stream=False, limits=limits, price=price)
        self._cache, self._route, self._log = cache, route, log
        self._folder = tempfile.TemporaryDirectory()
        self._number = 0
        text = b"word " * (120 + max(0, size - 900) // 5)
        self._request = self._request.replace(b"word " * 120, b"0000000000" + text)
        length = len(self._request.partition(b"\r\n\r\n")[2])
        head, _, rest = self._request.partition(b"Content-Length: ")
        self._request = head + b"Content-Length: %d" % length + rest[rest.index(b"\r\n") :]
        self._at = self._request.index(b"0000000000")

    def config(self) -> cfg.Config:
        """The config of the path, with the features."""
        plain = super().config()
        (upstream,) = plain.upstreams.values()
        (model,) = plain.models.values()
        candidates = model.candidates
        if self._route != "priority":
            dear = cfg.CandidateConfig(upstream="dear", model="fake-model", price=_DEAR)
            candidates = (*candidates, dear)
        model = cfg.ModelConfig(
            name=model.name, candidates=candidates, route=self._route, cache=cfg.CacheConfig(enabled=self._cache)
        )
        return cfg.Config(
            server=plain.server,
            admin=plain.admin,
            keys=plain.keys,
            upstreams={"fake": upstream, "dear": cfg.UpstreamConfig(name="dear", base_url=upstream.base_url)},
            models={model.name: model},
            usage=cfg.UsageConfig(path=File(self._folder.name) / "usage.db"),
            log=cfg.LogConfig(level="info" if self._log else "warning", format="json"),
        )

    async def once(self) -> None:
        """One call."""
        self._number += 1
        at = self._at
        self._request = self._request[:at] + b"%010d" % self._number + self._request[at + 10 :]
        await super().once()


async def _count(path: Path, rounds: int) -> float:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for _ in range(rounds):
            await path.once()
    finally:
        sys.setprofile(None)
    return calls / rounds


async def measure(size: int, rounds: int, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The function calls and the microseconds of a call with each of these features."""
    paths = {name: FeaturePath(size=size, **FEATURES[name]) for name in names}
    each = 200 if size < 10_000 else 30 if size < 200_000 else 5
    best = dict.fromkeys(names, 1e9)
    for path in paths.values():
        await path.start()
        for _ in range(140 if size < 10_000 else 5):  # past the first calls, which all are learned from
            await path.once()
    for _ in range(rounds):
        for name, path in paths.items():
            log.setup("info" if FEATURES[name].get("log") else "warning", "json")
            gc.collect()
            begin = process_time()
            for _ in range(each):
                await path.once()
            best[name] = min(best[name], (process_time() - begin) / each)
    calls = {}
    for name, path in paths.items():
        log.setup("info" if FEATURES[name].get("log") else "warning", "json")
        calls[name] = await _count(path, 16 if size < 10_000 else 3)
    for path in paths.values():
        await path.stop()
    return {name: (calls[name], best[name] * 1e6) for name in names}


async def main(sizes: Sequence[int], rounds: int, names: Sequence[str]) -> None:
    """Print one table for each size."""
    for size in sizes:
        figures = await measure(size, rounds, names)
        plain_calls, plain_us = figures[names[0]]
        print(f"\nA request of about {size} bytes:\n")
        print("| feature | function calls | adds | µs | adds µs |\n| --- | --: | --: | --: | --: |")
        for name, (calls, us) in figures.items():
            print(f"| {name} | {calls:.0f} | {calls - plain_calls:+.0f} | {us:.1f} | {us - plain_us:+.1f} |")
        await asyncio.sleep(0)


if __name__ == "__main__":
    (rounds,) = arguments(__doc__, rounds=20)
    uvloop.run(main((900, 64_000, 1_000_000), rounds, list(FEATURES)))
