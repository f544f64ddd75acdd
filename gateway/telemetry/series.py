"""Counters, gauges and histograms: rows of floats in a store, one row per combination of label values.

A row is a list, or a part of a worker's file (`series_file`), and is exposed piece by piece (`exposition`). All that
counts, and all that reads, runs on one event loop, so nothing is locked.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, Protocol

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
"""Label values, in the order of the family's label names."""

Add = Callable[[float], None]


class Cells(Protocol):
    """The floats of one series."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> float: ...
    def __setitem__(self, at: int, value: float, /) -> None: ...
    def __iter__(self) -> Iterator[float]: ...


class SeriesStore(Protocol):
    """Where series are kept."""

    def create(self, family: str, labels: Labels, size: int) -> Cells:
        """A new series of `size` zeros. Never fails."""

    def release(self, family: str, labels: Labels) -> None:
        """Forget a series; its cells are not written any more."""


class MemoryStore:
    """Series of this process alone."""

    def create(self, family: str, labels: Labels, size: int) -> Cells:
        """A new series of `size` zeros."""
        return [0.0] * size

    def release(self, family: str, labels: Labels) -> None:
        """Do nothing: the garbage collector does it."""


class CountedSeries:
    """One series. Whoever counts holds this object, so that a released series can take other cells."""

    __slots__ = ("cells",)

    def __init__(self, cells: Cells) -> None:
        self.cells = cells


class Family:
    """All series of one metric. One without labels exists from the start, others from their first use on."""

    kind: ClassVar[Kind]

    def __init__(self, name: str, help_text: str, labels: Sequence[str], store: SeriesStore, size: int = 1) -> None:
        """`name` is without the suffix `_total`; `size` is the number of cells of a series."""
        self.name = name
        self.help_text = help_text
        self.labels = tuple(labels)
        self.series: dict[Labels, CountedSeries] = {}
        self._store = store
        self._size = size

    def at(self, *labels: str) -> CountedSeries:
        """The series with these label values."""
        series = self.series.get(labels)
        if series is None:
            if len(labels) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")
            labels = tuple(map(str, labels))  # an endpoint is more than its text
            series = self.series[labels] = CountedSeries(self._store.create(self.name, labels, self._size))
        return series

    def combined(self, one: float, other: float) -> float:
        """The value of one cell in two processes together."""
        return one + other

    def merge(self, labels: Labels, values: Iterable[float]) -> None:
        """Add the series of another process to this one."""
        cells = self.at(*labels).cells
        for at, value in zip(range(len(cells)), values, strict=False):
            cells[at] = self.combined(cells[at], value)

    def release(self, labels: Labels) -> None:
        """Forget this series; what still counts in it is lost."""
        series = self.series.pop(labels, None)
        if series is not None:
            series.cells = [0.0] * self._size
            self._store.release(self.name, labels)


class Counter(Family):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Sequence[str], store: SeriesStore) -> None:
        super().__init__(name, help_text, labels, store)
        # Cached: a lookup costs more than counting.
        self.adder: Callable[..., Add] = lru_cache(maxsize=None)(self._make_adder)
        """A function from label values to a function that adds to their series."""
        if not labels:
            self.at()

    def _make_adder(self, *labels: str) -> Add:
        series = self.at(*labels)

        def add(amount: float) -> None:
            series.cells[0] += amount

        return add

    def count(self, *labels: str) -> None:
        """Add one."""
        self.adder(*labels)(1)

    def release(self, labels: Labels) -> None:
        """Forget this series; what still counts in it is lost."""
        super().release(labels)
        self.adder.cache_clear()  # type: ignore[attr-defined]


class Gauge(Family):
    """A number that is set. `combine` says what several processes amount to."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str],
        store: SeriesStore,
        combine: Callable[[float, float], float] = float.__add__,
    ) -> None:
        super().__init__(name, help_text, labels, store)
        self._combine = combine

    def combined(self, one: float, other: float) -> float:
        """The value of one cell in two processes together."""
        return self._combine(one, other)

    def set(self, value: float, *labels: str) -> None:
        """Set the series with these label values."""
        self.at(*labels).cells[0] = value

    def add(self, amount: float) -> None:
        """Add to the series of a gauge without labels."""
        self.at().cells[0] += amount


class Histogram(Family):
    """Observations by upper bound. Cells: their sum, then the count of each bucket, not cumulated."""

    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, bounds: Sequence[float], labels: Sequence[str], store: SeriesStore
    ) -> None:
        super().__init__(name, help_text, labels, store, len(bounds) + 2)
        self.bounds = tuple(bounds)
        self.observer: Callable[..., Add] = lru_cache(maxsize=None)(self._make_observer)
        """A function from label values to a function that observes a value."""

    def _make_observer(self, *labels: str) -> Add:
        series, bounds = self.at(*labels), self.bounds

        def observe(value: float) -> None:
            cells = series.cells
            cells[0] += value
            cells[1 + bisect_left(bounds, value)] += 1

        return observe

    def release(self, labels: Labels) -> None:
        """Forget this series; what still counts in it is lost."""
        super().release(labels)
        self.observer.cache_clear()  # type: ignore[attr-defined]
