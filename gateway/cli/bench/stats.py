"""Statistics of runs, and the differences between the runs of two endpoints."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gateway.cli.bench.driver import Run

ENOUGH_ROUNDS: Final = 8
"""Eight rounds all differ in the same direction by chance in one case of 128, for each figure."""

_MIN_DIFFERENCE: Final = 0.01


class Spread(NamedTuple):
    """Percentiles, in seconds."""

    p50: float
    p90: float
    p99: float


class RunStats(NamedTuple):
    """The statistics of a load. Times are in seconds; None if there is nothing to measure."""

    good: int
    failed: int
    seconds: float
    per_second: float
    input_tokens: float
    output_tokens: float
    output_per_second: float
    counted: bool
    first_token: Spread | None
    between_tokens: Spread | None
    total: Spread | None
    errors: dict[str, int]
    messages: dict[str, str]


def figures(runs: Sequence[Run]) -> RunStats:
    """The statistics of these runs together; failed calls are counted, not timed."""
    samples = [sample for run in runs for sample in run.samples]
    good = [sample for sample in samples if not sample.error]
    seconds = sum(run.seconds for run in runs)
    output = sum(sample.output for sample in good)
    errors = Counter(sample.error for sample in samples if sample.error)
    return RunStats(
        len(good),
        len(samples) - len(good),
        seconds,
        len(good) / seconds if seconds else 0.0,
        sum(sample.input for sample in good) / len(good) if good else 0.0,
        output / len(good) if good else 0.0,
        output / seconds if seconds else 0.0,
        all(sample.counted for sample in good),
        spread(sample.first - sample.due for sample in good if sample.first is not None),
        spread(gap for sample in good for gap in sample.gaps),
        spread(sample.end - sample.due for sample in good),
        dict(errors.most_common()),
        {sample.error: sample.message for sample in reversed(samples) if sample.error},
    )


def spread(values: Iterable[float]) -> Spread | None:
    """Nearest-rank percentiles; None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(*(ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 90, 99)))


class Difference(NamedTuple):
    """One figure of two endpoints: the values over all rounds, and the ratio of each round."""

    what: str
    first: float
    second: float
    ratios: list[float]

    @property
    def ratio(self) -> float:
        """The second value divided by the first."""
        return self.second / self.first

    @property
    def remark(self) -> str:
        """The verdict: a difference counts if every round has it, in one direction and by at least 1 %."""
        if len(self.ratios) < ENOUGH_ROUNDS:
            return "too few rounds to tell"
        if min(self.ratios) > 1 + _MIN_DIFFERENCE:
            return "more in every round"
        if max(self.ratios) < 1 - _MIN_DIFFERENCE:
            return "less in every round"
        return "within noise"


def differences(first: Sequence[Run], second: Sequence[Run]) -> list[Difference]:
    """The differences between two endpoints whose runs alternated, round by round."""
    overall = _compared(figures(first)), _compared(figures(second))
    rounds = [
        (_compared(figures([left])), _compared(figures([right])))
        for left, right in zip(first, second, strict=False)  # an interrupted round has only one
    ]
    return [
        Difference(
            what,
            overall[0][what],
            overall[1][what],
            [right[what] / left[what] for left, right in rounds if left.get(what) and what in right],
        )
        for what in overall[0]
        if what in overall[1] and overall[0][what]
    ]


def _compared(of: RunStats) -> dict[str, float]:
    times = {"first token": of.first_token, "between tokens": of.between_tokens, "whole call": of.total}
    compared = {f"{name} p50": each.p50 for name, each in times.items() if each is not None}
    compared |= {f"{name} p99": each.p99 for name, each in times.items() if each is not None}
    return compared | {"requests/s": of.per_second, "output tokens/s": of.output_per_second}
