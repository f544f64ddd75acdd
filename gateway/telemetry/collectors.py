"""Gauges that are read when they are asked for, so that no call pays for them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.core.units import NANO


class UpstreamStatus(NamedTuple):
    """One upstream: calls under way, calls that wait, seconds that the oldest has waited, breaker's state.

    `most` is how many calls may be under way, `up` whether it can be reached, None while that is not known.
    """

    in_flight: int
    waiting: int
    oldest_s: float
    breaker: int
    most: int
    up: bool | None


_OF_UPSTREAMS = (
    ("sluice_upstream_inflight", "Calls under way to an upstream, until their last byte."),
    ("sluice_upstream_queue_depth", "Calls that wait in the gateway for an upstream."),
    ("sluice_upstream_queue_oldest_wait_seconds", "For how long the oldest of them has waited."),
    ("sluice_upstream_breaker_state", "0 closed, 1 half-open, 2 open."),
    ("sluice_upstream_max_concurrency", "Calls that may be under way to an upstream, as the config says."),
    ("sluice_upstream_up", "1 while connections to an upstream can be made, 0 while they cannot."),
)


class UpstreamCollector(Collector):
    """Gauges of each upstream."""

    def __init__(self, read: Callable[[], Mapping[str, UpstreamStatus]]) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        seen = self._read()
        for number, (name, tells) in enumerate(_OF_UPSTREAMS):
            family = GaugeMetricFamily(name, tells, labels=["upstream"])
            for upstream, one in seen.items():
                value = one[number]
                if value is not None:
                    family.add_metric([upstream], value)
            yield family


class BudgetCollector(Collector):
    """Gauge: what is left today of each key's budget."""

    def __init__(self, left: Callable[[], Mapping[str, int]]) -> None:
        """`left` gives nano-dollars by the names of the keys that have a budget."""
        self._left = left

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        family = GaugeMetricFamily(
            "sluice_budget_remaining_usd",
            "Dollars that a key with usd_per_day may still spend today; what its calls reserve is off.",
            labels=["key"],
        )
        for key, nanos in self._left().items():
            family.add_metric([key], nanos / NANO)
        yield family


class ReloadCollector(Collector):
    """Gauges: the `generation` of the config in force, and whether the last reload has `succeeded`."""

    def __init__(self) -> None:
        self.generation = 1
        self.succeeded = True

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        yield GaugeMetricFamily(
            "sluice_config_generation",
            "The config in force: 1 after the start, one more with each reload.",
            self.generation,
        )
        yield GaugeMetricFamily(
            "sluice_config_reload_success",
            "1, or 0 while the last reload was refused and the config before it is in force.",
            self.succeeded,
        )
