"""Draws a picture with rich: tables that stand side by side on a wide screen and below each other else."""

from collections.abc import Iterable
from itertools import compress
from typing import Final

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.top.view_model import CounterRow, Screen
from gateway.config.problems import printable
from gateway.core.units import usd

_WIDE: Final = 160
_GAP: Final = 2
_MOST_ROWS: Final = 12
_BAD: Final = {"down", "open", "half-open"}


def screen(picture: Screen, address: str, when: str, width: int) -> RenderableType:
    """The whole screen; `when` tells what time the rates and latencies are of."""
    each = width // 2 if width >= _WIDE else width
    left = [_outcomes(picture, each), _models(picture, each), _spend(picture, each)]
    right = [_upstreams(picture, each), _batches(picture, each), *_happenings(picture, each)]
    head = _head(picture, address, when)
    if width < _WIDE:
        return Group(head, *_shown([left[0], right[0], left[1], *right[1:], left[2]]))
    sides = Table.grid(expand=True, padding=(0, 2))
    sides.add_column(ratio=1)
    sides.add_column(ratio=1)
    sides.add_row(Group(*_shown(left)), Group(*_shown(right)))
    return Group(head, sides)


def away(reason: str, since: str) -> RenderableType:
    """The line that stands above the last screen while the gateway does not answer."""
    return Text(f"{printable(reason)}; trying again (since {since})", style="bold red")


def _head(picture: Screen, address: str, when: str) -> Text:
    line = Text.assemble(("Sluice", "bold"), f" {printable(picture.version)}  {printable(address)}  ")
    line.append(printable(picture.ready), "green" if picture.ready == "ready" else "bold red")
    line.append(f"  config {picture.generation}")
    if picture.reload_refused:
        line.append(" (the last reload was refused)", "bold red")
    if picture.redis_up is not None:
        line.append("  redis ")
        line.append(*(("up", "green") if picture.redis_up else ("away", "bold red")))
    return line.append(f"\n{when}", "dim")


def _shown(tables: Iterable[RenderableType | None]) -> Iterable[RenderableType]:
    for table in tables:
        if table is not None:
            yield Text()
            yield table


class _Sheet:
    """A table that leaves out columns where it is narrow: those marked `?` first, then those marked `??`.

    Columns whose name ends in `<` hold words, the others figures.
    """

    def __init__(self, title: str, width: int, *columns: str) -> None:
        self._title, self._width, self._columns = title, width, columns
        self._rows: list[list[Text]] = []
        self.note = ""

    def row(self, *cells: str | Text) -> None:
        """As Text: a name is never read as markup, nor its control characters by the terminal."""
        self._rows.append([cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells])

    def table(self) -> RenderableType:
        """With as many columns as there is room for, and the note below it."""
        ranks = [len(column) - len(column.lstrip("?")) for column in self._columns]
        kept = [True] * len(ranks)
        for rank in (1, 2):
            if self._needed(kept) > self._width:
                kept = [keep and own != rank for keep, own in zip(kept, ranks, strict=True)]
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        for column in compress(self._columns, kept):
            words = column.endswith("<")
            justify: JustifyMethod = "left" if words else "right"
            # Words are cut before any figure is.
            table.add_column(
                _name(column), justify=justify, header_style="dim", no_wrap=not words, overflow="ellipsis"
            )
        for row in self._rows:
            table.add_row(*compress(row, kept))
        # A table's own title and caption would be as narrow as the table.
        note = [Text(printable(self.note), "dim")] if self.note else []
        return Group(Text(self._title, "bold"), table, *note)

    def _needed(self, kept: list[bool]) -> int:
        columns = [[_name(column) for column in self._columns], *self._rows]
        widths: list[int] = [max(cell.cell_len for cell in column) for column in zip(*columns, strict=True)]
        return sum(compress(widths, kept)) + _GAP * (sum(kept) - 1)


def _name(column: str) -> Text:
    return Text(column.strip("?<"))


def _outcomes(picture: Screen, width: int) -> RenderableType:
    sheet = _Sheet("requests", width, "outcome<", "/s", "so far")
    for row in picture.outcomes:
        sheet.row(row.what[0], _rate(row.rate), _count(row.total))
    if not picture.outcomes:
        sheet.note = "none yet"
    return sheet.table()


