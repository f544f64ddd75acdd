"""Renders the report as a Markdown page."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gateway.cli.report.messages import Language, word, word_or_key
from gateway.cli.report.rounding import Rounding, percent
from gateway.core.units import usd
from gateway.reporting.figures import ReportFigures, ReportLine
from gateway.usage.cost import FREE

_ALIGNED: Final = re.compile(r"[-–]?[\d,.]*( %)?")


class Page:
    """Renders one report."""

    def __init__(self, report: ReportFigures, language: Language, chart: str | None = None) -> None:
        """`chart` is the address of the chart's image."""
        self._report = report
        self._language = language
        self._chart = chart
        amounts = report.baseline, report.actual, report.sums.cheapest, report.machine_cost
        self._money = Rounding(max(amounts))

    def text(self) -> str:
        """Return the page; a single line if there are no requests."""
        report, period = self._report, self._report.period
        if not report.models:
            return self._say("empty", first=period.first, last=period.last, zone=period.zone) + "\n"
        parts = [
            f"# {self._say('title')}",
            self._say("period", first=period.first, last=period.last, days=f"{period.days:,}", zone=period.zone),
            *self._summary(),
        ]
        if report.sums.compared:
            parts += [f"## {self._say('against')}", *self._against()]
            parts += [f"## {self._say('parts')}", *self._parts()]
        parts += [f"## {self._say('requests')}", self._requests()]
        parts += [f"## {self._say('out')}", self._left_out()]
        parts += [f"## {self._say('models')}", self._lines("model", report.models)]
        parts += [f"## {self._say('keys')}", self._lines("key", report.keys)]
        parts += [f"## {self._say('sources')}", *self._baselines_and_prices()]
        parts += [f"## {self._say('method')}", self._say("method_text")]
        return "\n\n".join(parts) + "\n"

    def _summary(self) -> Iterator[str]:
        report = self._report
        if not report.sums.compared:
            yield self._say("nothing")
            return
        baseline, actual = self._money.units(report.baseline), self._money.units(report.actual)
        yield self._say(
            "headline" if report.saved >= 0 else "headline_more",
            compared=f"{report.sums.compared:,}",
            baseline=self._money.text(baseline),
            actual=self._money.text(actual),
            saved=self._money.text(abs(baseline - actual)),
            share=percent(report.saved, report.baseline),
        )
        elsewhere = report.sums.elsewhere
        yield self._say("quality", elsewhere=f"{elsewhere:,}") if elsewhere else self._say("quality_same")
        yield from self._machines()

    def _machines(self) -> Iterator[str]:
        report, hourly = self._report, {machine.upstream for machine in self._report.machines}
        if report.machines:
            lines = [
                "- "
                + self._say(
                    "machine",
                    upstream=machine.upstream,
                    hourly=usd(machine.hourly),
                    hours=_hours(machine.hours),
                    cost=self._usd(machine.cost),
                )
                for machine in report.machines
            ]
            net = report.saved - report.machine_cost
            yield self._say("machines")
            yield "\n".join(lines)
            yield self._say("machines_net" if net >= 0 else "machines_net_more", net=self._usd(abs(net)))
        free = {row.upstream for row in report.prices if row.price == FREE} - hourly
        if free:
            yield self._say("free", upstreams=", ".join(f"`{upstream}`" for upstream in sorted(free)))

    def _against(self) -> Iterator[str]:
        report = self._report
        rows = []
        for name, cost in (
            ("declared", report.baseline),
            ("cheapest", report.sums.cheapest),
            ("single", report.single),
        ):
            rows.append([self._say(name), *self._compared(cost)])
        yield self._table("against_head", rows)
        yield self._say("against_why")
        without = [model for model, single in report.singles.items() if single is None]
        if without:
            yield self._say("no_single", models=", ".join(f"`{model}`" for model in without))

    def _compared(self, cost: int | None) -> list[str]:
        actual = self._money.units(self._report.actual)
        if cost is None:
            return ["–", self._money.text(actual), "–", "–"]
        saved = self._money.units(cost) - actual
        share = percent(cost - self._report.actual, cost)
        return [self._usd(cost), self._money.text(actual), self._money.text(saved), share]

    def _parts(self) -> Iterator[str]:
        report, money = self._report, self._money
        if self._chart is not None:
            yield f"![{self._say('chart')}]({self._chart})"
        steps = money.steps(report.baseline, [part.saved for part in report.parts])
        rows = [[self._say("baseline"), self._usd(report.baseline), percent(1, 1)]]
        for part, units in zip(report.parts, steps, strict=True):
            rows.append([self._say(part.name), money.text(-units), percent(-part.saved, report.baseline)])
        rows.append([self._say("actual"), self._usd(report.actual), percent(report.actual, report.baseline)])
        yield self._table("parts_head", rows)
        yield self._say("parts_why", avoided=f"{report.avoided_calls:,}")

    def _requests(self) -> str:
        report, sums = self._report, self._report.sums
        rows = [
            ("all", report.requests, report.input, report.output),
            ("all_cached", None, report.cached_input, None),
            ("hits", sums.hits, sums.hit_input, sums.hit_output),
            ("shared", sums.shared, sums.shared_input, sums.shared_output),
            ("merged", sums.merged, None, None),
        ]
        return self._table(
            "requests_head",
            [[self._say(name), *("" if count is None else f"{count:,}" for count in counts)] for name, *counts in rows],
        )

    def _left_out(self) -> str:
        report, sums = self._report, self._report.sums
        notes = [
            ("out_failed", sums.failed),
            ("out_uncompared", sums.uncompared),
            ("out_unpriced", report.unpriced),
            ("out_unrecorded", report.unrecorded),
            ("out_cost", report.outside),
            ("out_estimated", report.estimated),
        ]
        lines = [
            "- "
            + self._say(
                name,
                count=f"{count:,}",
                cost=self._usd(report.outside),
                input=f"{sums.unpriced_input:,}",
                output=f"{sums.unpriced_output:,}",
            )
            for name, count in notes
            if count
        ]
        return "\n".join(lines) or self._say("out_nothing")

    def _lines(self, what: str, lines: Sequence[ReportLine]) -> str:
        report, sums = self._report, self._report.sums
        baselines = self._rounded([line.baseline for line in lines])
        actuals = self._rounded([line.actual for line in lines])
        rows = [
            self._line(line, f"`{line.name}`", *units) for line, *units in zip(lines, baselines, actuals, strict=True)
        ]
        if len(lines) > 1:
            counts = sums.compared, sums.hits, sums.shared, sums.elsewhere
            total = ReportLine("", report.requests, *counts, report.baseline, report.actual)
            units = self._money.units(report.baseline), self._money.units(report.actual)
            rows.append(self._line(total, self._say("total"), *units))
        return self._table("lines_head", rows, what=self._say(what))

    def _line(self, line: ReportLine, name: str, baseline: int, actual: int) -> list[str]:
        counts = line.requests, line.compared, line.hits + line.shared, line.elsewhere
        return [
            name,
            *(f"{count:,}" for count in counts),
            *(self._money.text(units) for units in (baseline, actual, baseline - actual)),
            percent(line.baseline - line.actual, line.baseline),
        ]

    def _rounded(self, amounts: Sequence[int]) -> list[int]:
        return list(self._money.steps(sum(amounts), amounts))

    def _baselines_and_prices(self) -> Iterator[str]:
        report = self._report
        singles = {model: "–" if single is None else single.name for model, single in report.singles.items()}
        declared = [
            [b.model, b.name, b.first, b.last, f"{b.requests:,}", singles.get(b.model, "–")] for b in report.declared
        ]
        if declared:
            yield self._table("declared_head", declared)
        prices = []
        for row in report.prices:
            price = row.price
            costs = () if price is None else (price.input, price.output, price.cached_input)
            amounts = [self._dollars(cost) for cost in costs] or [self._say("unknown")] * 3
            source = word_or_key(row.source, self._language)
            prices.append([row.model, row.upstream, row.sent_as, *amounts, source])
        if prices:
            yield self._table("prices_head", prices)
            yield self._say("prices_why", last=report.period.last)
        yield from self._differing_prices()

    def _differing_prices(self) -> Iterator[str]:
        """List configured prices that differ from the catalogue."""
        lines = [
            "- "
            + self._say(
                "differs",
                model=row.sent_as,
                upstream=row.upstream,
                source=row.catalogue,
                input=usd(row.listed.input),
                output=self._dollars(row.listed.output),
                cached=usd(row.listed.cached_input),
            )
            for row in self._report.prices
            if row.listed is not None
        ]
        if lines:
            yield "\n".join(lines)

    def _usd(self, nanos: int) -> str:
        return self._money.text(self._money.units(nanos))

    def _dollars(self, nanos: int | None) -> str:
        return self._say("unknown") if nanos is None else usd(nanos)

    def _say(self, key: str, **values: object) -> str:
        return word(key, self._language, **values)

    def _table(self, head: str, rows: Sequence[Sequence[str]], **values: object) -> str:
        """Render a table with numeric columns aligned right."""
        titles = [_escaped(title) for title in self._say(head, **values).split(" | ")]
        columns = list(zip(*rows, strict=True)) or [("",)] * len(titles)
        rules = ["--:" if _numeric(column) else "---" for column in columns]
        lines = [titles, rules, *([_escaped(cell) for cell in row] for row in rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _hours(hours: float) -> str:
    """Two decimals at most; two digits of what is less than a tenth of an hour."""
    return f"{hours:.2g}" if hours < 0.1 else f"{hours:,.2f}".removesuffix("0").removesuffix(".0")


def _numeric(cells: Iterable[str]) -> bool:
    return all(_ALIGNED.fullmatch(cell) for cell in cells)


def _escaped(cell: str) -> str:
    """Escape what would end a table cell; names come from the config."""
    return cell.replace("|", "\\|").replace("\n", " ")
