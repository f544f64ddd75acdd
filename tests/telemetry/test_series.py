"""Families of series, and their text as prometheus-client would write it."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import samples
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as TheirCounter
from prometheus_client import Gauge as TheirGauge
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.telemetry import exposition
from gateway.telemetry.exposition import HistogramExport
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.retention import RELEASE_AFTER_S, Retention
from gateway.telemetry.series import Counter, Gauge, Histogram, MemoryStore

BOUNDS = (0.1, 1, 2.5, 2.0**20)
TEXTS = st.text(st.sampled_from('a"\\\n,}é'), max_size=5)


def written(family: Counter | Gauge | Histogram) -> list[str]:
    """The lines of a family, sorted: their order among the samples of a series has no meaning."""
    rows = [(labels, series.cells) for labels, series in family.series.items()]
    text = exposition.head(family.name, family.help_text, family.kind, openmetrics=False)
    if isinstance(family, Histogram):
        every = [(bound, at) for at, bound in enumerate(family.bounds)]
        export = HistogramExport(family.name, family.help_text, family.labels, every)
        text += "".join(exposition.histogram(export, rows))
    else:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        text += "".join(exposition.simple(name, family.labels, rows))
    return sorted(text.splitlines())


def theirs(registry: CollectorRegistry) -> list[str]:
    """What prometheus-client writes, without the times of creation."""
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.100001, 1.0, 2.5, 1e9]) | st.floats(0, 10), max_size=30), TEXTS)
def test_a_histogram_is_written_as_the_library_would(values: list[float], label: str) -> None:
    registry = CollectorRegistry()
    ours = Histogram("h", "he\\lp", BOUNDS, ["a"], MemoryStore())
    library = TheirHistogram("h", "he\\lp", ["a"], buckets=BOUNDS, registry=registry)
    for value in values:
        ours.observer(label)(value)
        library.labels(label).observe(value)
    assert written(ours) == theirs(registry)


@given(st.lists(st.integers(0, 10**7), max_size=10), TEXTS)
def test_a_counter_is_written_as_the_library_would(amounts: list[int], label: str) -> None:
    registry = CollectorRegistry()
    ours = Counter("c", "help\nhelp", ["a"], MemoryStore())
    library = TheirCounter("c", "help\nhelp", ["a"], registry=registry)
    for amount in amounts:
        ours.adder(label)(amount)
        library.labels(label).inc(amount)
    assert written(ours) == theirs(registry)


@given(st.floats() | st.sampled_from([inf, -inf, nan, -1e9, 1e21]))
def test_a_gauge_is_written_as_the_library_would(value: float) -> None:
    registry = CollectorRegistry()
    ours = Gauge("g", "help", [], MemoryStore())
    ours.set(value)
    TheirGauge("g", "help", registry=registry).set(value)
    assert [line.lower() for line in written(ours)] == [line.lower() for line in theirs(registry)]


def test_a_family_without_labels_is_there_from_the_start_and_others_from_their_first_use() -> None:
    assert [(one.labels, one.value) for one in samples.samples(Metrics(), "sluice_usage_write_errors_total")] == [
        ({}, 0)
    ]
    metrics = Metrics()
    assert samples.samples(metrics, "sluice_requests_total") == []
    metrics.retries.count("a", "connect")
    assert samples.value(metrics, "sluice_retries_total", upstream="a", reason="connect") == 1


def test_wrong_labels_are_an_error() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Metrics().retries.count("a")


def test_series_that_appear_while_it_is_written_break_nothing() -> None:
    metrics = Metrics()
    metrics.retries.count("a", "connect")
    text = ""
    for number, piece in enumerate(metrics.exposition(openmetrics=True)):
        metrics.retries.count("a", f"reason {number}")
        metrics.duration.observer("m", "/v1/embeddings", f"upstream {number}", "ok")(1.0)
        text += piece
    assert {one.name for one in text_string_to_metric_families(text)} > {"sluice_retries"}


def test_only_what_is_asked_for_is_written() -> None:
    text = "".join(Metrics().exposition({"sluice_cost_usd_total", "gen_ai_client_token_usage", "sluice_cache_bytes"}))
    assert [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")] == [
        "gen_ai_client_token_usage",
        "sluice_cost_usd_total",
        "sluice_cache_bytes",
    ]


def kept(metrics: Metrics) -> set[str]:
    """The upstreams with attempts."""
    return {one.labels["upstream"] for one in samples.samples(metrics, "sluice_upstream_attempts_total")}


def test_series_of_removed_names_are_released_a_while_after_the_reload() -> None:
    metrics = Metrics()
    retention = Retention(metrics.families.values())
    count = metrics.attempts.adder
    for upstream in ("a", "b"):
        count(upstream, "success")(1)
    metrics.limit_rejections.count("anybody", "rpm")
    retention.tick(1000.0)
    assert kept(metrics) == {"a", "b"}
    retention.reloaded({"upstream": {"b"}}, 1000.0)
    retention.tick(1000.0 + RELEASE_AFTER_S - 0.1)
    assert kept(metrics) == {"a", "b"}
    retention.tick(1000.0 + RELEASE_AFTER_S)
    assert kept(metrics) == {"b"}
    assert samples.value(metrics, "sluice_limit_rejections_total", key="anybody", limit="rpm") == 1
    # A call of before that ends late is counted, and forgotten in turn.
    count("a", "success")(1)
    assert kept(metrics) == {"a", "b"}
    retention.tick(1000.0 + 2 * RELEASE_AFTER_S)
    assert kept(metrics) == {"b"}


def test_a_name_that_comes_back_counts_from_nought() -> None:
    metrics = Metrics()
    retention = Retention(metrics.families.values())
    metrics.attempts.adder("a", "success")(5)
    retention.reloaded({"upstream": {"b"}}, 0.0)
    retention.tick(RELEASE_AFTER_S)
    retention.reloaded({"upstream": {"a"}}, 100.0)
    metrics.attempts.adder("a", "success")(1)
    retention.tick(200.0)
    assert samples.value(metrics, "sluice_upstream_attempts_total", upstream="a", result="success") == 1


def test_many_series_are_released_in_several_steps() -> None:
    metrics = Metrics()
    retention = Retention([metrics.attempts])
    for number in range(5000):
        metrics.attempts.count(f"upstream {number}", "success")
    retention.reloaded({"upstream": {"upstream 7"}}, 0.0)
    left = [5000]
    for step in range(3):
        retention.tick(RELEASE_AFTER_S + step)
        left.append(len(metrics.attempts.series))
    assert left == [5000, left[1], left[2], 1]
    assert 1 < left[2] < left[1] < 5000
