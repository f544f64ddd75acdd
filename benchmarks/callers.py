"""Callers in a closed loop, each with one call under way, and lists as large as all their calls together."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from benchmarks.client import Pool, drive, post, timed

MakeBody = Callable[[int], Mapping[str, Any]]
"""The body of a caller's next call, by the caller's number."""

SETTLE_S = 0.3


@dataclass(slots=True)
class Measured:
    """Items a second, and the seconds of each call."""

    rate: float
    durations: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """The duration that this share of the calls did not exceed; NaN without calls."""
        ordered = sorted(self.durations)
        return math.nan if not ordered else ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def closed_loop(port: int, path: str, make: MakeBody, callers: int, seconds: float, items: int = 1) -> Measured:
    """Callers that call again as soon as they are answered; a call counts for `items`."""
    pool = Pool(port)
    requests = (post(path, make(number)) for number in itertools.cycle(range(callers)))
    begin = perf_counter() + SETTLE_S
    end = begin + seconds
    try:
        run = await drive(timed(pool), requests, concurrency=callers, seconds=SETTLE_S + seconds)
    finally:
        pool.close()
    durations = [sample.end - sample.due for sample in run.samples if begin <= sample.end < end]
    return Measured(len(durations) * items / seconds, durations)


def listed(make: MakeBody, size: int) -> MakeBody:
    """The calls of `size` callers as one list: of inputs, or of conversations."""

    def joined(number: int) -> Mapping[str, Any]:
        bodies = [make(caller) for caller in range(size)]
        payload = "input" if "input" in bodies[0] else "messages"
        return {**bodies[0], payload: [body[payload] for body in bodies]}

    return joined