def _models(picture: Screen, width: int) -> RenderableType:
    columns = ("model<", "/s", "ttft p50", "?p99", "total p50", "p99", "?tok/s in", "tok/s out")
    sheet = _Sheet("models", width, *columns)
    for row in picture.models[:_MOST_ROWS]:
        times = map(_time, (*row.first_token, *row.duration))
        sheet.row(row.name, _rate(row.rate), *times, _rate(row.input_rate), _rate(row.output_rate))
    return sheet.table()


def _upstreams(picture: Screen, width: int) -> RenderableType:
    columns = ("upstream<", "state<", "breaker<", "in flight", "waiting", "??/s", "failed/s")
    sheet = _Sheet("upstreams", width, *columns, "?retries/s", "?wait p50", "?p99")
    for row in picture.upstreams[:_MOST_ROWS]:
        sheet.row(
            row.name,
            _state(row.state),
            _state(row.breaker),
            str(row.in_flight),
            str(row.waiting),
            _rate(row.rate),
            Text(_rate(row.failed), "red" if row.failed else ""),
            _rate(row.retries),
            *map(_time, row.wait),
        )
    return sheet.table()


def _batches(picture: Screen, width: int) -> RenderableType | None:
    sheet = _Sheet("batches", width, "model<", "/s", "mean size", "released by<")
    for row in picture.batches[:_MOST_ROWS]:
        reasons = ", ".join(f"{reason} {share:.0%}" for reason, share in row.releases.items())
        sheet.row(row.model, _rate(row.rate), "-" if row.size is None else f"{row.size:.1f}", reasons or "-")
    return sheet.table() if picture.batches else None


def _happenings(picture: Screen, width: int) -> Iterable[RenderableType | None]:
    """What need not be there: a table that is missing tells that there has been none of it."""
    yield _counted("routed", width, picture.routed, "model<", "upstream<", "by<")
    rate = "" if picture.hit_rate is None else f", {picture.hit_rate:.0%} hits"
    saved = f", {picture.saved_usd:.6g} USD saved" if picture.saved_usd else ""
    yield _counted(f"cache{rate}{saved}", width, picture.cache, "result<")
    yield _counted("refused by limits", width, picture.limits, "key<", "limit<")
    yield _counted("fallbacks", width, picture.fallbacks, "from<", "to<")
    yield _counted("redis errors", width, picture.redis_errors, "kind<")


def _counted(title: str, width: int, rows: list[CounterRow], *names: str) -> RenderableType | None:
    sheet = _Sheet(title, width, *names, "/s", "so far")
    for row in rows[:_MOST_ROWS]:
        sheet.row(*row.what, _rate(row.rate), _count(row.total))
    return sheet.table() if rows else None


def _spend(picture: Screen, width: int) -> RenderableType:
    sheet = _Sheet("today", width, "key<", "model<", "requests", "?tokens in", "?out", "USD")
    for row in picture.spend[:_MOST_ROWS]:
        sheet.row(row.key, row.model, *map(_count, (row.requests, row.input, row.output)), usd(row.nanos))
    if len(picture.spend) > 1:
        rows = picture.spend
        sums = (
            sum(row.requests for row in rows),
            sum(row.input for row in rows),
            sum(row.output for row in rows),
        )
        sheet.row("all", "", *map(_count, sums), usd(sum(row.nanos for row in rows)))
    if picture.usage_note or not picture.spend:
        sheet.note = picture.usage_note or "nothing yet"
    return sheet.table()


def _state(word: str) -> Text:
    return Text(
        printable(word), "bold red" if word in _BAD else "green" if word in ("up", "closed") else "dim"
    )


def _rate(rate: float) -> str:
    if not rate:
        return "0"
    return f"{rate:.2f}" if rate < 10 else f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _count(count: float) -> str:
    if count < 100_000:
        return f"{count:,.0f}"
    return f"{count / 1e6:.2f}M" if count >= 1e6 else f"{count / 1e3:.0f}k"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    return f"{seconds:.3g}s"
