"""`sluice bench`: makes the calls, shows the progress, and prints the statistics."""

import argparse
import asyncio
import signal
from collections.abc import Iterator, Mapping
from random import Random
from typing import TextIO

import aiohttp
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gateway import __version__
from gateway.cli.bench import options as bench_options
from gateway.cli.bench.client import BenchClient, TimedCall
from gateway.cli.bench.driver import LoadDriver, Run
from gateway.cli.bench.options import LoadPlan
from gateway.cli.bench.output import as_json, show
from gateway.cli.bench.prompts import prompts
from gateway.cli.bench.stats import ENOUGH_ROUNDS, differences, figures
from gateway.core.clock import monotonic

_INTERRUPTED = 130
_IDLE_S = 3.0  # engines close idle connections after 5 s; a call on one would count as a failure


def run(options: argparse.Namespace, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Measures, prints, and returns the exit status.

    0; 1 if no call succeeded; 2 for conflicting options; 130 after a Ctrl-C, with what was measured printed.
    """
    try:
        plan = bench_options.plan(options, environ)
    except ValueError as error:
        print(f"sluice bench: {error}", file=err)
        return 2
    with _Bar(plan, Console(file=err)) as bar:
        driver = LoadDriver(plan, monotonic, bar.advance)
        runs = asyncio.run(_interruptible(plan, driver))
    statistics = [figures(each) for each in runs]
    compared = differences(*runs) if len(runs) > 1 else []
    if options.json:
        print(msgspec.json.encode(as_json(plan, statistics, compared)).decode(), file=out)
    else:
        show(Console(file=out, highlight=False, soft_wrap=True), plan, statistics, compared)
    if driver.all_failed:
        print("sluice bench: stopped, because the first calls all failed", file=err)
    if driver.interrupted:
        return _INTERRUPTED
    return 0 if all(each.good for each in statistics) else 1


async def _interruptible(plan: LoadPlan, driver: LoadDriver) -> list[list[Run]]:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, driver.stop)
    return await measured(plan, driver)


async def measured(plan: LoadPlan, driver: LoadDriver) -> list[list[Run]]:
    """The runs of each URL: one, or with two URLs one a round, in the order A B B A A B B A ..."""
    headers = {"user-agent": f"sluice-bench/{__version__}", "accept-encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
        timeout=aiohttp.ClientTimeout(total=plan.timeout),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        calls = [BenchClient(session, plan, target, monotonic).call for target in plan.targets]
        texts = [prompts(Random(f"{plan.seed} {i}"), plan.prompt_tokens) for i in range(len(calls))]
        runs: list[list[Run]] = [[] for _ in plan.targets]
        for number, (requests, seconds) in enumerate(_rounds(plan)):
            order = range(len(calls)) if number % 2 == 0 else reversed(range(len(calls)))
            for i in order:
                if driver.over:
                    break
                arrivals = Random(f"{plan.seed} {number}")  # the same for both URLs
                runs[i].append(await driver.run(calls[i], texts[i], arrivals, requests, seconds))
    return runs


def _rounds(plan: LoadPlan) -> Iterator[tuple[int | None, float | None]]:
    """The calls or seconds of each round: one round, or several if two URLs are compared."""
    if len(plan.targets) == 1:
        yield plan.requests, plan.duration
    elif plan.requests is not None:
        rounds = min(ENOUGH_ROUNDS, plan.requests)
        for number in range(rounds):
            yield plan.requests // rounds + (number < plan.requests % rounds), None
    else:
        for _ in range(ENOUGH_ROUNDS):
            yield None, (plan.duration or 0.0) / ENOUGH_ROUNDS


class _Bar:
    """A progress bar, shown on a terminal only; used in a `with`."""

    def __init__(self, plan: LoadPlan, console: Console) -> None:
        columns = (TextColumn("{task.fields[counts]}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._duration = plan.duration
        total = (plan.requests or 0) * len(plan.targets) or (plan.duration or 0.0) * len(plan.targets)
        self._task = self._progress.add_task("", total=total, counts="0 calls")
        self._good = self._failed = 0

    def __enter__(self) -> "_Bar":
        self._start = monotonic()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, sample: TimedCall) -> None:
        """Counts a call that has ended."""
        self._good += not sample.error
        self._failed += bool(sample.error)
        done = self._good + self._failed if self._duration is None else monotonic() - self._start
        counts = f"{self._good} good calls" + (f", {self._failed} failed" if self._failed else "")
        self._progress.update(self._task, completed=done, counts=counts)
