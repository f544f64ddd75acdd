"""Makes calls follow one another: a closed loop of so many at once, or an open one of so many a second."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Final

from gateway.cli.bench.client import TimedCall
from gateway.cli.bench.options import LoadPlan
from gateway.core.clock import Clock

_HOPELESS: Final = 20

MakeCall = Callable[[str, float], Awaitable[TimedCall]]
"""Takes a prompt and when the call was due."""


@dataclass(slots=True)
class Run:
    """The calls that were made one after the other at one URL, and how long that took in seconds."""

    samples: list[TimedCall] = field(default_factory=list)
    seconds: float = 0.0


class LoadDriver:
    """Drives calls until they are done, `stop` is called, or the first 20 have all failed."""

    def __init__(self, plan: LoadPlan, clock: Clock, taken: Callable[[TimedCall], object]) -> None:
        """`taken` is told of every call that has ended."""
        self._plan, self._clock, self._taken = plan, clock, taken
        self._over = asyncio.Event()  # binds to the loop at its first use
        self._failed = 0
        self._good = False
        self.hopeless = False
        self.interrupted = False

    @property
    def over(self) -> bool:
        """Whether no more calls are to be made."""
        return self._over.is_set()

    def stop(self) -> None:
        """Make no more calls and cut off those under way."""
        self.interrupted = True
        self._over.set()

    async def stretch(
        self,
        call: MakeCall,
        prompts: Iterator[str],
        arrivals: Random,
        requests: int | None,
        seconds: float | None,
    ) -> Run:
        """One stretch of so many calls, or of calls for so many seconds."""
        done = Run()
        start = self._clock()
        until = start + seconds if seconds is not None else None
        due = islice(prompts, requests)

        async def one(prompt: str, at: float) -> None:
            self._take(done, await call(prompt, at))

        if self._plan.rate is None:
            running = {
                asyncio.ensure_future(self._closed(one, due, until)) for _ in range(self._plan.concurrency)
            }
        else:
            running = {asyncio.ensure_future(self._open(one, due, until, self._plan.rate, arrivals))}
        over = asyncio.ensure_future(self._ended())
        while running and not over.done():
            await asyncio.wait({*running, over}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                running.discard(task)
                task.result()
        for task in (*running, over):
            task.cancel()
        await asyncio.wait({*running, over})
        done.seconds = self._clock() - start
        return done

    async def _closed(
        self, one: Callable[[str, float], Awaitable[None]], due: Iterator[str], until: float | None
    ) -> None:
        for prompt in due:
            now = self._clock()
            if self.over or (until is not None and now >= until):
                return
            await one(prompt, now)

    async def _open(
        self,
        one: Callable[[str, float], Awaitable[None]],
        due: Iterator[str],
        until: float | None,
        rate: float,
        arrivals: Random,
    ) -> None:
        """Poisson arrivals. A call counts from when it was due: a late start is the endpoint's time too."""
        at = self._clock()
        async with asyncio.TaskGroup() as calls:
            for prompt in due:
                if until is not None and at >= until:
                    return
                await asyncio.sleep(max(0.0, at - self._clock()))  # noqa: TID251 - pacing is the task here
                calls.create_task(one(prompt, at))  # type: ignore[arg-type]
                at += arrivals.expovariate(rate)

    async def _ended(self) -> None:
        await self._over.wait()

    def _take(self, done: Run, sample: TimedCall) -> None:
        done.samples.append(sample)
        self._good = self._good or not sample.error
        self._failed += bool(sample.error)
        if not self._good and self._failed >= _HOPELESS:
            self.hopeless = True
            self._over.set()
        self._taken(sample)
