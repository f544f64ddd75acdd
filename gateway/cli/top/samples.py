"""Metric samples: one scrape, the growth between two, and quantiles from histogram buckets."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from gateway.page.figures import quantile

LabelSet = frozenset[tuple[str, str]]
_GROWING: Final = ("_total", "_bucket", "_count", "_sum")


class Series:
    """Values by name and labels, of one scrape or of the growth between two."""

    def __init__(self, values: Mapping[tuple[str, LabelSet], float]) -> None:
        self.values = values
        self._named: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        for (name, labels), value in values.items():
            self._named[name].append((dict(labels), value))

    def has(self, name: str) -> bool:
        """Whether there is any series of this name."""
        return name in self._named

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of this name with these labels; 0 if there are none."""
        return sum(value for _, value in self._chosen(name, labels))

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The sums by the value of one label."""
        sums: dict[str, float] = defaultdict(float)
        for series_labels, value in self._chosen(name, labels):
            sums[series_labels.get(label, "")] += value
        return dict(sums)

    def mean(self, histogram: str, **labels: str) -> float | None:
        """The mean of the observations; None without any."""
        count = self.total(f"{histogram}_count", **labels)
        return self.total(f"{histogram}_sum", **labels) / count if count else None

    def quantile(self, share: float, histogram: str, **labels: str) -> float | None:
        """See `quantile`; adds up the buckets of all histograms with these labels."""
        buckets = self.by("le", f"{histogram}_bucket", **labels)
        return quantile(share, sorted((float(bound), count) for bound, count in buckets.items()))

    def _chosen(self, name: str, labels: Mapping[str, str]) -> Iterable[tuple[dict[str, str], float]]:
        for series_labels, value in self._named.get(name, ()):
            if labels.items() <= series_labels.items():
                yield series_labels, value


EMPTY: Final = Series({})


def scraped(text: str) -> Series:
    """Parse Prometheus text. ValueError if it is not."""
    return Series(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def grown(before: Series, now: Series) -> Series:
    """The growth of each counter and histogram.

    If any has fallen, the gateway was restarted and all of them began at 0.
    """
    counts = {key: value for key, value in now.values.items() if key[0].endswith(_GROWING)}
    if any(value < before.values.get(key, 0.0) for key, value in counts.items()):
        return Series(counts)
    return Series({key: value - before.values.get(key, 0.0) for key, value in counts.items()})


class SampleWindow:
    """The growth within the last `span` seconds, across restarts of the gateway."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._last: tuple[float, Series] | None = None
        self._steps: deque[tuple[float, Series]] = deque()  # seconds, growth

    def add(self, now: float, series: Series) -> None:
        """Add a scrape taken at `now` (seconds)."""
        if self._last is not None:
            self._steps.append((now - self._last[0], grown(self._last[1], series)))
        self._last = now, series
        while len(self._steps) > 1 and self.seconds - self._steps[0][0] >= self._span:
            self._steps.popleft()

    @property
    def seconds(self) -> float:
        """The time that the growth covers; 0 until the second scrape."""
        return sum(seconds for seconds, _ in self._steps)

    def growth(self) -> Series:
        """The growth within the window."""
        sums: dict[tuple[str, LabelSet], float] = defaultdict(float)
        for _, step in self._steps:
            for key, value in step.values.items():
                sums[key] += value
        return Series(sums)
