"""`python -m benchmarks.cache_redis`: hits of a Redis as answer cache, by the size of the answers.

32 callers store 400 answers through one store with the default timeout, and then ask for each of them once.
"""

import asyncio
import json
import logging
from collections import Counter
from time import perf_counter

from benchmarks.arguments import arguments
from benchmarks.limited import Redis
from gateway.cache.cached_answer import replace_id
from gateway.cache.redis_store import RedisCacheStore
from gateway.cache.store import CacheEntry, CacheUnavailable
from gateway.core.call import TokenUsage
from gateway.core.units import Secret

CALLERS, ANSWERS = 32, 400
SIZES = (5_000, 50_000, 150_000, 1_000_000)
TIMEOUT_S = 0.02
TTL_S = 600.0


async def measure(redis: Redis, size: int) -> str:
    """The table's row for answers of this size."""
    counted: Counter[str] = Counter()
    store = RedisCacheStore(
        Secret(redis.section["url"]), TIMEOUT_S, f"bench{size}", lambda kind: counted.update([kind])
    )
    await store.start()
    body = json.dumps({"id": "chatcmpl-1", "choices": [{"message": {"content": "x" * size}}]}).encode()
    outcomes: Counter[str] = Counter()

    async def put(key: bytes) -> None:
        try:
            await store.put([(key, CacheEntry(body, TokenUsage(1), None))], TTL_S)
            outcomes["stored"] += 1
        except CacheUnavailable:
            await asyncio.sleep(0.001)  # what a call does instead: ask its upstream

    async def get(key: bytes) -> None:
        try:
            [hit] = await store.get([key])
        except CacheUnavailable:
            hit = None
            await asyncio.sleep(0.001)
        if hit is not None:
            replace_id(hit.entry.body, "2")
            outcomes["hit"] += 1

    seconds = []
    for step in (put, get):
        keys = iter([b"%d" % number for number in range(ANSWERS)])

        async def caller(step=step, keys=keys) -> None:  # type: ignore[no-untyped-def]
            for key in keys:
                await step(key)

        begin = perf_counter()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        seconds.append(perf_counter() - begin)
    await store.stop()
    return (
        f"| {size // 1000:,} KB | {outcomes['stored']} | {outcomes['hit']} | {seconds[0]:.2f} | {seconds[1]:.2f} "
        f"| {counted.total()} |"
    )


async def main() -> None:
    """Print a row for each size."""
    logging.disable()
    redis = Redis(0)
    await asyncio.to_thread(redis.start, 0)
    print(f"| answer | stored of {ANSWERS} | hits | s to store | s to ask | errors |")
    print("| --- | --: | --: | --: | --: | --: |")
    try:
        for size in SIZES:
            print(await measure(redis, size), flush=True)
    finally:
        redis.stop()


if __name__ == "__main__":
    arguments(__doc__)
    asyncio.run(main())
