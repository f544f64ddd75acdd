"""Histograms reach as far as calls may last, and are fine enough to tell their percentiles (METR-04)."""

from itertools import accumulate
from math import inf

import pytest

from gateway.telemetry.metrics import Metrics
from gateway.telemetry.semconv import MEASURED
from gateway.telemetry.series import Histogram, MemoryStore

DURATIONS = [0.02, 3.0, 45.0, 200.0, 900.0]
FIRST_TOKENS = [0.05 * 1.2**step for step in range(39)]  # to 51 s
BETWEEN = [0.005 * 1.1**step for step in range(49)]  # to half a second


def buckets(histogram: Histogram, *labels: str) -> list[tuple[float, float]]:
    """Upper bound and how many are not above it."""
    _, *counts = histogram.at(*labels).cells
    return list(zip((*histogram.bounds, inf), accumulate(counts), strict=True))


def quantile(share: float, of: list[tuple[float, float]]) -> float:
    """As Prometheus's histogram_quantile: linear within a bucket, the last bound for what lies beyond it."""
    rank = share * of[-1][1]
    low, below = 0.0, 0.0
    for bound, count in of[:-1]:
        if count >= rank:
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gen_ai_client_operation_duration_seconds", DURATIONS),
        ("gen_ai_server_time_to_first_token_seconds", FIRST_TOKENS),
        ("gen_ai_server_time_per_output_token_seconds", BETWEEN),
    ],
)
def test_metr_04_little_lies_beyond_and_percentiles_are_within_a_factor_of_two(name: str, values: list[float]) -> None:
    (measured,) = [one for one in MEASURED if one.name == name]
    histogram = measured.histogram(MemoryStore())
    for value in values:
        histogram.observer(*measured.labels)(value)
    found = buckets(histogram, *measured.labels)
    assert found[-1][1] == len(values)
    assert found[-1][1] - found[-2][1] <= 0.05 * len(values)
    for share in (0.5, 0.9, 0.99):
        rank = min(int(share * len(values)), len(values) - 1)
        assert values[rank] / 2 <= quantile(share, found) <= values[rank] * 2


def test_metr_04_waits_of_ten_minutes_and_batches_of_hundreds_have_a_bucket() -> None:
    metrics = Metrics()
    for histogram, labels, value in ((metrics.queue_wait, ("a",), 599.0), (metrics.batch_size, ("m", "e"), 256)):
        histogram.observer(*labels)(value)
        found = buckets(histogram, *labels)
        assert found[-2][1] == found[-1][1] == 1
