"""The first minute of batching, second by second: the engine directly, a gateway that has learned nothing, and the
same gateway after a restart, with what it has learned in a file.

Part of `benchmarks.batching`.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from benchmarks.callers import MakeBody
from benchmarks.client import Pool, drive, post, timed

WINDOW_S, SETTLED_S = 10, 3
"""Any ten seconds after the first three are compared."""


class Minute:
    """Ends and durations of the calls of one run, in seconds since its begin."""

    def __init__(self, calls: Sequence[tuple[float, float]]) -> None:
        self._calls = calls

    def between(self, begin: float, end: float) -> tuple[float, float]:
        """Calls a second, and the p99 in seconds, of the calls that ended in this time."""
        durations = sorted(duration for at, duration in self._calls if begin <= at < end)
        if not durations:
            return 0.0, 0.0
        return len(durations) / (end - begin), durations[int(0.99 * len(durations))]


async def minute(port: int, path: str, make: MakeBody, callers: int, seconds: float) -> Minute:
    """Callers that call again as soon as they are answered."""
    pool = Pool(port)
    requests: Iterator[bytes] = (post(path, make(number)) for number in itertools.cycle(range(callers)))
    begin = perf_counter()
    try:
        run = await drive(timed(pool), requests, concurrency=callers, seconds=seconds)
    finally:
        pool.close()
    return Minute([(sample.end - begin, sample.end - sample.due) for sample in run.samples])


def worst(direct: Minute, other: Minute, seconds: int) -> tuple[float, float]:
    """The least throughput and the greatest p99 of any ten seconds, relative to those of all of `direct`."""
    rate, p99 = direct.between(SETTLED_S, seconds)
    windows = [other.between(at, at + WINDOW_S) for at in range(SETTLED_S, seconds - WINDOW_S + 1)]
    return min(one[0] for one in windows) / rate, max(one[1] for one in windows) / p99


def table(title: str, runs: Mapping[str, Minute], seconds: int) -> str:
    """A Markdown table: by second, calls a second and p99 of each run; then the worst ten seconds."""
    names = list(runs)
    lines = [
        f"**{title}**\n",
        "| second | " + " | ".join(f"{name}, calls/s | p99 ms" for name in names) + " |",
        "| --: |" + " --: | --: |" * len(names),
    ]
    for second in range(seconds):
        cells: list[Any] = [second]
        for name in names:
            rate, p99 = runs[name].between(second, second + 1)
            cells += [f"{rate:,.0f}", f"{p99 * 1e3:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    direct = runs[names[0]]
    for name in names[1:]:
        rate, p99 = worst(direct, runs[name], seconds)
        lines.append(f"\nWorst ten seconds of {name}: {rate:.2f} of direct's throughput, {p99:.2f} times its p99.")
    return "\n".join(lines) + "\n"
