"""What one scrape says, what has grown between two of them, and quantiles out of buckets."""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

LabelSet = frozenset[tuple[str, str]]
_GROWING: Final = ("_total", "_bucket", "_count", "_sum")


class Series:
    """Values by name and labels: of one scrape, or what they have grown by."""

    def __init__(self, values: Mapping[tuple[str, LabelSet], float]) -> None:
        self.values = values
        self._named: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        for (name, labels), value in values.items():
            self._named[name].append((dict(labels), value))

    def has(self, name: str) -> bool:
        """Whether there is any series of this name."""
        return name in self._named

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of this name that have these labels; 0 of none."""
        return sum(value for _, value in self._chosen(name, labels))

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The same, for each value of a label."""
        sums: dict[str, float] = defaultdict(float)
        for own, value in self._chosen(name, labels):
            sums[own.get(label, "")] += value
        return dict(sums)

    def mean(self, histogram: str, **labels: str) -> float | None:
        """Of what was observed; None of nothing."""
        count = self.total(f"{histogram}_count", **labels)
        return self.total(f"{histogram}_sum", **labels) / count if count else None

    def quantile(self, share: float, histogram: str, **labels: str) -> float | None:
        """See `quantile`; the buckets of all histograms with these labels are put together."""
        found = self.by("le", f"{histogram}_bucket", **labels)
        return quantile(share, sorted((float(bound), count) for bound, count in found.items()))

    def _chosen(self, name: str, labels: Mapping[str, str]) -> Iterable[tuple[dict[str, str], float]]:
        for own, value in self._named.get(name, ()):
            if labels.items() <= own.items():
                yield own, value


EMPTY: Final = Series({})


def scraped(text: str) -> Series:
    """The series of Prometheus text. ValueError where it is none."""
    return Series(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def grown(before: Series, now: Series) -> Series:
    """By how much each counter and histogram has grown.

    One that has fallen means that the gateway was started anew: then all of them began at 0.
    """
    counts = {key: value for key, value in now.values.items() if key[0].endswith(_GROWING)}
    if any(value < before.values.get(key, 0.0) for key, value in counts.items()):
        return Series(counts)
    return Series({key: value - before.values.get(key, 0.0) for key, value in counts.items()})


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """The value that such a share of the observations lies below, as Prometheus's `histogram_quantile`.

    `buckets` are upper bounds, the last one infinite, each with the count of what lies below; within a bucket
    values are taken as evenly spread. None of nothing; the highest finite bound where more is not known.
    """
    if not buckets or not buckets[-1][1]:
        return None
    rank = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
        low, below = (low if math.isinf(bound) else bound), count
    return low


class SampleWindow:
    """What has grown within the last `span` seconds, over restarts of the gateway."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._last: tuple[float, Series] | None = None
        self._steps: deque[tuple[float, Series]] = deque()  # seconds, growth

    def add(self, now: float, series: Series) -> None:
        """One more scrape, taken at `now` (seconds)."""
        if self._last is not None:
            self._steps.append((now - self._last[0], grown(self._last[1], series)))
        self._last = now, series
        while len(self._steps) > 1 and self.seconds - self._steps[0][0] >= self._span:
            self._steps.popleft()

    @property
    def seconds(self) -> float:
        """The time that the growth is of; 0 after one scrape only."""
        return sum(seconds for seconds, _ in self._steps)

    def growth(self) -> Series:
        """The sum of it."""
        sums: dict[tuple[str, LabelSet], float] = defaultdict(float)
        for _, step in self._steps:
            for key, value in step.values.items():
                sums[key] += value
        return Series(sums)
