"""The figures of a savings report, exact, with money in nano-dollars."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.reporting.period import Period
from gateway.reporting.sources import Machine, Priced
from gateway.usage.savings import BASELINE, CALL_PARTS, Saving
from gateway.usage.savings_breakdown import Part, Single, actual, baseline, best_singles, parts, total
from gateway.usage.store import AlternativeSum, UsageRow, UsageSummary, UsageSums


class ReportLine(NamedTuple):
    """The figures of one model or one key."""

    name: str
    requests: int
    compared: int
    hits: int
    shared: int
    elsewhere: int
    baseline: int
    actual: int


class DeclaredBaseline(NamedTuple):
    """A baseline, the first and last day on which it was in force, and its number of requests."""

    model: str
    name: str
    first: str
    last: str
    requests: int


class ReportFigures(NamedTuple):
    """All figures. `sums` covers all requests; `singles` has the best single candidate of each model.

    `unrecorded`: requests recorded by a version without comparison. `outside`: nano-dollars paid for requests
    that are not compared. `single`: cost with the best single candidates, None if a model has none.
    """

    period: Period
    requests: int
    unrecorded: int
    estimated: int
    unpriced: int
    input: int
    output: int
    cached_input: int
    sums: Saving
    parts: Sequence[Part]
    baseline: int
    actual: int
    single: int | None
    outside: int
    singles: dict[str, Single | None]
    models: Sequence[ReportLine]
    keys: Sequence[ReportLine]
    declared: Sequence[DeclaredBaseline]
    prices: Sequence[Priced]
    machines: Sequence[Machine]

    @property
    def saved(self) -> int:
        """Nano-dollars saved against the declared baselines."""
        return self.baseline - self.actual

    @property
    def avoided_calls(self) -> int:
        """Upstream calls avoided by merging."""
        return round(self.sums.spared / CALL_PARTS)

    @property
    def machine_cost(self) -> int:
        """Nano-dollars of all machines billed by the hour."""
        return sum(machine.cost for machine in self.machines)


def figures(
    usage: UsageSummary, period: Period, prices: Sequence[Priced] = (), machines: Sequence[Machine] = ()
) -> ReportFigures:
    """Compute the figures of a period."""
    sums = total(usage.models.savings)
    singles = best_singles(usage.models.savings, usage.alternatives)
    costs = [single.cost for single in singles.values() if single is not None]
    rows = usage.models.rows
    requests = sum(row.requests for row in rows)
    return ReportFigures(
        period,
        requests,
        requests - sums.compared - sums.uncompared - sums.failed,
        sum(row.estimated for row in rows),
        sum(row.unpriced for row in rows),
        sum(row.input for row in rows),
        sum(row.output for row in rows),
        sum(row.cached_input for row in rows),
        sums,
        parts(sums),
        baseline(sums),
        actual(sums),
        sum(costs) if len(costs) == len(singles) else None,
        sum(row.cost for row in rows) - actual(sums),
        singles,
        _lines(usage.models, lambda entry: entry.model),
        _lines(usage.keys, lambda entry: entry.key),
        _declared(usage.alternatives),
        prices,
        machines,
    )


def _lines(usage: UsageSums, name: Callable[[UsageRow | Saving], str]) -> list[ReportLine]:
    requests = {name(row): row.requests for row in usage.rows}
    savings = {name(saving): saving for saving in usage.savings}
    nothing = Saving("", "", "", "")
    return [_line(each, requests.get(each, 0), savings.get(each, nothing)) for each in sorted({*requests, *savings})]


def _line(name: str, requests: int, sums: Saving) -> ReportLine:
    counts = sums.compared, sums.hits, sums.shared, sums.elsewhere
    return ReportLine(name, requests, *counts, baseline(sums), actual(sums))


def _declared(alternatives: Iterable[AlternativeSum]) -> list[DeclaredBaseline]:
    declared = (
        DeclaredBaseline(one.model, one.name, one.day, one.last_day, one.requests)
        for one in alternatives
        if one.role == BASELINE
    )
    return sorted(declared)
