"""Draws a `Screen` with rich: tables side by side on a wide terminal, else one below the other."""

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
_MAX_ROWS: Final = 12
_BAD: Final = {"down", "failing", "open", "half-open"}


def screen(view: Screen, address: str, when: str, width: int) -> RenderableType:
    """The whole screen; `when` describes the time that rates and latencies cover."""
    each = width // 2 if width >= _WIDE else width
    left = [_outcomes(view, each), _models(view, each), _spend(view, each)]
    right = [_upstreams(view, each), _batches(view, each), *_events(view, each)]
    head = _head(view, address, when)
    if width < _WIDE:
        return Group(head, *_shown([left[0], right[0], left[1], *right[1:], left[2]]))
    sides = Table.grid(expand=True, padding=(0, 2))
    sides.add_column(ratio=1)
    sides.add_column(ratio=1)
    sides.add_row(Group(*_shown(left)), Group(*_shown(right)))
    return Group(head, sides)


def away(reason: str, since: str) -> RenderableType:
    """The line above the last screen while the gateway does not answer."""
    return Text(f"{printable(reason)}; trying again (since {since})", style="bold red")


def _head(view: Screen, address: str, when: str) -> Text:
    line = Text.assemble(("Sluice", "bold"), f" {printable(view.version)}  {printable(address)}  ")
    line.append(printable(view.ready), "green" if view.ready == "ready" else "bold red")
    line.append(f"  config {view.generation}")
    if view.reload_refused:
        line.append(" (the last reload was refused)", "bold red")
    if view.redis_up is not None:
        line.append("  redis ")
        line.append(*(("up", "green") if view.redis_up else ("away", "bold red")))
    if (jobs := view.batch_jobs) is not None:
        failed = f", {_count(jobs.failed)} failed" if jobs.failed else ""
        line.append(f"\nbatch jobs: {_count(jobs.waiting)} lines waiting, {_count(jobs.under_way)} under way, ")
        line.append(f"{_count(jobs.completed)} done{failed}; the oldest began {jobs.age_s / 60:,.0f} min ago")
    return line.append(f"\n{when}", "dim")


def _shown(tables: Iterable[RenderableType | None]) -> Iterable[RenderableType]:
    for table in tables:
        if table is not None:
            yield Text()
            yield table


class _Sheet:
    """A table that drops columns when it is too narrow: first those marked `?`, then those marked `??`.

    Columns whose name ends in `<` hold text, the others numbers.
    """

    def __init__(self, title: str, width: int, *columns: str) -> None:
        self._title, self._width, self._columns = title, width, columns
        self._rows: list[list[Text]] = []
        self.note = ""

    def row(self, *cells: str | Text) -> None:
        """Add a row. Cells become Text, so that names cannot contain markup or control characters."""
        self._rows.append([cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells])

    def table(self) -> RenderableType:
        """The table with as many columns as fit, and the note below it."""
        ranks = [len(column) - len(column.lstrip("?")) for column in self._columns]
        visible = [True] * len(ranks)
        for rank in (1, 2):
            if self._needed(visible) > self._width:
                visible = [keep and level != rank for keep, level in zip(visible, ranks, strict=True)]
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        for column in compress(self._columns, visible):
            is_text = column.endswith("<")
            justify: JustifyMethod = "left" if is_text else "right"
            # Text is cut before any number is.
            table.add_column(
                _name(column), justify=justify, header_style="dim", no_wrap=not is_text, overflow="ellipsis"
            )
        for row in self._rows:
            table.add_row(*compress(row, visible))
        # rich would wrap a table's title and caption to the width of the table.
        note = [Text(printable(self.note), "dim")] if self.note else []
        return Group(Text(self._title, "bold"), table, *note)

    def _needed(self, visible: list[bool]) -> int:
        columns = [[_name(column) for column in self._columns], *self._rows]
        widths: list[int] = [max(cell.cell_len for cell in column) for column in zip(*columns, strict=True)]
        return sum(compress(widths, visible)) + _GAP * (sum(visible) - 1)


