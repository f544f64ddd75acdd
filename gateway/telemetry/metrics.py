"""Every series of the gateway that calls count into, with its labels and buckets, in one place.

Labels come from closed sets: names of the config and of the tables in `errors.py`; whatever a client makes up
counts as `other`. Children are looked up once and kept. What is read when it is asked for is in `gauges.py`;
five series are measured under the names of OpenTelemetry and told twice, see `gen_ai.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.values import MutexValue

from gateway import __version__
from gateway.telemetry import semconv as gen_ai

OTHER: Final = "other"
BREAKER: Final = ("closed", "half-open", "open")

# A `_created` series beside each counter would double their number and tell nothing.
_disable: Callable[[], None] = disable_created_metrics  # untyped there
_disable()

# Up to 600 s, the longest that a call is let through by default; finer where users feel it.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300, 600)
_SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_HELD: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RATIO: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4)


class _Maker:
    """Makes families of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, tells: str, *labels: str) -> Counter:
        return Counter(name, tells, labels, registry=self.registry)

    def histogram(self, name: str, tells: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, tells, labels, buckets=buckets, registry=self.registry)

    def gauge(self, name: str, tells: str, mode: Any, *labels: str) -> Gauge:
        """`mode`: how the gauges of several workers become one."""
        return Gauge(name, tells, labels, registry=self.registry, multiprocess_mode=mode)


class _RequestMetrics:
    """What clients have asked for, how it went, and what it has used."""

    def _make_calls(self, to: _Maker) -> None:
        self.requests = to.counter(
            "sluice_requests",
            "Requests of clients, by final status and outcome.",
            *("model", "endpoint", "status", "outcome"),
        )
        self.overhead = to.histogram(
            "sluice_gateway_overhead_seconds",
            "Time that the gateway itself added to a call, waiting excluded.",
            _SHORT,
            "endpoint",
        )
        self.duration, self.time_to_first_token, self.time_per_output_token, self.token_usage = (
            one.histogram() for one in gen_ai.MEASURED
        )
        self.tokens = to.counter(
            "sluice_tokens",
            "Tokens as upstreams counted them; cached_input, cache_write and reasoning are parts of others.",
            *("model", "upstream", "type"),
        )
        self.cost = to.counter(
            "sluice_cost_usd",
            "Dollars that calls have cost, as far as prices are known.",
            *("model", "upstream", "key"),
        )
        self.unpriced = to.counter(
            "sluice_unpriced_attempts",
            "Calls to upstreams that used something whose price is not known.",
            *("model", "upstream"),
        )
        self.estimated = to.counter(
            "sluice_usage_estimated_attempts",
            "Calls to upstreams that told no usage, so that it is estimated.",
            *("model", "upstream"),
        )
        self.truncated = to.counter(
            "sluice_truncated_responses",
            "Answers cut short, by what they met: the cap on the output or the context window.",
            *("model", "cause"),
        )


class _DecisionMetrics:
    """What was decided for calls: limits, estimates, routes, overflows, retries, fallbacks."""

    def _make_decisions(self, to: _Maker) -> None:
        self.limit_rejections = to.counter(
            "sluice_limit_rejections", "Calls refused for a limit of their key.", "key", "limit"
        )
        self.estimate_ratio = to.histogram(
            "sluice_token_estimate_ratio",
            "Input tokens as the upstream counted them, divided by the estimate made at the door.",
            _RATIO,
            "model",
        )
        self.overflows = to.counter(
            "sluice_context_overflows",
            "Calls that did not fit a context window, by what became of them.",
            *("model", "action"),
        )
        self.routing_decisions = to.counter(
            "sluice_routing_decisions",
            "Candidates picked for calls of models with a route, by what decided.",
            *("model", "upstream", "reason"),
        )
        self.cascades = to.counter(
            "sluice_cascade_requests",
            "Calls of models with a cascade, by what became of the cheap answer.",
            *("model", "result"),
        )
        self.attempts = to.counter(
            "sluice_upstream_attempts", "Attempts at upstreams, by result.", "upstream", "result"
        )
        self.retries = to.counter(
            "sluice_retries",
            "Extra calls to upstreams, by the upstream whose failure caused them and by that failure.",
            *("upstream", "reason"),
        )
        self.fallbacks = to.counter(
            "sluice_fallbacks", "Calls that went to a fallback model.", "from_model", "to_model"
        )


class _QueueMetrics:
    """Queues and batches."""

    def _make_waiting(self, to: _Maker) -> None:
        self.queue_wait = to.histogram(
            "sluice_upstream_queue_wait_seconds",
            "Time that calls waited in the gateway for a slot of an upstream or for its rate.",
            _SECONDS,
            "upstream",
        )
        self.batch_size = to.histogram(
            "sluice_batch_size",
            "Callers that shared an upstream call, of calls that could be shared.",
            _SIZES,
            *("model", "endpoint"),
        )
        self.batch_wait = to.histogram(
            "sluice_batch_wait_seconds",
            "Time for which a call was held back to be merged, by what released it.",
            _HELD,
            *("model", "flush_reason"),
        )
        self.batch_wasted = to.counter(
            "sluice_batch_wasted_tokens",
            "Input tokens, estimated, of callers that left after their batch had gone.",
            "model",
        )


