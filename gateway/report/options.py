"""The options of `sluice report`."""

import argparse
from pathlib import Path

from gateway.report.period import DAYS, day
from gateway.report.words import LANGUAGES


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
