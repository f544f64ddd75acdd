"""Every series of the gateway, with its labels and buckets, in one place.

Labels come from closed sets: names of the config and of the tables in `errors.py`; whatever a client makes up
counts as `other`. Children are looked up once and kept.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway import __version__

OTHER: Final = "other"

# Up to 600 s, the longest call that is let through by default; finer where users feel it.
# A `_created` series beside each counter would double their number and tell nothing.
_disable: Callable[[], None] = disable_created_metrics  # untyped there
_disable()

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300, 600)
_SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_TOKEN: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


class Metrics:
    """The series of one process; `registry` is what the admin port exposes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        self.requests = Counter(
            "sluice_requests",
            "Requests of clients, by final status and outcome.",
            ["model", "endpoint", "status", "outcome"],
            registry=to,
        )
        self.duration = Histogram(
            "sluice_request_duration_seconds",
            "From the request's head to the answer's last byte.",
            ["model", "endpoint"],
            buckets=_SECONDS,
            registry=to,
        )
        self.overhead = Histogram(
            "sluice_overhead_seconds",
            "Time that the gateway itself added to a call, waiting excluded.",
            ["endpoint"],
            buckets=_SHORT,
            registry=to,
        )
        self.time_to_first_token = Histogram(
            "sluice_time_to_first_token_seconds",
            "From sending a stream's request upstream to its first event.",
            ["model", "upstream"],
            buckets=_SECONDS,
            registry=to,
        )
        self.time_per_output_token = Histogram(
            "sluice_time_per_output_token_seconds",
            "Mean time between the output tokens of one stream.",
            ["model", "upstream"],
            buckets=_TOKEN,
            registry=to,
        )
        self.tokens = Counter(
            "sluice_tokens",
            "Tokens as upstreams counted them; cached_input and reasoning are parts of input and output.",
            ["model", "upstream", "type"],
            registry=to,
        )
        self.attempts = Counter(
            "sluice_upstream_attempts",
            "Calls to upstreams, by verdict.",
            ["upstream", "verdict"],
            registry=to,
        )
        Gauge(
            "sluice_build_info",
            "Always 1; the label tells the version.",
            ["version"],
            registry=to,
            multiprocess_mode="max",
        ).labels(__version__).set(1)


class InFlight(Collector):
    """`sluice_inflight{upstream}`: read when it is asked for, so that no call pays for it."""

    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        """`read` gives the calls under way to each upstream, until their last byte."""
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        family = GaugeMetricFamily(
            "sluice_inflight", "Calls under way to an upstream, until their last byte.", labels=["upstream"]
        )
        for upstream, count in self._read().items():
            family.add_metric([upstream], count)
        yield family
