"""`python -m benchmarks.ledger`: the usage ledger against the books of fake providers, over 10,000 mixed calls.

Whole answers and streams, in four dialects of usage, including failures that were billed, retries at the other
provider, streams that break, clients that hang up, and answers from the cache. The providers report usage for
the model `reported`, which must agree to the nano-dollar, and none for `silent`, which shows the error of
estimates.
"""

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.arguments import arguments
from benchmarks.billing_providers import COUNTS, LEAVE, PRICES, Place, Providers
from benchmarks.limited import Limited

CALLS, AT_ONCE, SEED = 10_000, 8, 7
KEYS = ("team-a", "team-b")
REPEATED = 5
"""One call in this many repeats an earlier one."""
_SETTLED_S = 30.0


def sections(providers_port: int, usage: Path) -> dict[str, Any]:
    """The sections of the gateway's config."""
    candidates = [{"upstream": name, "model": "x", "price": price} for name, price in PRICES.items()]
    patient = {"breaker": {"failures": 10**9}}
    return {
        "keys": [{"name": name, "key": f"sk-bench-{name}"} for name in KEYS],
        "upstreams": {name: {"base_url": f"http://127.0.0.1:{providers_port}/{name}/v1", **patient} for name in PRICES},
        "models": {name: {"candidates": candidates} for name in ("reported", "silent")},
        "retry": {"attempts": 3, "budget": 10, "backoff_base": 0, "backoff_max": 0},
        "batching": {"policy": "off"},
        "cache": {"enabled": True},
        "usage": {"store": "sqlite", "path": str(usage)},
    }


async def serve(providers: Providers) -> tuple[web.AppRunner, int]:
    """Serve the providers on a free port of the loopback interface."""
    runner = web.AppRunner(providers.application(), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, runner.addresses[0][1]


async def drive(port: int, calls: int, at_once: int, seed: int) -> None:
    """Make the calls: half of them stream, one in ten is for the silent model."""
    rng = random.Random(seed)
    plans = iter([(n, rng.choice(KEYS), rng.random() < 0.5, rng.random() < 0.1) for n in range(calls)])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as session:
        await asyncio.gather(*(_call_on(session, port, plans) for _ in range(at_once)))


async def _call_on(session: aiohttp.ClientSession, port: int, plans: Iterator[tuple[int, str, bool, bool]]) -> None:
    for number, key, stream, silent in plans:
        model = "silent" if silent else "reported"
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "count " * 30}],
            "user": key,
            # Each is another one: a body of which engines seem to die would be refused for a while.
            "metadata": {"model": model, "number": str(number)},
        }
        if stream:
            body["stream"] = True
        if number % REPEATED == 0:  # a repeat, which the cache may answer
            body |= {"temperature": 0, "messages": [{"role": "user", "content": f"{number // 5 % 200}"}]}
        headers = {"authorization": f"Bearer sk-bench-{key}"}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        # What breaks off has no proper end.
        with suppress(aiohttp.ClientPayloadError):
            await _read(session, url, body, headers)


async def _read(session: aiohttp.ClientSession, url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    async with session.post(url, json=body, headers=headers) as answer:
        async for line in answer.content:
            if f'"{LEAVE}"'.encode() in line:
                answer.close()
                break


async def ledger_rows(admin_port: int, calls: int) -> dict[Place, dict[str, int]]:
    """The ledger once all calls are over. TimeoutError if that takes too long."""
    url = f"http://127.0.0.1:{admin_port}/admin/usage"
    async with aiohttp.ClientSession() as session, asyncio.timeout(_SETTLED_S):
        while True:
            async with session.get(url) as answer:
                rows = await answer.json()
            if sum(row["requests"] for row in rows) >= calls:
                return summed(rows)
            await asyncio.sleep(0.05)


def summed(rows: list[Mapping[str, Any]]) -> dict[Place, dict[str, int]]:
    """All days added up, like the providers' books."""
    sums: dict[Place, dict[str, int]] = defaultdict(lambda: dict.fromkeys((*COUNTS, "requests"), 0))
    for row in rows:
        one = sums[row["key"], row["model"], row["upstream"]]
        nanos = int(Decimal(row["cost_usd"]) * 10**9)
        for name in one:
            one[name] += nanos if name == "nano_usd" else row[name]
    return dict(sums)


def differences(ours: dict[Place, dict[str, int]], theirs: dict[Place, dict[str, int]]) -> list[str]:
    """Each number of the model `reported` that differs between the books."""
    found = []
    for place in sorted({*ours, *theirs}):
        if place[1] == "reported":
            for name in COUNTS:
                mine, other = ours.get(place, {}).get(name, 0), theirs.get(place, {}).get(name, 0)
                if mine != other:
                    found.append(f"{place} {name}: ledger {mine}, provider {other}")
    return found


def total(books: Mapping[Place, Mapping[str, int]], model: str, name: str) -> int:
    """The sum of one number over the rows of a model."""
    return sum(row[name] for place, row in books.items() if place[1] == model)


async def main(calls: int) -> int:
    """Run and print both books; returns the exit status, 1 if they differ."""
    providers = Providers(SEED)
    runner, port = await serve(providers)
    gateway = Limited(port, {})
    gateway.config |= sections(port, gateway.folder / "usage.db")
    try:
        await asyncio.to_thread(gateway.start, 0)
        begin = monotonic()
        await drive(gateway.port, calls, AT_ONCE, SEED)
        ours = await ledger_rows(gateway.admin_port, calls)
        seconds = monotonic() - begin
    finally:
        await asyncio.to_thread(gateway.stop)
        await runner.cleanup()
    books = providers.books
    print(f"{calls} calls in {seconds:.0f} s, {sum(books.fates.values())} attempts: {dict(books.fates)}")
    saved = sum(row["requests"] for place, row in ours.items() if place[2] == "cache")
    print(f"{saved} calls were answered from the cache or shared an equal call")
    print("| reported | ledger | providers |")
    print("| --- | --: | --: |")
    for name in COUNTS:
        print(f"| {name} | {total(ours, 'reported', name):,} | {total(books.reported, 'reported', name):,} |")
    guess, truth = total(ours, "silent", "nano_usd"), total(books.hidden, "silent", "nano_usd")
    print(f"silent: ledger {guess:,}, providers {truth:,} nano-dollars ({guess / max(1, truth):.2f} of it)")
    wrong = differences(ours, books.reported)
    print("\n".join(wrong) if wrong else "no difference, in any key, model and upstream")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*arguments(__doc__, calls=CALLS))))
