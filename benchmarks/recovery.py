"""`python -m benchmarks.recovery`: the time to recover once the trigger is gone.

Real processes: an engine of 4 slots (40 calls a second), a gateway with its defaults, and the OpenAI SDK with
its two retries and a timeout of 10 s. 80 % load for 20 s, then 20 s of trouble: four times the callers, an engine
that stops, or (at half the load) one of two engines killed. Goodput is the share of callers that got an answer,
by the second of their first attempt.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from time import monotonic

import openai

from benchmarks.arguments import arguments
from benchmarks.limited import MODEL, Limited, SlowEngine

SLOTS, RATE = 4, 32.0  # four times as many are what one core of callers with the SDK can ask
BEGIN, END, OVER = 20, 40, 80
FAST = 10
"""Seconds after the trouble within which goodput is to be back at 99 %."""


class Callers:
    """Callers that arrive at random times; results are counted by the second."""

    def __init__(self, port: int) -> None:
        self.rate = RATE
        self.asked: Counter[int] = Counter()
        self.served: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self._client = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-bench-callers", timeout=10.0
        )
        self._open: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Call for this long, and wait for all answers."""
        source, start = random.Random(1), monotonic()
        at = 0.0
        while at < seconds:
            # A caller that falls behind does not catch up: the trouble would outlast its end.
            at = max(at + source.expovariate(self.rate), monotonic() - start)
            await asyncio.sleep(max(0.0, start + at - monotonic()))
            task = asyncio.create_task(self._ask(int(at)))
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        await asyncio.wait(set(self._open))
        await self._client.close()

    async def _ask(self, second: int) -> None:
        self.asked[second] += 1
        try:
            await self._client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "yes or no?"}], max_tokens=1
            )
            self.served[second] += 1
        except openai.APIStatusError as error:
            self.errors[str(error.status_code)] += 1
        except openai.APIError as error:
            self.errors[type(error).__name__] += 1

    def goodput(self, begin: int, end: int) -> float:
        """The lowest goodput of any two consecutive seconds."""
        spans = range(begin, end - 1)
        return min(
            sum(self.served[s + i] for i in (0, 1)) / max(1, sum(self.asked[s + i] for i in (0, 1))) for s in spans
        )

    def well_since(self) -> int:
        """Seconds from the end of the trouble until goodput stays at 99 %."""
        return next((s - END for s in range(BEGIN, OVER - 12) if self.goodput(s, OVER - 10) >= 0.99), 999)


async def run(name: str, trouble: Callable[[Callers, list[SlowEngine], bool], None], **settings: int) -> None:
    """Run one trouble and print its row of the table."""
    engines = [SlowEngine(SLOTS // settings.get("engines", 1)) for _ in range(settings.get("engines", 1))]
    gateway = Limited(
        engines[0].port, {"callers": {}}, slots=SLOTS // len(engines), waiting=settings.get("waiting", 1024)
    )
    upstreams = gateway.config["upstreams"]
    for number, engine in enumerate(engines):
        upstreams[f"engine-{number}"] = upstreams["fake"] | {"base_url": f"http://127.0.0.1:{engine.port}/v1"}
    del upstreams["fake"]
    gateway.config["models"][MODEL]["candidates"] = [{"upstream": one, "model": "fake-model"} for one in upstreams]
    if len(engines) > 1:
        gateway.config["models"][MODEL]["route"] = "least_loaded"
    gateway.config["batching"] = {"policy": "off"}
    callers = Callers(gateway.port)
    try:
        for engine in engines:
            await asyncio.to_thread(engine.start, 0)
        await asyncio.to_thread(gateway.start, 1)
        loop = asyncio.get_running_loop()
        if len(engines) > 1:
            callers.rate = RATE / 2
        loop.call_later(BEGIN, trouble, callers, engines, True)
        loop.call_later(END, trouble, callers, engines, False)
        await callers.run(OVER)
        answered, asked = sum(callers.served.values()), sum(callers.asked.values())
        print(
            f"| {name} | {callers.goodput(1, BEGIN - 1):.1%} | {callers.goodput(BEGIN, END):.0%} "
            f"| {callers.well_since()} | {callers.goodput(END + FAST, OVER - 10):.1%} | {answered}/{asked} "
            f"| {dict(callers.errors)} |",
            flush=True,
        )
    finally:
        for one in (gateway, *engines):
            one.stop()


def spike(callers: Callers, engines: list[SlowEngine], begins: bool) -> None:
    """Quadruple the callers."""
    callers.rate = 4 * RATE if begins else RATE


def freeze(callers: Callers, engines: list[SlowEngine], begins: bool) -> None:
    """Stop the engine, or resume it."""
    engines[0].signal(signal.SIGUSR1 if begins else signal.SIGUSR2)


def kill(callers: Callers, engines: list[SlowEngine], begins: bool) -> None:
    """Kill one of two engines."""
    if begins:
        engines[0].signal(signal.SIGKILL)


async def main() -> None:
    """The three troubles with the default queue, a shorter one, and an unbounded one."""
    arguments(__doc__)
    print("| trouble | before | lowest | well again after s | lowest from 10 s on | answered | errors |")
    print("| --- | --: | --: | --: | --: | --: | --- |")
    await run("spike of 4 times", spike)
    await run("spike of 4 times, queue of 4 s of work", spike, waiting=int(4 * SLOTS / 0.1))
    await run("engine stands still", freeze)
    await run("one of two engines killed", kill, engines=2)
    await run("spike, queue without a bound", spike, waiting=10**6)
    await run("stands still, queue without a bound", freeze, waiting=10**6)


if __name__ == "__main__":
    asyncio.run(main())
