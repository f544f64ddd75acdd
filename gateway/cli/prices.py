"""`sluice prices`: lists the price of each model at each upstream, its source, and unknown prices."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

from gateway.cli.wrapped import say
from gateway.config.load import load
from gateway.config.model import Config
from gateway.core.clock import Clock, unix
from gateway.core.tokens import Price
from gateway.core.units import usd
from gateway.pricing.resolver import UNKNOWN, Pricing, ResolvedPrice

_COLUMNS = ("model", "upstream", "sent as", "input", "output", "cached", "written", "source")
_PRICES = ("input", "output", "cached_input", "cache_write")
_WIDTH = 160


def run(
    path: Path,
    as_json: bool,
    out: TextIO,
    err: TextIO,
    environ: Mapping[str, str],
    clock: Clock = unix,
) -> int:
    """List the prices of this config and return the exit status: 0, or 2 if the config has problems.

    The prices are those at `clock`, in seconds since 1970.
    """
    loaded = load(path, environ)
    if loaded.config is None:
        for problem in loaded.problems:
            say(problem, err)
        return 2
    pricing = Pricing(clock)
    rows = list(_rows(loaded.config, pricing, clock()))
    if as_json:
        print(json.dumps(rows, indent=2), file=out)
    else:
        _print(rows, out)
        for warning in pricing.warnings(loaded.config):
            say(warning, out)
    return 0


def _rows(config: Config, pricing: Pricing, now: float) -> Iterator[dict[str, object]]:
    for name, model in config.models.items():
        for candidate in model.candidates:
            upstream = config.upstreams[candidate.upstream]
            resolved = pricing.resolve(candidate, upstream)
            price = resolved.price
            yield {
                "model": name,
                "upstream": upstream.name,
                "model_sent": candidate.model,
                "source": resolved.source,
                "usd_per_million_tokens": None if price is None else _dollars(price),
                "above": [] if price is None else [_tier(tier.above, tier.price) for tier in price.tiers],
                "gpu_hour_usd": None if upstream.gpu_hour_usd is None else usd(upstream.gpu_hour_usd),
                "notes": list(_notes(resolved, upstream.gpu_hour_usd, now)),
            }


def _dollars(price: Price) -> dict[str, str | None]:
    write = price.input if price.cache_write is None else price.cache_write
    long = write if price.cache_write_long is None else price.cache_write_long
    return {
        "input": usd(price.input),
        "output": None if price.output is None else usd(price.output),
        "cached_input": usd(price.cached_input),
        "cache_write": usd(write),
        "cache_write_long": usd(long),
    }


def _tier(above: int, price: Price) -> dict[str, object]:
    return {"input_tokens": above, "usd_per_million_tokens": _dollars(price)}


def _notes(resolved: ResolvedPrice, gpu_hour: int | None, now: float) -> Iterator[str]:
    for tier in resolved.price.tiers if resolved.price is not None else ():
        dollars = _dollars(tier.price)
        yield f"above {tier.above} input tokens {dollars['input']} in, {dollars['output'] or UNKNOWN} out"
    quote = resolved.listing.at(now) if resolved.listing is not None else None
    if resolved.listing is not None and quote is not None:
        change = resolved.listing.next_change(now)
        if change is not None:
            yield f"changes on {change}"
        elif resolved.listing.changes_within_a_day:
            yield "depends on the hour"
        if quote.excluded:
            yield f"not counted: {', '.join(quote.excluded)}"
    if gpu_hour is not None:
        yield f"{usd(gpu_hour)} an hour; /admin/upstreams shows the cost per token"


def _print(rows: list[dict[str, object]], out: TextIO) -> None:
    table = Table(*_COLUMNS, title="USD per million tokens", title_justify="left", box=None)
    for row in rows:
        dollars = row["usd_per_million_tokens"]
        table.add_row(
            *[str(row[name]) for name in ("model", "upstream", "model_sent")],
            *[str(dollars[name] or UNKNOWN) if isinstance(dollars, dict) else UNKNOWN for name in _PRICES],
            str(row["source"]),
        )
    # Names come from a file: they are no markup, and a pipe must not cut them off.
    width = None if out.isatty() else _WIDTH
    Console(file=out, width=width, markup=False, highlight=False, soft_wrap=False).print(table)
    for row in rows:
        notes = row["notes"]
        if isinstance(notes, list) and notes:
            say(f"{row['upstream']}/{row['model_sent']}: {'; '.join(notes)}", out)