class _CacheMetrics:
    """What is kept: answers in the cache."""

    def _make_kept(self, to: _Maker) -> None:
        self.cache_requests = to.counter(
            "sluice_cache_requests", "Calls for models with a cache, by what it did for them.", "result"
        )
        self.cache_saved_tokens = to.counter(
            "sluice_cache_saved_tokens",
            "Tokens that the answers of calls took which the cache spared an upstream.",
            *("model", "type"),
        )
        self.cache_saved_usd = to.counter(
            "sluice_cache_saved_usd", "Dollars that these answers cost, as far as prices are known.", "model"
        )
        self.cache_bytes = to.gauge("sluice_cache_bytes", "Bytes of answers in memory.", "livesum")
        self.cache_entries = to.gauge("sluice_cache_entries", "Answers kept in memory.", "livesum")


class _ProcessMetrics:
    """How the gateway itself is, and what it leans on."""

    @cached_property
    def redis_up(self) -> Gauge:
        """Made when there is a Redis: a worker's gauge is told as 0 from the moment it is made."""
        return Gauge(
            "sluice_redis_up",
            "1 while Redis answers in time, 0 while it does not; without redis there is no such series.",
            registry=None,
            multiprocess_mode="livemin",
        )

    def _make_itself(self, to: _Maker) -> None:
        self.redis_errors = to.counter("sluice_redis_errors", "What went wrong with Redis, by kind.", "kind")
        self.usage_errors = to.counter(
            "sluice_usage_write_errors",
            "Writes of usage that failed; what they had is kept and written again.",
        )
        self.log_dropped = to.counter(
            "sluice_log_lines_dropped", "Log lines that found no room while nobody took them."
        )
        build = to.gauge("sluice_build_info", "Always 1; the label tells the version.", "max", "version")
        build.labels(__version__).set(1)


class Metrics(_RequestMetrics, _DecisionMetrics, _QueueMetrics, _CacheMetrics, _ProcessMetrics):
    """The series of one process; `registry` is what the admin port exposes."""

    def __init__(self, provider: Callable[[str], str] = lambda upstream: upstream) -> None:
        """`provider(upstream)` is OpenTelemetry's name of what an upstream is."""
        self.registry = CollectorRegistry()
        to = _Maker(self.registry)
        self._make_calls(to)
        self._make_decisions(to)
        self._make_waiting(to)
        self._make_kept(to)
        self._make_itself(to)
        measured = (self.duration, self.time_to_first_token, self.time_per_output_token, self.token_usage)
        self.registry.register(
            gen_ai.SemconvCollector(lambda: (one for each in measured for one in each.collect()), provider)
        )


def fast_inc(child: Counter) -> Callable[[float], None]:
    """What `child.inc` does, at a tenth of its cost."""
    return _adding(cast("Any", child)._value)


def fast_incs(family: Counter) -> Callable[..., Callable[[float], None]]:
    """Gives the adder for these labels; each is looked up once and kept, for their sets are closed."""
    return lru_cache(maxsize=None)(lambda *labels: fast_inc(family.labels(*labels)))


def counter(family: Counter) -> Callable[..., None]:
    """Counts one for these labels."""
    child = fast_incs(family)
    return lambda *labels: child(*labels)(1)


def fast_observe(histogram: Histogram) -> Callable[[float], None]:
    """What `histogram.observe` does, at a tenth of its cost: the bucket is looked up and not walked to.

    prometheus-client keeps a bucket for what lies between two bounds, and the sum.
    """
    inside = cast("Any", histogram)
    bounds, total, buckets = inside._upper_bounds, inside._sum, inside._buckets
    if isinstance(total, MutexValue):

        def observe(value: float) -> None:
            total._value += value
            buckets[bisect_left(bounds, value)]._value += 1

        return observe
    add, counts = _adding(total), [_adding(bucket) for bucket in buckets]

    def observe_mapped(value: float) -> None:
        add(value)
        counts[bisect_left(bounds, value)](1)

    return observe_mapped


def fast_observes(family: Histogram) -> Callable[..., Callable[[float], None]]:
    """Gives the observer for these labels; each is looked up once."""
    return lru_cache(maxsize=None)(lambda *labels: fast_observe(family.labels(*labels)))


def _adding(value: Any) -> Callable[[float], None]:
    """Adds to one of the library's values, past its lock.

    All that count are on one event loop, and so is whoever asks for the figures; with several workers a value
    is a place in a file that is mapped into memory, and is written whole. The names are the library's own:
    tests compare what is exposed with what it would have exposed itself. Whatever is added to in this way
    must never be added to in another.
    """
    if isinstance(value, MutexValue):

        def add(amount: float) -> None:
            value._value += amount

        return add
    file = value._file
    cells, at = memoryview(file._m).cast("d"), file._positions[value._key] // 8

    def add_mapped(amount: float) -> None:
        cells[at] += amount

    return add_mapped
