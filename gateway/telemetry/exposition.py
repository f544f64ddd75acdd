"""Prometheus's text formats, written piece by piece, so that the event loop can serve calls in between."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import utils

from gateway.telemetry.series import Cells, Kind, Labels

Rows = Iterable[tuple[Labels, Cells | Sequence[float]]]
"""Label values and cells of each series of a family."""

PAUSE = ""
"""A piece without text: the writing may be interrupted here too."""


# prometheus-client leaves it untyped.
_go_number: Callable[[float], str] = utils.floatToGoString


class GatheredGauge(NamedTuple):
    """A gauge that is read when it is exposed."""

    name: str
    help_text: str
    labels: tuple[str, ...]
    rows: Iterable[tuple[Labels, float]]


class HistogramExport(NamedTuple):
    """A histogram as it is exposed.

    `relabel` returns the label values under which a series is exposed, None if it is not; series of equal values are
    added up. `bounds`: the upper bounds to expose, each with its place among the measured ones.
    """

    name: str
    help_text: str
    labels: tuple[str, ...]
    bounds: Sequence[tuple[float, int]]
    relabel: Callable[[Labels], Labels | None] | None = None


def head(name: str, help_text: str, kind: Kind, *, openmetrics: bool) -> str:
    """The lines before the samples of a family. `name` is without `_total`."""
    if kind == "counter" and not openmetrics:
        name += "_total"
    return f"# HELP {name} {_escaped_help(help_text)}\n# TYPE {name} {kind}\n"


def simple(name: str, labels: Sequence[str], rows: Rows) -> Iterator[str]:
    """The samples of a counter or a gauge. `name` is that of the samples."""
    pairs_of = _writer(labels)
    for values, cells in rows:
        pairs = pairs_of(values)
        yield f"{name}{{{pairs}}} {number(cells[0])}\n" if pairs else f"{name} {number(cells[0])}\n"


def histogram(export: HistogramExport, rows: Rows) -> Iterator[str]:
    """The samples of a histogram."""
    groups = rows
    if export.relabel is not None:
        sums: dict[Labels, Cells | Sequence[float]] = {}
        yield from _grouped(export.relabel, rows, sums)
        groups = sums.items()
    pairs_of = _writer(export.labels)
    ends = [(f'le="{_go_number(bound)}"}} ', at) for bound, at in export.bounds]
    for values, cells in groups:
        pairs = pairs_of(values)
        total, *counts = cells
        below = list(accumulate(counts))
        start = f"{export.name}_bucket{{{pairs}," if pairs else f"{export.name}_bucket{{"
        lines = [f"{start}{end}{number(below[at])}\n" for end, at in ends]
        braces = f"{{{pairs}}}" if pairs else ""
        lines.append(f'{start}le="+Inf"}} {number(below[-1])}\n')
        lines.append(f"{export.name}_count{braces} {number(below[-1])}\n{export.name}_sum{braces} {number(total)}\n")
        yield "".join(lines)


def _grouped(
    relabel: Callable[[Labels], Labels | None], rows: Rows, sums: dict[Labels, Cells | Sequence[float]]
) -> Iterator[str]:
    """Add up in `sums` the series that are exposed under the same label values."""
    for values, cells in rows:
        labels = relabel(values)
        if labels is not None:
            before = sums.get(labels)
            sums[labels] = cells if before is None else [a + b for a, b in zip(before, cells, strict=True)]
        yield PAUSE


def number(value: float) -> str:
    """A sample's value."""
    return _go_number(value) if value >= 1e6 or value != value else repr(float(value))


def _writer(names: Sequence[str]) -> Callable[[Labels], str]:
    """A function from label values to what stands between the braces, sorted by name."""
    order = sorted((name, at) for at, name in enumerate(names))
    return lambda values: ",".join([f'{name}="{_escaped(values[at])}"' for name, at in order])


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
