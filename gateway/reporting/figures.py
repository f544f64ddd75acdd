"""All figures of a report, exact: money in nano-dollars, whatever language they are told in."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.reporting.period import Period
from gateway.reporting.sources import Machine, Priced
from gateway.usage.savings import DECLARED, SPARED, Alternative, Saving
from gateway.usage.savings_breakdown import Part, Single, actual, baseline, best_singles, parts, total
from gateway.usage.store import UsageRow, UsageSnapshot


class ReportLine(NamedTuple):
    """One model, or one key."""

    name: str
    requests: int
    compared: int
    hits: int
    shared: int
    elsewhere: int
    baseline: int
    actual: int


class Declared(NamedTuple):
    """A baseline, the days on which it was first and last in force, and for how many requests."""

    model: str
    name: str
    first: str
    last: str
    requests: int


class ReportFigures(NamedTuple):
    """`sums` are those of all requests, `singles` the best single candidate of each model.

    `unrecorded` requests were booked by a version that did not compare; `outside` nano-dollars were paid for
    requests that are not compared. Of `cheapest` and `single` the latter is None where a model has none.
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
    declared: Sequence[Declared]
    prices: Sequence[Priced]
    machines: Sequence[Machine]

    @property
    def saved(self) -> int:
        """Against the declared baseline."""
        return self.baseline - self.actual

    @property
    def spared_calls(self) -> int:
        """Upstream calls that merging has spared."""
        return round(self.sums.spared / SPARED)

    @property
    def machine_cost(self) -> int:
        """Of all machines that are paid by the hour."""
        return sum(one.cost for one in self.machines)


def figures(
    books: UsageSnapshot, period: Period, prices: Sequence[Priced] = (), machines: Sequence[Machine] = ()
) -> ReportFigures:
    """What the books of a period tell."""
    sums = total(books.savings)
    singles = best_singles(books.savings, books.alternatives)
    costs = [one.cost if one is not None else None for one in singles.values()]
    known = [cost for cost in costs if cost is not None]
    rows = books.rows
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
        sum(known) if len(known) == len(costs) else None,
        sum(row.cost for row in rows) - actual(sums),
        singles,
        _lines(books, lambda one: one.model),
        _lines(books, lambda one: one.key),
        _declared(books.alternatives),
        prices,
        machines,
    )


def _lines(books: UsageSnapshot, name: Callable[[UsageRow | Saving], str]) -> list[ReportLine]:
    requests: dict[str, int] = defaultdict(int)
    for row in books.rows:
        requests[name(row)] += row.requests
    groups: dict[str, list[Saving]] = defaultdict(list)
    for one in books.savings:
        groups[name(one)].append(one)
    return [_line(one, requests[one], total(groups[one])) for one in sorted({*requests, *groups})]


def _line(name: str, requests: int, sums: Saving) -> ReportLine:
    counts = sums.compared, sums.hits, sums.shared, sums.elsewhere
    return ReportLine(name, requests, *counts, baseline(sums), actual(sums))


def _declared(alternatives: Iterable[Alternative]) -> list[Declared]:
    found: dict[tuple[str, str], list[Alternative]] = defaultdict(list)
    for one in alternatives:
        if one.role == DECLARED:
            found[one.model, one.name].append(one)
    return [
        Declared(
            model,
            name,
            min(one.day for one in ones),
            max(one.day for one in ones),
            sum(one.requests for one in ones),
        )
        for (model, name), ones in sorted(found.items())
    ]
