"""The gateway's metrics with their labels and buckets.

Labels come from closed sets (names in the config and tables in `core.errors`); any name made up by a client
counts as `other`. Gauges computed at scrape time are in `collectors`. Five series are measured as
OpenTelemetry histograms and exported under two names, see `semconv`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from gateway import __version__
from gateway.telemetry import exposition, semconv
from gateway.telemetry.exposition import GatheredGauge, Rows
from gateway.telemetry.series import Counter, Family, Gauge, Histogram, MemoryStore, SeriesStore

OTHER: Final = "other"
BREAKER: Final = ("closed", "half-open", "open")

# Up to 600 s, the default timeout of a call; finer where users notice.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300, 600)
_SHORT: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_HELD: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RATIO: Final = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4)


_F = TypeVar("_F", bound=Family)


class _Factory:
    """Creates families in one store."""

    def __init__(self, store: SeriesStore) -> None:
        self.store = store
        self.families: list[Family] = []

    def counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return self.added(Counter(name, help_text, labels, self.store))

    def histogram(self, name: str, help_text: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return self.added(Histogram(name, help_text, bounds, labels, self.store))

    def gauge(
        self, name: str, help_text: str, *labels: str, combine: Callable[[float, float], float] = float.__add__
    ) -> Gauge:
        return self.added(Gauge(name, help_text, labels, self.store, combine))

    def added(self, family: _F) -> _F:
        self.families.append(family)
        return family


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
            to.added(shared.histogram(to.store)) for shared in semconv.MEASURED
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
        self.cache_bytes = to.gauge("sluice_cache_bytes", "Bytes of cached answers in memory.")
        self.cache_entries = to.gauge("sluice_cache_entries", "Cached answers in memory.")
        self.cache_bytes.set(0)
        self.cache_entries.set(0)


class _ProcessMetrics:
    """The state of the gateway itself, and of Redis."""

    def _make_itself(self, to: _Factory) -> None:
        self.redis_up = to.gauge(
            "sluice_redis_up", "1 while Redis answers in time, 0 while it does not. Absent without redis.", combine=min
        )
        # Those of batches exist only if these are enabled. Every worker sees the same batches.
        self.batch_job_lines = to.gauge(
            "sluice_batch_job_lines",
            "Lines of the batches that have not ended, by state: waiting, under_way, completed, failed.",
            "state",
        )
        self.batch_job_age = to.gauge(
            "sluice_batch_job_age_seconds", "Age of the oldest batch that has not ended.", combine=max
        )
        self.batch_jobs_late = to.gauge(
            "sluice_batch_jobs_late",
            "Batches that will miss their completion window if they go on at their pace so far.",
            combine=max,
        )
        self.redis_errors = to.counter("sluice_redis_errors", "Redis errors, by kind.", "kind")
        self.usage_errors = to.counter(
            "sluice_usage_write_errors",
            "Failed writes of usage. Their data is held and written again.",
        )
        self.log_dropped = to.counter(
            "sluice_log_lines_dropped", "Log lines dropped because stderr was not read in time."
        )
        build = to.gauge("sluice_build_info", "Always 1. The label is the version.", "version", combine=max)
        build.set(1, __version__)


class Metrics(_RequestMetrics, _DecisionMetrics, _QueueMetrics, _CacheMetrics, _ProcessMetrics):
    """The metrics of one process; the admin port exposes them."""

    def __init__(
        self, provider: Callable[[str], str] = lambda upstream: upstream, store: SeriesStore | None = None
    ) -> None:
        """`provider(upstream)` is the `gen_ai.provider.name` of an upstream; `store` keeps the series."""
        self._provider = provider
        to = _Factory(store or MemoryStore())
        self._make_calls(to)
        self._make_decisions(to)
        self._make_waiting(to)
        self._make_cache(to)
        self._make_itself(to)
        self.families: Mapping[str, Family] = {family.name: family for family in to.families}

    def exposition(
        self,
        only: Collection[str] = (),
        *,
        rows: Callable[[Family], Rows] | None = None,
        gauges: Iterable[GatheredGauge] = (),
        openmetrics: bool = False,
    ) -> Iterator[str]:
        """Prometheus's text in pieces; new series may appear in between. An empty piece is a place to pause.

        `only`: the names of the families to expose, all if empty. `rows` returns what to expose of a family, by
        default the series of this process. `gauges` are exposed too.
        """
        read = rows or _own_rows
        for family in self.families.values():
            if isinstance(family, Histogram):
                for export in semconv.exports(family, self._provider):
                    if not only or export.name in only:
                        yield exposition.head(export.name, export.help_text, "histogram", openmetrics=openmetrics)
                        yield from exposition.histogram(export, read(family))
                continue
            name = f"{family.name}_total" if family.kind == "counter" else family.name
            if not only or name in only:
                series = list(read(family))
                if family.kind == "gauge" and not series:
                    continue
                yield exposition.head(family.name, family.help_text, family.kind, openmetrics=openmetrics)
                yield from exposition.simple(name, family.labels, series)
        for gauge in gauges:
            if not only or gauge.name in only:
                yield exposition.head(gauge.name, gauge.help_text, "gauge", openmetrics=openmetrics)
                values = ((labels, (value,)) for labels, value in gauge.rows)
                yield from exposition.simple(gauge.name, gauge.labels, values)
        if openmetrics:
            yield "# EOF\n"


def _own_rows(family: Family) -> Rows:
    for labels, series in list(family.series.items()):
        yield labels, series.cells
