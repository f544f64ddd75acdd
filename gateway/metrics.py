"""Every series of the gateway, with its labels and buckets, in one place.

Labels come from closed sets: names of the config and of the tables in `errors.py`; whatever a client makes up
counts as `other`. Children are looked up once and kept.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway import __version__

OTHER: Final = "other"
BREAKER: Final = ("closed", "half-open", "open")

# Up to 600 s, the longest call that is let through by default; finer where users feel it.
# A `_created` series beside each counter would double their number and tell nothing.
_disable: Callable[[], None] = disable_created_metrics  # untyped there
_disable()

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300, 600)
_SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_TOKEN: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RATIO: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4)


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
        self.cost = Counter(
            "sluice_cost_usd",
            "Dollars that calls have cost, as far as prices are known.",
            ["model", "upstream", "key"],
            registry=to,
        )
        self.limit_rejections = Counter(
            "sluice_limit_rejections",
            "Calls refused for a limit of their key.",
            ["key", "limit"],
            registry=to,
        )
        self.estimate_ratio = Histogram(
            "sluice_token_estimate_ratio",
            "Input tokens as the upstream counted them, divided by the estimate made at the door.",
            ["model"],
            buckets=_RATIO,
            registry=to,
        )
        self.queue_wait = Histogram(
            "sluice_queue_wait_seconds",
            "Time that calls waited in the gateway for a slot of an upstream or for its rate.",
            ["upstream"],
            buckets=_SECONDS,
            registry=to,
        )
        self.batch_size = Histogram(
            "sluice_batch_size",
            "Callers that shared an upstream call, of calls that could be shared.",
            ["model", "endpoint"],
            buckets=_SIZES,
            registry=to,
        )
        self.batch_wait = Histogram(
            "sluice_batch_wait_seconds",
            "Time for which a call was held back to be merged, by what released it.",
            ["model", "release"],
            buckets=_SHORT,
            registry=to,
        )
        self.batch_wasted = Counter(
            "sluice_batch_wasted_tokens",
            "Input tokens, estimated, of callers that left after their batch had gone.",
            ["model"],
            registry=to,
        )
        self.redis_up = Gauge(
            "sluice_redis_up",
            "1 while Redis answers in time, 0 while it does not; without redis there is no such series.",
            [],
            registry=None,
            multiprocess_mode="livemin",
        )
        self.redis_errors = Counter(
            "sluice_redis_errors",
            "What went wrong with Redis, by kind.",
            ["kind"],
            registry=to,
        )
        self.retries = Counter(
            "sluice_retries",
            "Extra calls to upstreams, by the upstream whose failure caused them and by that failure.",
            ["upstream", "reason"],
            registry=to,
        )
        self.fallbacks = Counter(
            "sluice_fallbacks",
            "Calls that went to a fallback model.",
            ["from_model", "to_model"],
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


def counter(family: Counter) -> Callable[..., None]:
    """Counts one for these labels; their child is looked up once."""
    child = lru_cache(maxsize=None)(lambda *labels: family.labels(*labels).inc)
    return lambda *labels: child(*labels)()


def observer(histogram: Histogram) -> Callable[[float], None]:
    """What `histogram.observe` does, in half its time: the bucket is looked up and not walked to.

    prometheus-client keeps a bucket for what lies between two bounds, and the sum, behind names of its own; a
    test compares what is exposed with what the library itself would have exposed.
    """
    inside = cast("Any", histogram)
    add, bounds = inside._sum.inc, inside._upper_bounds
    counts = [bucket.inc for bucket in inside._buckets]

    def observe(value: float) -> None:
        add(value)
        counts[bisect_left(bounds, value)](1)

    return observe


class Queues(Collector):
    """Gauges of each upstream, read when they are asked for, so that no call pays for them."""

    def __init__(
        self,
        in_flight: Callable[[], Mapping[str, int]],
        depth: Callable[[], Mapping[str, int]],
        breaker: Callable[[], Mapping[str, int]],
    ) -> None:
        """Calls under way to each upstream, calls that wait for it, and the state of its breaker."""
        self._read = (
            ("sluice_inflight", "Calls under way to an upstream, until their last byte.", in_flight),
            ("sluice_queue_depth", "Calls that wait in the gateway for an upstream.", depth),
            ("sluice_breaker_state", "0 closed, 1 half-open, 2 open.", breaker),
        )

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """prometheus-client: the samples."""
        for name, documentation, read in self._read:
            family = GaugeMetricFamily(name, documentation, labels=["upstream"])
            for upstream, count in read().items():
                family.add_metric([upstream], count)
            yield family


class Reloads(Collector):
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
