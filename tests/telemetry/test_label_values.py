"""The values of labels that docs/operations.md tells are those of the code."""

import re
from pathlib import Path
from typing import get_args

from gateway.cache.accounting import Result
from gateway.resilience.classification import REASONS, Verdict

DOCS = Path(__file__).resolve().parents[2] / "docs"


def told(after: str, until: str, page: str = "operations.md") -> set[str]:
    """The words in backticks between two texts."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return set(re.findall(r"`([a-z_]+)`", text.partition(after)[2].partition(until)[0]))


def test_reasons_of_retries() -> None:
    assert told("`reason` of `sluice_retries_total` is ", ", see") == set(REASONS)


def test_verdicts() -> None:
    assert told("`verdict` is ", "`reason` of") == set(get_args(Verdict))


def test_results_of_the_cache() -> None:
    assert told("`sluice_cache_requests_total{result}` counts", "(Redis", "cache.md") == set(get_args(Result))