def _name(column: str) -> Text:
    return Text(column.strip("?<"))


def _outcomes(view: Screen, width: int) -> RenderableType:
    sheet = _Sheet("requests", width, "outcome<", "/s", "so far")
    for row in view.outcomes:
        sheet.row(row.labels[0], _rate(row.rate), _count(row.total))
    if not view.outcomes:
        sheet.note = "none yet"
    return sheet.table()


def _models(view: Screen, width: int) -> RenderableType:
    columns = ("model<", "/s", "ttft p50", "?p99", "total p50", "p99", "?tok/s in", "tok/s out")
    sheet = _Sheet("models", width, *columns)
    for row in view.models[:_MAX_ROWS]:
        times = map(_time, (*row.first_token, *row.duration))
        sheet.row(row.name, _rate(row.rate), *times, _rate(row.input_rate), _rate(row.output_rate))
    return sheet.table()


def _upstreams(view: Screen, width: int) -> RenderableType:
    columns = ("upstream<", "state<", "breaker<", "in flight", "waiting", "??/s", "failed/s")
    sheet = _Sheet("upstreams", width, *columns, "?retries/s", "?wait p50", "?p99")
    for row in view.upstreams[:_MAX_ROWS]:
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


def _batches(view: Screen, width: int) -> RenderableType | None:
    sheet = _Sheet("batches", width, "model<", "/s", "mean size", "released by<")
    for row in view.batches[:_MAX_ROWS]:
        reasons = ", ".join(f"{reason} {share:.0%}" for reason, share in row.flushes.items())
        sheet.row(row.model, _rate(row.rate), "-" if row.size is None else f"{row.size:.1f}", reasons or "-")
    return sheet.table() if view.batches else None


def _events(view: Screen, width: int) -> Iterable[RenderableType | None]:
    """Tables of what may not have happened; a missing table means that it has not."""
    yield _last_errors(view, width)
    yield _counters("routed", width, view.routed, "model<", "upstream<", "by<")
    rate = "" if view.hit_rate is None else f", {view.hit_rate:.0%} hits"
    saved = f", {view.saved_usd:.6g} USD saved" if view.saved_usd else ""
    yield _counters(f"cache{rate}{saved}", width, view.cache, "result<")
    yield _counters("refused by limits", width, view.limits, "key<", "limit<")
    yield _counters("fallbacks", width, view.fallbacks, "from<", "to<")
    yield _counters("redis errors", width, view.redis_errors, "kind<")


def _last_errors(view: Screen, width: int) -> RenderableType | None:
    sheet = _Sheet("last errors", width, "upstream<", "UTC<", "why<")
    failed = [row for row in view.upstreams if row.last_error is not None]
    for row in failed[:_MAX_ROWS]:
        at, why = row.last_error or ("", "")
        sheet.row(row.name, at[11:19], why)
    return sheet.table() if failed else None


def _counters(title: str, width: int, rows: list[CounterRow], *names: str) -> RenderableType | None:
    sheet = _Sheet(title, width, *names, "/s", "so far")
    for row in rows[:_MAX_ROWS]:
        sheet.row(*row.labels, _rate(row.rate), _count(row.total))
    return sheet.table() if rows else None


def _spend(view: Screen, width: int) -> RenderableType:
    sheet = _Sheet("today", width, "key<", "model<", "requests", "?tokens in", "?out", "USD")
    for row in view.spend[:_MAX_ROWS]:
        sheet.row(row.key, row.model, *map(_count, (row.requests, row.input, row.output)), usd(row.nanos))
    if len(view.spend) > 1:
        rows = view.spend
        sums = (
            sum(row.requests for row in rows),
            sum(row.input for row in rows),
            sum(row.output for row in rows),
        )
        sheet.row("all", "", *map(_count, sums), usd(sum(row.nanos for row in rows)))
    if view.usage_note or not view.spend:
        sheet.note = view.usage_note or "nothing yet"
    return sheet.table()


def _state(word: str) -> Text:
    return Text(printable(word), "bold red" if word in _BAD else "green" if word in ("up", "closed") else "dim")


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
