"""Metrics as a scrape sees them."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.telemetry.metrics import Metrics


def families(metrics: Metrics) -> Iterable[Metric]:
    """The families that are exposed."""
    return text_string_to_metric_families("".join(metrics.exposition()))


def samples(metrics: Metrics, name: str) -> list[Sample]:
    """The samples of this name."""
    return [sample for family in families(metrics) for sample in family.samples if sample.name == name]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The sample with exactly these labels; None if there is none."""
    return next((sample.value for sample in samples(metrics, name) if sample.labels == labels), None)
