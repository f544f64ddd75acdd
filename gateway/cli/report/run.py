"""`sluice report`: reads the usage that the config names, and writes the page or the figures."""

import argparse
import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from gateway.assembly.accounts import usage_store
from gateway.cli.report.markdown import Page
from gateway.cli.report.messages import LANGUAGES
from gateway.cli.report.waterfall_svg import svg
from gateway.config.load import load
from gateway.config.model import Config
from gateway.core.budget_calendar import Calendar
from gateway.core.clock import Clock, unix
from gateway.pricing.resolver import Pricing
from gateway.reporting.figures import ReportFigures, figures
from gateway.reporting.json_output import as_json
from gateway.reporting.period import DAYS, Period, PeriodError, between, day, last_days
from gateway.reporting.sources import machines, prices
from gateway.usage.store import UsageSnapshot, UsageUnavailable


def describe(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    add = parser.add_argument
    days = parser.add_mutually_exclusive_group()
    days.add_argument("--days", metavar="N", help=f"the last so many days, today included ({DAYS})")
    days.add_argument("--from", dest="first", type=day, metavar="DAY", help="the first day, as 2026-11-01")
    add("--to", dest="last", type=day, metavar="DAY", help="the last day (today)")
    add("--lang", choices=LANGUAGES, default="en", help="English or Korean (en)")
    add("--format", choices=("md", "json"), default="md", help="Markdown for people, JSON for machines (md)")
    add("--out", type=Path, metavar="FILE", help="write it there instead of to standard output")
    add("--chart", type=_picture, metavar="FILE.svg", help="draw where the difference comes from")


def _picture(text: str) -> Path:
    if not text.lower().endswith(".svg"):
        raise argparse.ArgumentTypeError("a chart is drawn as SVG; give a file whose name ends in .svg")
    return Path(text)


def run(
    options: argparse.Namespace,
    path: Path,
    environ: Mapping[str, str],
    out: TextIO,
    err: TextIO,
    clock: Clock = unix,
) -> int:
    """Write the report; gives the exit status.

    0; 1 when usage cannot be read now; 2 when something is wrong with the config or the days. `clock` gives
    the seconds since 1970: today is the day of that moment.
    """
    loaded = load(path, environ)
    if loaded.config is None:
        for problem in loaded.problems:
            print(problem, file=err)
        return 2
    config = loaded.config
    try:
        period = _period(options, config, clock())
        # A file that is not there yet is not made.
        kept = config.usage.store != "sqlite" or os.path.exists(config.usage.path)
        books = asyncio.run(_books(config, period)) if kept else UsageSnapshot([], [], [])
    except PeriodError as error:
        print(f"sluice report: {error}", file=err)
        return 2
    except UsageUnavailable as error:
        print(f"sluice report: {error}", file=err)
        return 1
    if books is None:
        print("sluice report: usage is not kept; set usage.store to sqlite or redis", file=err)
        return 2
    report = figures(
        books, period, list(prices(config, Pricing(clock))), list(machines(config, books, period))
    )
    _write(report, options, out)
    return 0


def _period(options: argparse.Namespace, config: Config, now: float) -> Period:
    zone = config.server.timezone
    today = Calendar(zone, now, 0.0).day(0.0)
    if options.first is None and (options.last is None or options.days is not None):
        if options.last is not None:
            raise PeriodError("--days ends today; give --from and --to instead")
        return last_days(str(DAYS) if options.days is None else options.days, today, zone)
    return between(options.first, options.last, today, zone)


async def _books(config: Config, period: Period) -> UsageSnapshot | None:
    """None where nothing is kept."""
    store = usage_store(config)
    if store is None:
        return None
    try:
        return await store.books(period.first, period.last)
    finally:
        await store.close()


def _write(report: ReportFigures, options: argparse.Namespace, out: TextIO) -> None:
    address = None
    if options.chart is not None:
        options.chart.write_text(svg(report, options.lang), encoding="utf-8")
        beside = options.out.parent if options.out is not None else Path()
        address = Path(os.path.relpath(options.chart, beside)).as_posix()
    if options.format == "json":
        text = json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n"
    else:
        text = Page(report, options.lang, address).text()
    if options.out is None:
        out.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
