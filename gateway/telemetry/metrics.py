"""The gateway's metrics with their labels and buckets.

Labels come from closed sets (names in the config and tables in `core.errors`); any name made up by a client
counts as `other`. Gauges computed at scrape time are in `collectors`. Five series are measured as
OpenTelemetry histograms and exported under two names, see `semconv`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from gateway import __version__
from gateway.telemetry import semconv

OTHER: Final = "other"
BREAKER: Final = ("closed", "half-open", "open")

# A `_created` series next to each counter would double their number without any use.
_disable: Callable[[], None] = disable_created_metrics  # untyped there
_disable()

# Up to 600 s, the default timeout of a call; finer where users notice.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300, 600)
_SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_HELD: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RATIO: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4)


class _Factory:
    """Creates metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def histogram(self, name: str, help_text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, help_text, labels, buckets=buckets, registry=self.registry)

    def gauge(self, name: str, help_text: str, mode: Any, *labels: str) -> Gauge:
        """`mode`: how the gauges of several workers are combined."""
        return Gauge(name, help_text, labels, registry=self.registry, multiprocess_mode=mode)


class _RequestMetrics:
    """Requests, their durations, tokens and cost."""

    def _make_calls(self, to: _Factory) -> None:
        self.requests = to.counter(
            "sluice_requests",
            "Client requests, by final status and outcome.",
            *("model", "endpoint", "status", "outcome"),
        )
        self.overhead = to.histogram(
            "sluice_gateway_overhead_seconds",
            "Time that the gateway itself added to a call, without queueing.",
            _SHORT,
            "endpoint",
        )
        self.duration, self.time_to_first_token, self.time_per_output_token, self.token_usage = (
            shared.histogram() for shared in semconv.MEASURED
        )
        self.tokens = to.counter(
            "sluice_tokens",
            "Tokens as the usage ledger books them. Input includes cached_input and cache_write, output reasoning.",
            *("model", "upstream", "type", "source"),
        )
        self.cost = to.counter(
            "sluice_cost_usd",
            "Cost of calls in dollars, as far as prices are known.",
            *("model", "upstream", "key"),
        )
        self.unpriced = to.counter(
            "sluice_unpriced_attempts",
            "Attempts at upstreams that used tokens of unknown price.",
            *("model", "upstream"),
        )
        self.estimated = to.counter(
            "sluice_usage_estimated_attempts",
            "Attempts at upstreams that reported no usage, so that it is estimated.",
            *("model", "upstream"),
        )
        self.truncated = to.counter(
            "sluice_truncated_responses",
            "Answers cut short, by cause: the output cap or the context window.",
            *("model", "cause"),
        )


class _DecisionMetrics:
    """Decisions made for calls: limits, estimates, routing, overflows, retries, fallbacks."""

    def _make_decisions(self, to: _Factory) -> None:
        self.limit_rejections = to.counter(
            "sluice_limit_rejections", "Requests rejected because of a limit of their key.", "key", "limit"
        )
        self.estimate_ratio = to.histogram(
            "sluice_token_estimate_ratio",
            "Input tokens reported by the upstream, divided by the gateway's estimate.",
            _RATIO,
            "model",
        )
        self.overflows = to.counter(
            "sluice_context_overflows",
            "Requests that did not fit a context window, by the action taken.",
            *("model", "action"),
        )
        self.routing_decisions = to.counter(
            "sluice_routing_decisions",
            "Candidates picked by a routing strategy, by the reason.",
            *("model", "upstream", "reason"),
        )
        self.cascades = to.counter(
            "sluice_cascade_requests",
            "Requests for models with a cascade, by the fate of the cheap answer.",
            *("model", "result"),
        )
        self.attempts = to.counter(
            "sluice_upstream_attempts", "Attempts at upstreams, by result.", "upstream", "result"
        )
        self.retries = to.counter(
            "sluice_retries",
            "Extra attempts, by the upstream whose failure caused them and by that failure.",
            *("upstream", "reason"),
        )
        self.fallbacks = to.counter("sluice_fallbacks", "Requests sent to a fallback model.", "from_model", "to_model")


