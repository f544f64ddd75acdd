"""The rows of the screen, made from the admin port's answers, without I/O or a clock."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.cli.top.samples import Series
from gateway.core.units import parse_usd

_FIRST_TOKEN: Final = "sluice_time_to_first_token_seconds"
_DURATION: Final = "sluice_request_duration_seconds"
_WAIT: Final = "sluice_upstream_queue_wait_seconds"

METRICS: Final = (
    _FIRST_TOKEN,
    _DURATION,
    _WAIT,
    "sluice_build_info",
    "sluice_config_generation",
    "sluice_config_reload_success",
    "sluice_redis_up",
    "sluice_requests_total",
    "sluice_limit_rejections_total",
    "sluice_fallbacks_total",
    "sluice_redis_errors_total",
    "sluice_routing_decisions_total",
    "sluice_cache_requests_total",
    "sluice_cache_saved_usd_total",
    "sluice_tokens_total",
    "sluice_upstream_attempts_total",
    "sluice_retries_total",
    "sluice_batch_size",
    "sluice_batch_wait_seconds",
    "sluice_batch_job_lines",
    "sluice_batch_job_age_seconds",
)
"""The metrics that the screen is made from."""


class UpstreamView(msgspec.Struct, frozen=True):
    """One upstream in `/admin/upstreams`."""

    state: str
    in_flight: int
    waiting: int
    breaker: str
    last_error: Mapping[str, str] | None = None


class UsedRow(msgspec.Struct, frozen=True):
    """One row of `/admin/usage`, as far as the screen shows it."""

    day: str
    key: str
    model: str
    requests: int
    input: int
    output: int
    cost_usd: str


class AdminAnswers(NamedTuple):
    """The answers of the admin port. `usage_note` says why there is no usage."""

    series: Series
    ready: str
    upstreams: Mapping[str, UpstreamView]
    usage: Sequence[UsedRow]
    usage_note: str


class CounterRow(NamedTuple):
    """A counter by its labels: its recent rate per second, and its total since the gateway's start."""

    labels: tuple[str, ...]
    rate: float
    total: float


class ModelRow(NamedTuple):
    """One public model: rates per second, latencies (p50, p99) in seconds or None."""

    name: str
    rate: float
    first_token: tuple[float | None, float | None]
    duration: tuple[float | None, float | None]
    input_rate: float
    output_rate: float


class UpstreamRow(NamedTuple):
    """One upstream; `wait` (p50, p99) in seconds."""

    name: str
    state: str
    breaker: str
    in_flight: int
    waiting: int
    rate: float
    failed: float
    retries: float
    wait: tuple[float | None, float | None]
    last_error: tuple[str, str] | None = None
    """When an attempt failed last (ISO 8601), and why."""


class BatchRow(NamedTuple):
    """The batches of one model; `flushes` are shares by flush reason."""

    model: str
    rate: float
    size: float | None
    flushes: dict[str, float]


class BatchJobsRow(NamedTuple):
    """The lines of the batch jobs that have not ended, and the seconds since the oldest was made."""

    waiting: int
    under_way: int
    completed: int
    failed: int
    age_s: float


class SpendRow(NamedTuple):
    """One key's usage of one model today; `nanos` are nano-dollars."""

    key: str
    model: str
    requests: int
    input: int
    output: int
    nanos: int


class Screen(NamedTuple):
    """Everything on the screen. Rates cover the last `seconds`; 0 if there are none yet."""

    version: str
    ready: str
    generation: int
    reload_refused: bool
    redis_up: bool | None
    seconds: float
    outcomes: list[CounterRow]
    models: list[ModelRow]
    upstreams: list[UpstreamRow]
    batches: list[BatchRow]
    limits: list[CounterRow]
    fallbacks: list[CounterRow]
    redis_errors: list[CounterRow]
    routed: list[CounterRow]
    cache: list[CounterRow]
    hit_rate: float | None
    saved_usd: float
    spend: list[SpendRow]
    usage_note: str
    batch_jobs: BatchJobsRow | None = None
    """None while there are none."""


def without_zeroes(view: Screen) -> Screen:
    """The screen without the rows in which nothing has happened lately and nothing waits.

    Outcomes are few, and stay: whoever looks after a failed request looks for it here.
    """
    upstreams = [
        row
        for row in view.upstreams
        if row.rate
        or row.failed
        or row.in_flight
        or row.waiting
        or row.state in ("down", "failing")
        or row.breaker != "closed"
    ]
    return view._replace(
        models=[row for row in view.models if row.rate],
        upstreams=upstreams,
        batches=[row for row in view.batches if row.rate],
        limits=_moving(view.limits),
        fallbacks=_moving(view.fallbacks),
        redis_errors=_moving(view.redis_errors),
        routed=_moving(view.routed),
        cache=_moving(view.cache),
        spend=[row for row in view.spend if row.requests],
    )


def _moving(rows: list[CounterRow]) -> list[CounterRow]:
    return [row for row in rows if row.rate]


