"""The made-up month: the pages in docs/ are what it gives, and its numbers add up."""

import pytest

from benchmarks import month
from gateway.reporting.figures import ReportFigures


@pytest.fixture(scope="module")
def found() -> ReportFigures:
    return month.report()


def test_the_pages_are_those_of_this_version(found: ReportFigures):
    for name, text in month.pages(found).items():
        assert month.written(name) == text, "python -m benchmarks.month"


def test_the_numbers_add_up(found: ReportFigures):
    assert sum(part.saved for part in found.parts) == found.baseline - found.actual
    for lines in (found.models, found.keys):
        assert sum(line.baseline for line in lines) == found.baseline
        assert sum(line.actual for line in lines) == found.actual
        assert sum(line.requests for line in lines) == found.requests
    sums = found.sums
    assert found.requests == sums.compared + sums.uncompared + sums.failed
    assert sum(one.requests for one in found.declared) == sums.compared
    assert found.single is not None
    assert sums.cheapest <= found.single <= found.baseline
    assert found.outside == 0


def test_what_is_shown_adds_up(found: ReportFigures):
    steps = [row for row in _rows(month.pages(found)["savings.md"]) if len(row) == 3]
    amounts = [float(row[1]) for row in steps[1:] if row[2].endswith("%")]
    assert round(sum(amounts[:-1]), 4) == amounts[-1]
    assert len(amounts) == 8


def test_something_of_everything_is_in_it(found: ReportFigures):
    shown = dict(found.parts)
    assert all(shown[name] > 0 for name in shown if name not in ("batch", "attempts_in_vain"))
    assert shown["attempts_in_vain"] < 0
    sums = found.sums
    assert min(sums.hits, sums.shared, sums.uncompared, sums.failed, sums.elsewhere, found.unpriced) > 0
    assert found.machines


def _rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
