"""`python -m benchmarks.restarts`: two gateways on one upstream, ended and restarted 20 times in turn.

Each gateway has 8 callers with the OpenAI SDK (no retries), half of them streaming. Ends alternate between
SIGTERM (drain) and SIGKILL. Counted are errors at the other gateway, and streams that ended without their finish
as if they were complete.
"""

import asyncio
from collections import Counter

import openai

from benchmarks.arguments import arguments
from benchmarks.limited import MODEL, Limited
from benchmarks.proxies import Upstream

CALLERS, KILLS, PACE_S = 8, 20, 1.5
STREAM, SHORT = "chunks=30 pace=20ms", "a short one"


class Gateway(Limited):
    """One of the two gateways, with the results of its callers."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port, {"callers": {}})
        self.config["server"]["drain"] = {"timeout": "5s"}
        self.down = False  # being ended, away, or not yet ready
        self.seen: Counter[str] = Counter()

    async def call(self, client: openai.AsyncOpenAI, *, stream: bool) -> None:
        """Make one call; returns a word for its result."""
        before = self.down
        text = STREAM if stream else SHORT
        messages = [{"role": "user", "content": text}]
        try:
            if stream:
                finished = False
                async for chunk in await client.chat.completions.create(model=MODEL, messages=messages, stream=True):
                    finished = finished or bool(chunk.choices and chunk.choices[0].finish_reason)
                word = "whole" if finished else "CUT WITHOUT A WORD"
            else:
                await client.chat.completions.create(model=MODEL, messages=messages)
                word = "whole"
        except Exception as error:  # noqa: BLE001 - every kind is counted
            own = before or self.down
            word = f"{type(error).__name__} {'at the one that is ended' if own else 'AT THE OTHER'}"
            await asyncio.sleep(0.05)
        self.seen[word] += 1

    async def callers(self) -> None:
        """Call in an endless loop."""
        url = f"http://127.0.0.1:{self.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-bench-callers", max_retries=0) as client:

            async def ask(stream: bool) -> None:
                while True:
                    await self.call(client, stream=stream)

            await asyncio.gather(*(ask(bool(number % 2)) for number in range(CALLERS)))

    async def again(self, *, gently: bool) -> None:
        """Stop it and start it."""
        assert self.process is not None
        self.down = True
        (self.process.terminate if gently else self.process.kill)()
        await asyncio.to_thread(self.process.wait)
        await asyncio.to_thread(self.start, 1)
        self.down = False


async def main() -> None:
    """Start everything, run, end everything."""
    arguments(__doc__)
    upstream = Upstream(0)
    gateways = [Gateway(upstream.port), Gateway(upstream.port)]
    try:
        for one in (upstream, *gateways):
            await asyncio.to_thread(one.start, 1)
        running = [asyncio.create_task(one.callers()) for one in gateways]
        for number in range(KILLS):
            await asyncio.sleep(PACE_S)
            await gateways[number % 2].again(gently=number % 4 < 2)
            print(f"{number + 1}/{KILLS}", end="\r", flush=True)
        await asyncio.sleep(PACE_S)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        print("| gateway | what its callers saw | calls |\n| --- | --- | --: |")
        for name, one in zip("AB", gateways, strict=True):
            for word, count in sorted(one.seen.items()):
                print(f"| {name} | {word} | {count} |")
    finally:
        for one in (*gateways, upstream):
            one.stop()


if __name__ == "__main__":
    asyncio.run(main())
