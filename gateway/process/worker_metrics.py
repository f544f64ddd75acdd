"""The series of all workers together: those of running workers, and what ended ones have left."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from gateway.http.server.paced import Pacer
from gateway.telemetry.exposition import GatheredGauge, Rows
from gateway.telemetry.logging import logger
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series import Family, Labels
from gateway.telemetry.series_file import BrokenSeriesFile, SeriesRow, read_series

_LIVE: Final = "gauge"
"""The kind of metric that ends with its worker."""

_Sums = dict[str, dict[Labels, tuple[float, ...]]]
"""Cells by family and label values."""


class WorkerMetrics:
    """Adds up the workers' series. `metrics` has those of workers that have ended."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._broken: set[Path] = set()
        self._folds = 0

    def fold(self, path: Path) -> None:
        """Take over the series of a worker that has ended, and delete its file."""
        self._folds += 1
        for name, labels, values in self._read(path):
            family = self.metrics.families.get(name)
            if family is not None and family.kind != _LIVE:
                family.merge(labels, values)
        path.unlink(missing_ok=True)
        self._broken.discard(path)

    async def text(
        self,
        only: Collection[str],
        files: Callable[[], Iterable[Path]],
        in_memory: Iterable[SeriesRow],
        gauges: Iterable[GatheredGauge],
        *,
        openmetrics: bool,
    ) -> AsyncIterator[str]:
        """The series of all workers as text in pieces; `files` returns those of the running ones.

        `in_memory`: what these could not write there; `gauges` are exposed too.
        """
        pacer = Pacer()
        while True:
            folds = self._folds
            sums: _Sums = {name: {} for name in self.metrics.families}
            for path in files():
                for row in self._read(path):
                    self._add(sums, row)
                    if pacer.over:
                        await pacer.pause()
            if folds == self._folds:  # else a worker has ended meanwhile, and what was read may lack it
                break
        for row in in_memory:
            self._add(sums, row)

        def rows(family: Family) -> Rows:
            running = sums[family.name]
            ended = [(labels, series.cells) for labels, series in family.series.items() if labels not in running]
            return [*running.items(), *ended]

        for piece in self.metrics.exposition(only, rows=rows, gauges=gauges, openmetrics=openmetrics):
            yield piece

    def _add(self, sums: _Sums, row: SeriesRow) -> None:
        name, labels, values = row
        family = self.metrics.families.get(name)
        if family is None:
            return
        rows = sums[name]
        before: Iterable[float] | None = rows.get(labels)
        if before is None and (ended := family.series.get(labels)) is not None and family.kind != _LIVE:
            before = ended.cells
        if before is not None:
            values = tuple([family.combined(a, b) for a, b in zip(before, values, strict=True)])
        rows[labels] = values

    def _read(self, path: Path) -> Iterable[SeriesRow]:
        """The series of a file, as far as they can be read; what is wrong with it is logged once."""
        try:
            yield from read_series(path)
        except FileNotFoundError:  # its worker has counted nothing yet, or everything in memory
            return
        except (OSError, BrokenSeriesFile) as error:
            if path not in self._broken:
                self._broken.add(path)
                logger.error("metrics of a worker cannot be read", extra={"file": path.name, "reason": repr(error)})
