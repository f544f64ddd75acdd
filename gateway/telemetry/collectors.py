"""Gauges that are computed at scrape time, so that no call pays for them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.core.units import NANO


class UpstreamStatus(NamedTuple):
    """One upstream: calls in flight, calls queued, seconds the oldest has waited, circuit breaker state.

    `most` is the limit on calls in flight; `up` is whether it accepts connections, None while unknown.
    """

    in_flight: int
    waiting: int
    oldest_s: float
    breaker: int
    most: int
    up: bool | None


_UPSTREAM_GAUGES = (
    ("sluice_upstream_inflight", "Calls in flight to an upstream, until their last byte."),
    ("sluice_upstream_queue_depth", "Calls queued in the gateway for an upstream."),
    ("sluice_upstream_queue_oldest_wait_seconds", "Time that the oldest queued call has waited."),
    ("sluice_upstream_breaker_state", "State of the circuit breaker: 0 closed, 1 half-open, 2 open."),
    ("sluice_upstream_max_concurrency", "Configured limit of calls in flight to an upstream."),
    ("sluice_upstream_up", "1 while an upstream accepts connections, 0 while it does not."),
)


class UpstreamCollector(Collector):
    """The gauges of each upstream."""

    def __init__(self, read: Callable[[], Mapping[str, UpstreamStatus]]) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        statuses = self._read()
        for number, (name, help_text) in enumerate(_UPSTREAM_GAUGES):
            family = GaugeMetricFamily(name, help_text, labels=["upstream"])
            for upstream, status in statuses.items():
                value = status[number]
                if value is not None:
                    family.add_metric([upstream], value)
            yield family


class BudgetCollector(Collector):
    """The remaining daily budget of each key that has one."""

    def __init__(self, remaining: Callable[[], Mapping[str, int]]) -> None:
        """`remaining` returns nano-dollars by key name."""
        self._remaining = remaining

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        family = GaugeMetricFamily(
            "sluice_budget_remaining_usd",
            "Dollars that a key with usd_per_day may still spend today, after reservations of open calls.",
            labels=["key"],
        )
        for key, nanos in self._remaining().items():
            family.add_metric([key], nanos / NANO)
        yield family


class ReloadCollector(Collector):
    """The `generation` of the active config, and whether the last reload `succeeded`."""

    def __init__(self) -> None:
        self.generation = 1
        self.succeeded = True

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        yield GaugeMetricFamily(
            "sluice_config_generation",
            "Number of the active config: 1 after the start, incremented by each reload.",
            self.generation,
        )
        yield GaugeMetricFamily(
            "sluice_config_reload_success",
            "1 if the last reload succeeded, 0 if it failed and the previous config is still active.",
            self.succeeded,
        )
