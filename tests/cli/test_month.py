"""The simulated month: the pages in docs/ are its output, and its numbers add up."""

import pytest

from benchmarks import month
from gateway.reporting.figures import ReportFigures


@pytest.fixture(scope="module")
def report() -> ReportFigures:
    return month.report()


def test_the_pages_in_docs_are_current(report: ReportFigures):
    for name, text in month.pages(report).items():
        assert month.written(name) == text, "python -m benchmarks.month"


def test_the_numbers_add_up(report: ReportFigures):
    assert sum(part.saved for part in report.parts) == report.baseline - report.actual
    for lines in (report.models, report.keys):
        assert sum(line.baseline for line in lines) == report.baseline
        assert sum(line.actual for line in lines) == report.actual
        assert sum(line.requests for line in lines) == report.requests
    sums = report.sums
    assert report.requests == sums.compared + sums.uncompared + sums.failed
    assert sum(one.requests for one in report.declared) == sums.compared
    assert report.single is not None
    assert sums.cheapest <= report.single <= report.baseline
    assert report.outside == 0


def test_the_rounded_figures_add_up(report: ReportFigures):
    steps = [row for row in _rows(month.pages(report)["savings.md"]) if len(row) == 3]
    amounts = [float(row[1]) for row in steps[1:] if row[2].endswith("%")]
    assert round(sum(amounts[:-1]), 4) == amounts[-1]
    assert len(amounts) == 8


def test_every_kind_of_saving_occurs(report: ReportFigures):
    parts = dict(report.parts)
    assert all(parts[name] > 0 for name in parts if name not in ("batch", "failed_attempts"))
    assert parts["failed_attempts"] < 0
    sums = report.sums
    assert min(sums.hits, sums.shared, sums.uncompared, sums.failed, sums.elsewhere, report.unpriced) > 0
    assert report.machines


def _rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
