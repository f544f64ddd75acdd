"""`sluice report`: reads the config's usage store, and writes the report as Markdown or JSON."""

import argparse
import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from gateway.assembly.accounts import usage_store
from gateway.cli.report.markdown import Page
from gateway.cli.report.messages import LANGUAGES
from gateway.cli.report.terminal import as_text
from gateway.cli.report.waterfall_svg import svg
from gateway.cli.wrapped import say
from gateway.config.load import load
from gateway.config.model import Config
from gateway.core.budget_calendar import Calendar
from gateway.core.clock import Clock, unix
from gateway.pricing.resolver import Pricing
from gateway.reporting.figures import ReportFigures, figures
from gateway.reporting.json_output import as_json
from gateway.reporting.period import DAYS, Period, PeriodError, between, day, last_days
from gateway.reporting.sources import machines, prices
from gateway.usage.store import UsageSnapshot, UsageSummary, UsageUnavailable, summary


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    days = parser.add_mutually_exclusive_group()
    days.add_argument("--days", metavar="N", help=f"the last N days, today included ({DAYS})")
    days.add_argument("--from", dest="first", type=day, metavar="DAY", help="the first day, as 2026-11-01")
    add("--to", dest="last", type=day, metavar="DAY", help="the last day (today)")
    add("--lang", choices=LANGUAGES, default="en", help="English or Korean (en)")
    add(
        "--format",
        choices=("md", "text", "json"),
        default="md",
        help="Markdown, plain text as wide as the terminal, JSON for machines (md)",
    )
    add("--out", type=Path, metavar="FILE", help="write to a file instead of standard output")
    add("--chart", type=_svg_path, metavar="FILE.svg", help="also draw a chart of the savings")


def _svg_path(text: str) -> Path:
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
    """Write the report and return the exit status.

    0: written. 1: usage cannot be read now. 2: the config or the days are wrong. `clock` returns the seconds
    since 1970 and decides which day is today.
    """
    loaded = load(path, environ)
    if loaded.config is None:
        for problem in loaded.problems:
            say(problem, err)
        return 2
    config = loaded.config
    now = clock()
    try:
        period = _period(options, config, now)
        # A missing file is not created.
        exists = config.usage.store != "sqlite" or os.path.exists(config.usage.path)
        usage = asyncio.run(_read_usage(config, period)) if exists else summary(UsageSnapshot([], [], []))
    except PeriodError as error:
        say(f"sluice report: {error}", err)
        return 2
    except UsageUnavailable as error:
        say(f"sluice report: {error}", err)
        return 1
    if usage is None:
        say("sluice report: usage is not recorded; set usage.store to sqlite or redis", err)
        return 2
    priced = list(prices(config, Pricing(clock)))
    _write(figures(usage, period, priced, list(machines(config, usage, period, now))), options, out)
    return 0


def _period(options: argparse.Namespace, config: Config, now: float) -> Period:
    zone = config.server.timezone
    today = Calendar(zone, now, 0.0).day(0.0)
    if options.first is None and (options.last is None or options.days is not None):
        if options.last is not None:
            raise PeriodError("--days ends today; give --from and --to instead")
        return last_days(str(DAYS) if options.days is None else options.days, today, zone)
    return between(options.first, options.last, today, zone)


async def _read_usage(config: Config, period: Period) -> UsageSummary | None:
    """Return the usage of a period; None if usage is not recorded."""
    store = usage_store(config, read_only=True)
    if store is None:
        return None
    try:
        return await store.summary(period.first, period.last)
    finally:
        await store.close()


def _write(report: ReportFigures, options: argparse.Namespace, out: TextIO) -> None:
    address = None
    if options.chart is not None:
        options.chart.write_text(svg(report, options.lang), encoding="utf-8")
        folder = options.out.parent if options.out is not None else Path()
        address = Path(os.path.relpath(options.chart, folder)).as_posix()
    if options.format == "json":
        text = json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n"
    else:
        text = Page(report, options.lang, address).text()
        if options.format == "text":
            text = as_text(text, shutil.get_terminal_size((100, 24)).columns)
    if options.out is None:
        out.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
