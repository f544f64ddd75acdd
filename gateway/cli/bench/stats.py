"""Figures of stretches of calls, and what two endpoints' rounds tell of the difference between them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gateway.cli.bench.driver import Run

ENOUGH_ROUNDS: Final = 8
"""So many rounds fall on the same side by chance in one of 128 cases; several figures are looked at."""

_LEAST: Final = 0.01


class Spread(NamedTuple):
    """Seconds."""

    p50: float
    p90: float
    p99: float


class RunStats(NamedTuple):
    """What was measured. Times in seconds; None where there is nothing to measure."""

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
    said: dict[str, str]


def figures(stretches: Sequence[Run]) -> RunStats:
    """The figures of all these stretches together; failed calls are counted, not timed."""
    samples = [sample for stretch in stretches for sample in stretch.samples]
    good = [sample for sample in samples if not sample.error]
    seconds = sum(stretch.seconds for stretch in stretches)
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
        {sample.error: sample.said for sample in reversed(samples) if sample.error},
    )


def spread(values: Iterable[float]) -> Spread | None:
    """Percentiles by the nearest rank; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(*(ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 90, 99)))


class Difference(NamedTuple):
    """One figure of two endpoints: over all, the ratio of the second to the first, and the rounds' own."""

    what: str
    first: float
    second: float
    ratios: list[float]

    @property
    def ratio(self) -> float:
        """Second to first."""
        return self.second / self.first

    @property
    def remark(self) -> str:
        """Whether the difference is one: it has the same direction, and is 1 % at least, in every round."""
        if len(self.ratios) < ENOUGH_ROUNDS:
            return "too few rounds to tell"
        if min(self.ratios) > 1 + _LEAST:
            return "more in every round"
        if max(self.ratios) < 1 - _LEAST:
            return "less in every round"
        return "within noise"


def differences(first: Sequence[Run], second: Sequence[Run]) -> list[Difference]:
    """Of two endpoints whose stretches were run in turn, round by round."""
    whole = _compared(figures(first)), _compared(figures(second))
    rounds = [
        (_compared(figures([one])), _compared(figures([other])))
        for one, other in zip(first, second, strict=False)  # an interrupted round has one only
    ]
    return [
        Difference(
            what,
            whole[0][what],
            whole[1][what],
            [other[what] / one[what] for one, other in rounds if one.get(what) and what in other],
        )
        for what in whole[0]
        if what in whole[1] and whole[0][what]
    ]


def _compared(of: RunStats) -> dict[str, float]:
    times = {"first token": of.first_token, "between tokens": of.between_tokens, "whole call": of.total}
    found = {f"{name} p50": one.p50 for name, one in times.items() if one is not None}
    found |= {f"{name} p99": one.p99 for name, one in times.items() if one is not None}
    return found | {"requests/s": of.per_second, "output tokens/s": of.output_per_second}
