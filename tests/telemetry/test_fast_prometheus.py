"""The start-up check of prometheus-client's private names, and counting without them."""

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.telemetry import fast_prometheus
from gateway.telemetry.fast_prometheus import fast_inc, fast_observe, missing_names, warn_if_unsupported


class Renamed:
    """A value of another version, whose private names are different."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.amount = 0.0

    def inc(self, amount: float) -> None:
        self.amount += amount

    def get(self) -> float:
        return self.amount

    def get_exemplar(self) -> None:
        return None


def test_the_locked_version_has_every_name(caplog: pytest.LogCaptureFixture):
    warn_if_unsupported(logging.getLogger("sluice"))
    assert missing_names() == []
    assert caplog.records == []


@pytest.mark.parametrize("name", ["_value", "_sum", "_buckets", "_upper_bounds"])
def test_without_a_private_name_it_counts_through_the_public_methods(
    name: str,
):
    registry = CollectorRegistry()
    counter = Counter("c", "help", registry=registry)
    histogram = Histogram("h", "help", buckets=(1, 2), registry=registry)

    class WithoutName:
        """Another version's child: the public methods only."""

        def __init__(self, child: Any) -> None:
            self.inc, self.observe = getattr(child, "inc", None), getattr(child, "observe", None)
            for each in {"_value", "_sum", "_buckets", "_upper_bounds"} - {name}:
                if hasattr(child, each):
                    setattr(self, each, getattr(child, each))

    add, observe = fast_inc(WithoutName(counter)), fast_observe(WithoutName(histogram))  # type: ignore[arg-type]
    for value in (0.5, 1.5, 9):
        add(value)
        observe(value)
    text = generate_latest(registry).decode()
    assert {"c_total 11.0", "h_sum 11.0", "h_count 3.0", 'h_bucket{le="1.0"} 1.0'} <= set(text.splitlines())


def test_a_value_with_other_private_names_is_counted_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prometheus_client.values.ValueClass", Renamed)
    monkeypatch.setattr("prometheus_client.metrics.values.ValueClass", Renamed)
    registry = CollectorRegistry()
    add = fast_inc(Counter("c", "help", registry=registry))
    observe = fast_observe(Histogram("h", "help", buckets=(1, 2), registry=registry))
    add(2)
    observe(1.5)
    assert registry.get_sample_value("c_total") == 2
    assert registry.get_sample_value("h_bucket", {"le": "2.0"}) == 1


def test_a_missing_name_is_reported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(fast_prometheus, "_new_value", Renamed)
    monkeypatch.setattr(fast_prometheus, "version", lambda name: "9.9.9")
    warn_if_unsupported(logging.getLogger("sluice"))
    assert [one.getMessage() for one in caplog.records] == [
        "prometheus-client 9.9.9 lacks MutexValue._value, which version 0.26 has. Counting uses its public "
        "methods and is slower; install 'prometheus-client>=0.26,<0.27'."
    ]