def view_model(answers: AdminAnswers, growth: Series, seconds: float, observed: Series) -> Screen:
    """The screen's rows: rates from `growth` within `seconds`, latencies and batches from `observed`."""
    now = answers.series
    rows = _RowBuilder(now, growth, seconds, observed)
    (version, *_) = [*now.by("version", "sluice_build_info"), "?"]
    return Screen(
        version,
        answers.ready,
        int(now.total("sluice_config_generation")),
        now.has("sluice_config_reload_success") and not now.total("sluice_config_reload_success"),
        bool(now.total("sluice_redis_up")) if now.has("sluice_redis_up") else None,
        seconds,
        rows.counted("sluice_requests_total", "outcome"),
        rows.models(),
        rows.upstreams(answers.upstreams),
        rows.batches(),
        rows.counted("sluice_limit_rejections_total", "key", "limit"),
        rows.counted("sluice_fallbacks_total", "from_model", "to_model"),
        rows.counted("sluice_redis_errors_total", "kind"),
        rows.counted("sluice_routing_decisions_total", "model", "upstream", "reason"),
        rows.counted("sluice_cache_requests_total", "result"),
        hit_rate(observed.by("result", "sluice_cache_requests_total")),
        now.total("sluice_cache_saved_usd_total"),
        spend(answers.usage),
        answers.usage_note,
        batch_jobs(now),
    )


def batch_jobs(now: Series) -> BatchJobsRow | None:
    """The batch jobs that have not ended; None if there are none."""
    lines = now.by("state", "sluice_batch_job_lines")
    counts = {state: int(lines.get(state, 0)) for state in ("waiting", "under_way", "completed", "failed")}
    age_s = now.total("sluice_batch_job_age_seconds")
    return BatchJobsRow(**counts, age_s=age_s) if age_s else None


class _RowBuilder:
    def __init__(self, now: Series, growth: Series, seconds: float, observed: Series) -> None:
        self._now, self._growth, self._seconds, self._observed = now, growth, seconds, observed

    def rate(self, name: str, **labels: str) -> float:
        return self._growth.total(name, **labels) / self._seconds if self._seconds else 0.0

    def counted(self, name: str, *labels: str) -> list[CounterRow]:
        """The busiest first, without counters that are 0."""
        totals = defaultdict[tuple[str, ...], float](float)
        for (series_name, pairs), value in self._now.values.items():
            if series_name == name:
                totals[tuple(dict(pairs).get(label, "") for label in labels)] += value
        rows = [
            CounterRow(values, self.rate(name, **dict(zip(labels, values, strict=True))), total)
            for values, total in totals.items()
            if total
        ]
        return sorted(rows, key=lambda row: (-row.rate, -row.total, row.labels))

    def models(self) -> list[ModelRow]:
        rows = [
            ModelRow(
                name,
                self.rate("sluice_requests_total", model=name),
                self._spread(_FIRST_TOKEN, model=name),
                self._spread(_DURATION, model=name),
                self.rate("sluice_tokens_total", model=name, type="input"),
                self.rate("sluice_tokens_total", model=name, type="output"),
            )
            for name in self._now.by("model", "sluice_requests_total")
        ]
        return sorted(rows, key=lambda row: (-row.rate, row.name))

    def upstreams(self, views: Mapping[str, UpstreamView]) -> list[UpstreamRow]:
        rows = []
        for name, view in views.items():
            results = self._growth.by("result", "sluice_upstream_attempts_total", upstream=name)
            failed = sum(count for result, count in results.items() if result not in ("success", "ignore"))
            rows.append(
                UpstreamRow(
                    name,
                    view.state,
                    view.breaker,
                    view.in_flight,
                    view.waiting,
                    self.rate("sluice_upstream_attempts_total", upstream=name),
                    failed / self._seconds if self._seconds else 0.0,
                    self.rate("sluice_retries_total", upstream=name),
                    self._spread(_WAIT, upstream=name),
                    (error.get("at", ""), error.get("message", "")) if (error := view.last_error) else None,
                )
            )
        return rows

    def batches(self) -> list[BatchRow]:
        rows = []
        for model in self._now.by("model", "sluice_batch_size_count"):
            flushes = self._observed.by("flush_reason", "sluice_batch_wait_seconds_count", model=model)
            total = sum(flushes.values())
            rows.append(
                BatchRow(
                    model,
                    self.rate("sluice_batch_size_count", model=model),
                    self._observed.mean("sluice_batch_size", model=model),
                    {reason: count / total for reason, count in sorted(flushes.items()) if count},
                )
            )
        return rows

    def _spread(self, histogram: str, **labels: str) -> tuple[float | None, float | None]:
        return (
            self._observed.quantile(0.5, histogram, **labels),
            self._observed.quantile(0.99, histogram, **labels),
        )


def hit_rate(results: Mapping[str, float]) -> float | None:
    """The share of hits among the cacheable requests; None without any."""
    requests = sum(results.get(result, 0.0) for result in ("hit", "miss", "collapsed"))
    return results.get("hit", 0.0) / requests if requests else None


def spend(usage: Sequence[UsedRow]) -> list[SpendRow]:
    """The rows of the newest day, upstreams added up, the most expensive first. ValueError for bad data."""
    newest = max((row.day for row in usage), default="")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in usage:
        if row.day == newest:
            numbers = row.requests, row.input, row.output, parse_usd(row.cost_usd)
            before = sums[row.key, row.model]
            sums[row.key, row.model] = [a + b for a, b in zip(before, numbers, strict=True)]
    rows = [SpendRow(*key, *numbers) for key, numbers in sums.items()]
    return sorted(rows, key=lambda row: (-row.nanos, -row.requests, row.key, row.model))