class _QueueMetrics:
    """Queues and batches."""

    def _make_waiting(self, to: _Factory) -> None:
        self.queue_wait = to.histogram(
            "sluice_upstream_queue_wait_seconds",
            "Time that calls waited in the gateway for an upstream's concurrency slot or rate limit.",
            _SECONDS,
            "upstream",
        )
        self.batch_size = to.histogram(
            "sluice_batch_size",
            "Callers per upstream call, for calls that can be shared.",
            _SIZES,
            *("model", "endpoint"),
        )
        self.batch_wait = to.histogram(
            "sluice_batch_wait_seconds",
            "Time that a call was held back for batching, by the reason of the flush.",
            _HELD,
            *("model", "flush_reason"),
        )
        self.batch_wasted = to.counter(
            "sluice_batch_wasted_tokens",
            "Estimated input tokens of callers that disconnected after their batch was sent.",
            "model",
        )


class _CacheMetrics:
    """The cache of answers."""

    def _make_cache(self, to: _Factory) -> None:
        self.cache_requests = to.counter(
            "sluice_cache_requests", "Requests for models with a cache, by the cache's result.", "result"
        )
        self.cache_saved_tokens = to.counter(
            "sluice_cache_saved_tokens",
            "Tokens that cache hits and collapsed requests did not use again.",
            *("model", "type"),
        )
        self.cache_saved_usd = to.counter(
            "sluice_cache_saved_usd", "Dollars that the cache saved, as far as prices are known.", "model"
        )
        self.cache_bytes = to.gauge("sluice_cache_bytes", "Bytes of cached answers in memory.", "livesum")
        self.cache_entries = to.gauge("sluice_cache_entries", "Cached answers in memory.", "livesum")


class _ProcessMetrics:
    """The state of the gateway itself, and of Redis."""

    @cached_property
    def redis_up(self) -> Gauge:
        """Created only if Redis is configured: a worker's gauge is exported as 0 as soon as it exists."""
        return Gauge(
            "sluice_redis_up",
            "1 while Redis answers in time, 0 while it does not. Absent without redis.",
            registry=None,
            multiprocess_mode="livemin",
        )

    @cached_property
    def batch_job_lines(self) -> Gauge:
        """Like those below created only if batches are enabled. Every worker sees the same batches."""
        return Gauge(
            "sluice_batch_job_lines",
            "Lines of the batches that have not ended, by state: waiting, under_way, completed, failed.",
            ["state"],
            registry=None,
            multiprocess_mode="livemax",
        )

    @cached_property
    def batch_job_age(self) -> Gauge:
        """See `batch_job_lines`."""
        return Gauge(
            "sluice_batch_job_age_seconds",
            "Age of the oldest batch that has not ended.",
            registry=None,
            multiprocess_mode="livemax",
        )

    @cached_property
    def batch_jobs_late(self) -> Gauge:
        """See `batch_job_lines`."""
        return Gauge(
            "sluice_batch_jobs_late",
            "Batches that will miss their completion window if they go on at their pace so far.",
            registry=None,
            multiprocess_mode="livemax",
        )

    def _make_itself(self, to: _Factory) -> None:
        self.redis_errors = to.counter("sluice_redis_errors", "Redis errors, by kind.", "kind")
        self.usage_errors = to.counter(
            "sluice_usage_write_errors",
            "Failed writes of usage. Their data is held and written again.",
        )
        self.log_dropped = to.counter(
            "sluice_log_lines_dropped", "Log lines dropped because stderr was not read in time."
        )
        build = to.gauge("sluice_build_info", "Always 1. The label is the version.", "max", "version")
        build.labels(__version__).set(1)


class Metrics(_RequestMetrics, _DecisionMetrics, _QueueMetrics, _CacheMetrics, _ProcessMetrics):
    """The metrics of one process; the admin port exposes `registry`."""

    def __init__(self, provider: Callable[[str], str] = lambda upstream: upstream) -> None:
        """`provider(upstream)` is the `gen_ai.provider.name` of an upstream."""
        self.registry = CollectorRegistry()
        to = _Factory(self.registry)
        self._make_calls(to)
        self._make_decisions(to)
        self._make_waiting(to)
        self._make_cache(to)
        self._make_itself(to)
        shared = (self.duration, self.time_to_first_token, self.time_per_output_token, self.token_usage)
        self.registry.register(
            semconv.SemconvCollector(lambda: chain.from_iterable(each.collect() for each in shared), provider)
        )
