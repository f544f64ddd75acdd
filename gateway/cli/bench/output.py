"""The statistics as text and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.bench.options import LoadPlan
from gateway.cli.bench.stats import Difference, RunStats, Spread

_NAMES = ("A", "B")


def show(console: Console, plan: LoadPlan, all_figures: Sequence[RunStats], compared: Sequence[Difference]) -> None:
    """Prints the statistics of each URL and, with two, their differences."""
    for name, target, of in zip(_NAMES, plan.targets, all_figures, strict=False):
        title = f"{name}  {target.url}" if len(plan.targets) > 1 else target.url
        _one(console, title, target.model, plan, of)
    if compared:
        _differences(console, compared)


def _one(console: Console, title: str, model: str, plan: LoadPlan, of: RunStats) -> None:
    pace = (
        f"{plan.rate:g} calls a second, {plan.arrivals} arrivals"
        if plan.rate is not None
        else f"{plan.concurrency} at once"
    )
    kind = f"{plan.endpoint}{', streams' if plan.stream else ''}"
    console.print(Text(title, "bold"))
    console.print(Text(f"{model}, {kind}, {pace}"))
    console.print(Text(f"{of.good} good calls, {of.failed} failed, in {of.seconds:.2f} s"))
    if of.good:
        console.print(Text(f"{of.per_second:.4g} requests/s, {of.output_per_second:.4g} {_tokens(of)}/s"))
        console.print(Text(f"{of.input_tokens:.4g} tokens in and {of.output_tokens:.4g} {_tokens(of)} a call"))
        console.print(_times(of))
    for kind, count in of.errors.items():
        message = f": {of.messages[kind]}" if of.messages[kind] else ""
        console.print(Text(f"{count} x {kind}{message}", "red"))
    console.print()


def _tokens(of: RunStats) -> str:
    return "output tokens" if of.counted else "pieces of text (it counts no tokens)"


def _times(of: RunStats) -> Table:
    table = Table("", box=None, padding=(0, 2, 0, 0))
    for name in Spread._fields:
        table.add_column(name, justify="right", no_wrap=True)
    rows = {"first token": of.first_token, "between tokens": of.between_tokens, "whole call": of.total}
    for name, times in rows.items():
        if times is not None:
            table.add_row(name, *map(_time, times))
    return table


def _differences(console: Console, compared: Sequence[Difference]) -> None:
    table = Table("", box=None, padding=(0, 2, 0, 0))
    for name in ("A", "B", "B/A", "in the rounds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for each in compared:
        formatted = (lambda value: f"{value:.4g}") if each.what.endswith("/s") else _time
        span = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}" if each.ratios else "-"
        ratio = f"{each.ratio:.2f}"
        table.add_row(each.what, formatted(each.first), formatted(each.second), ratio, span, each.remark)
    console.print(table)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def as_json(plan: LoadPlan, all_figures: Sequence[RunStats], compared: Sequence[Difference]) -> dict[str, Any]:
    """The statistics as plain dicts, with times in milliseconds."""
    return {
        "endpoint": plan.endpoint,
        "stream": plan.stream,
        "concurrency": plan.concurrency if plan.rate is None else None,
        "rate": plan.rate,
        "arrivals": plan.arrivals if plan.rate is not None else None,
        "seed": plan.seed,
        "results": [
            {
                "url": target.url,
                "model": target.model,
                "good": of.good,
                "failed": of.failed,
                "seconds": round(of.seconds, 3),
                "requests_per_second": round(of.per_second, 3),
                "output_tokens_per_second": round(of.output_per_second, 3),
                "tokens_counted": of.counted,
                "first_token_ms": _milliseconds(of.first_token),
                "between_tokens_ms": _milliseconds(of.between_tokens),
                "total_ms": _milliseconds(of.total),
                "errors": of.errors,
            }
            for target, of in zip(plan.targets, all_figures, strict=True)
        ],
        "comparison": [
            {"what": each.what, "ratio": round(each.ratio, 4), "rounds": each.ratios, "remark": each.remark}
            for each in compared
        ],
    }


def _milliseconds(of: Spread | None) -> dict[str, float] | None:
    return None if of is None else {name: round(value * 1000, 3) for name, value in of._asdict().items()}
