"""The one timer of a process."""

import asyncio

from gateway.core.clock import monotonic
from gateway.http.ticker import Ticker, interval_for


class Watcher:
    """Counts its ticks, and fails at them if told so."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.ticks = 0
        self.ticked = asyncio.Event()

    def tick(self, now: float) -> None:
        self.ticks += 1
        if self.ticks >= 3:
            self.ticked.set()
        if self.fails:
            raise RuntimeError("a bug")


async def test_a_failing_member_does_not_stop_the_clock_of_the_others() -> None:
    sweep = Ticker(0.001, monotonic)
    bad, good = Watcher(fails=True), Watcher()
    sweep.add(bad)
    sweep.add(good)
    async with asyncio.timeout(5):
        await good.ticked.wait()
    assert bad.ticks == 1
    sweep.close()


async def test_the_timer_stops_without_members_and_starts_with_the_next() -> None:
    sweep = Ticker(0.001, monotonic)
    first, second = Watcher(), Watcher()
    sweep.add(first)
    async with asyncio.timeout(5):
        await first.ticked.wait()
    sweep.discard(first)
    seen = first.ticks
    sweep.add(second)
    async with asyncio.timeout(5):
        await second.ticked.wait()
    assert first.ticks == seen
    sweep.close()


def test_a_tick_is_a_fifth_of_the_shortest_time_within_bounds() -> None:
    assert [interval_for(s) for s in (0.001, 1.0, 60.0)] == [0.01, 0.2, 0.5]
