"""The label values that the docs list are those of the code."""

import re
from pathlib import Path
from typing import get_args

from kit.pages import table

from gateway.batching.batcher import FlushReason
from gateway.cache.accounting import Result
from gateway.resilience.classification import REASONS, AttemptResult

DOCS = Path(__file__).resolve().parents[2] / "docs"


def listed(label: str, metric: str) -> set[str]:
    """The values in the table of docs/monitoring.md."""
    (values,) = (
        row[2]
        for row in table(DOCS / "monitoring.md", "label | of | values")
        if row[:2] == [f"`{label}`", f"`{metric}`"]
    )
    # What is in parentheses explains a value, and what follows `; see` is a link.
    return set(re.findall(r"`([a-z_]+)`", re.sub(r"\(.*?\)", "", values.partition("; see")[0])))


def test_reasons_of_retries() -> None:
    assert listed("reason", "sluice_retries_total") == set(REASONS)


def test_results_of_attempts() -> None:
    assert listed("result", "sluice_upstream_attempts_total") == set(get_args(AttemptResult))


def test_results_of_the_cache() -> None:
    assert listed("result", "sluice_cache_requests_total") == set(get_args(Result))
    page = (DOCS / "cache.md").read_text(encoding="utf-8")
    counted = page.partition("`sluice_cache_requests_total{result}` counts")[2].partition("(Redis")[0]
    assert set(re.findall(r"`([a-z_]+)`", counted)) == set(get_args(Result))


def test_reasons_of_flushes() -> None:
    assert listed("flush_reason", "sluice_batch_wait_seconds") == set(get_args(FlushReason))
