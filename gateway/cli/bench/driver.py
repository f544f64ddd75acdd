"""Drives the load: a closed loop of concurrent calls, or an open loop with arrivals at a rate."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, Final

from aiolimiter import AsyncLimiter

from gateway.cli.bench.client import TimedCall
from gateway.cli.bench.options import LoadPlan
from gateway.core.clock import Clock

_GIVE_UP_AFTER: Final = 20
_CATCH_UP_S: Final = 0.05
"""Constant arrivals that a late timer has missed are made up for, this much at most."""

MakeCall = Callable[[str, float], Awaitable[TimedCall]]
"""Makes one call; takes a prompt and the time when the call was due."""


@dataclass(slots=True)
class Run:
    """The calls of one run at one URL, and its length in seconds."""

    samples: list[TimedCall] = field(default_factory=list)
    seconds: float = 0.0


class LoadDriver:
    """Makes calls until all are done, `stop` is called, or the first 20 have all failed."""

    def __init__(self, plan: LoadPlan, clock: Clock, on_call: Callable[[TimedCall], object]) -> None:
        """`on_call` gets every call that has ended."""
        self._plan, self._clock, self._on_call = plan, clock, on_call
        self._over = asyncio.Event()  # binds to the loop at its first use
        self._failed = 0
        self._good = False
        self.all_failed = False
        self.interrupted = False

    @property
    def over(self) -> bool:
        """Whether no more calls will be made."""
        return self._over.is_set()

    def stop(self) -> None:
        """Makes no more calls and cancels those under way."""
        self.interrupted = True
        self._over.set()

    async def run(
        self,
        call: MakeCall,
        prompts: Iterator[str],
        arrivals: Random,
        requests: int | None,
        seconds: float | None,
    ) -> Run:
        """One run, of `requests` calls or of `seconds` seconds, whichever ends first; None is no bound."""
        result = Run()
        start = self._clock()
        until = start + seconds if seconds is not None else None
        texts = islice(prompts, requests)

        async def make_call(prompt: str, at: float) -> None:
            self._record(result, await call(prompt, at))

        if self._plan.rate is None:
            running = {
                asyncio.ensure_future(self._closed(make_call, texts, until)) for _ in range(self._plan.concurrency)
            }
        else:
            running = {asyncio.ensure_future(self._open(make_call, texts, until, self._plan.rate, arrivals))}
        over = asyncio.ensure_future(self._ended())
        while running and not over.done():
            await asyncio.wait({*running, over}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                running.discard(task)
                task.result()
        for task in (*running, over):
            task.cancel()
        await asyncio.wait({*running, over})
        result.seconds = self._clock() - start
        return result

    async def _closed(
        self, make_call: Callable[[str, float], Awaitable[None]], texts: Iterator[str], until: float | None
    ) -> None:
        for prompt in texts:
            now = self._clock()
            if self.over or (until is not None and now >= until):
                return
            await make_call(prompt, now)

    async def _open(
        self,
        make_call: Callable[[str, float], Coroutine[Any, Any, None]],
        texts: Iterator[str],
        until: float | None,
        rate: float,
        arrivals: Random,
    ) -> None:
        """An open loop. A call is timed from when it was due, so a late start counts too."""
        at, limiter = self._clock(), None
        if self._plan.arrivals == "constant":
            missed = max(1.0, rate * _CATCH_UP_S)
            limiter = AsyncLimiter(1 + missed, (1 + missed) / rate)
            await limiter.acquire(missed)  # it starts with nothing to make up for
        async with asyncio.TaskGroup() as calls:
            for prompt in texts:
                if until is not None and at >= until:
                    return
                if limiter is not None:
                    await limiter.acquire()
                else:
                    await asyncio.sleep(max(0.0, at - self._clock()))  # noqa: TID251 - pacing is the task here
                calls.create_task(make_call(prompt, at))
                at += arrivals.expovariate(rate) if limiter is None else 1 / rate

    async def _ended(self) -> None:
        await self._over.wait()

    def _record(self, run: Run, sample: TimedCall) -> None:
        run.samples.append(sample)
        self._good = self._good or not sample.error
        self._failed += bool(sample.error)
        if not self._good and self._failed >= _GIVE_UP_AFTER:
            self.all_failed = True
            self._over.set()
        self._on_call(sample)
