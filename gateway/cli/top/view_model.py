"""The rows that the screen shows, made from the admin port's answers; no screen and no clock in here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.cli.top.samples import Series
from gateway.core.units import parse_usd

_FIRST_TOKEN: Final = "sluice_time_to_first_token_seconds"
_DURATION: Final = "sluice_request_duration_seconds"
_WAIT: Final = "sluice_upstream_queue_wait_seconds"


class UpstreamView(msgspec.Struct, frozen=True):
    """What `/admin/upstreams` tells of one."""

    state: str
    in_flight: int
    waiting: int
    breaker: str


class Used(msgspec.Struct, frozen=True):
    """One row of `/admin/usage`, as far as it is shown."""

    day: str
    key: str
    model: str
    requests: int
    input: int
    output: int
    cost_usd: str


class CacheView(NamedTuple):
    """What the admin port has said. `usage_note` tells why there is no usage."""

    series: Series
    ready: str
    upstreams: Mapping[str, UpstreamView]
    usage: Sequence[Used]
    usage_note: str


class CounterRow(NamedTuple):
    """Something that is counted: so many a second of late, so many since the gateway's start."""

    what: tuple[str, ...]
    rate: float
    total: float


class ModelRow(NamedTuple):
    """One public model; seconds, tokens a second, None where nothing was seen."""

    name: str
    rate: float
    first_token: tuple[float | None, float | None]
    duration: tuple[float | None, float | None]
    input_rate: float
    output_rate: float


class UpstreamRow(NamedTuple):
    """One upstream; `wait` in seconds."""

    name: str
    state: str
    breaker: str
    in_flight: int
    waiting: int
    rate: float
    failed: float
    retries: float
    wait: tuple[float | None, float | None]


class BatchRow(NamedTuple):
    """The calls of one model that can be merged; `releases` are shares by reason."""

    model: str
    rate: float
    size: float | None
    releases: dict[str, float]


class SpendRow(NamedTuple):
    """One key's use of one model today; `nanos` are nano-dollars."""

    key: str
    model: str
    requests: int
    input: int
    output: int
    nanos: int


class Screen(NamedTuple):
    """All that one screen shows. `seconds` is the time that rates are of, 0 where there are none yet."""

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


def view_model(answers: CacheView, growth: Series, seconds: float, observed: Series) -> Screen:
    """The rows. `growth` within `seconds` makes the rates, `observed` the latencies and the batches."""
    now = answers.series
    make = _Maker(now, growth, seconds, observed)
    (version, *_) = [*now.by("version", "sluice_build_info"), "?"]
    return Screen(
        version,
        answers.ready,
        int(now.total("sluice_config_generation")),
        now.has("sluice_config_reload_success") and not now.total("sluice_config_reload_success"),
        bool(now.total("sluice_redis_up")) if now.has("sluice_redis_up") else None,
        seconds,
        make.counted("sluice_requests_total", "outcome"),
        make.models(),
        make.upstreams(answers.upstreams),
        make.batches(),
        make.counted("sluice_limit_rejections_total", "key", "limit"),
        make.counted("sluice_fallbacks_total", "from_model", "to_model"),
        make.counted("sluice_redis_errors_total", "kind"),
        make.counted("sluice_routing_decisions_total", "model", "upstream", "reason"),
        make.counted("sluice_cache_requests_total", "result"),
        hit_rate(observed.by("result", "sluice_cache_requests_total")),
        now.total("sluice_cache_saved_usd_total"),
        spend(answers.usage),
        answers.usage_note,
    )


class _Maker:
    def __init__(self, now: Series, growth: Series, seconds: float, observed: Series) -> None:
        self._now, self._growth, self._seconds, self._observed = now, growth, seconds, observed

    def rate(self, name: str, **labels: str) -> float:
        return self._growth.total(name, **labels) / self._seconds if self._seconds else 0.0

    def counted(self, name: str, *labels: str) -> list[CounterRow]:
        """The busiest first; what has never happened is left out."""
        seen = defaultdict[tuple[str, ...], float](float)
        for (own, pairs), value in self._now.values.items():
            if own == name:
                seen[tuple(dict(pairs).get(label, "") for label in labels)] += value
        rows = [
            CounterRow(what, self.rate(name, **dict(zip(labels, what, strict=True))), total)
            for what, total in seen.items()
            if total
        ]
        return sorted(rows, key=lambda row: (-row.rate, -row.total, row.what))

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

    def upstreams(self, seen: Mapping[str, UpstreamView]) -> list[UpstreamRow]:
        rows = []
        for name, one in seen.items():
            results = self._growth.by("result", "sluice_upstream_attempts_total", upstream=name)
            failed = sum(count for result, count in results.items() if result not in ("success", "ignore"))
            rows.append(
                UpstreamRow(
                    name,
                    one.state,
                    one.breaker,
                    one.in_flight,
                    one.waiting,
                    self.rate("sluice_upstream_attempts_total", upstream=name),
                    failed / self._seconds if self._seconds else 0.0,
                    self.rate("sluice_retries_total", upstream=name),
                    self._spread(_WAIT, upstream=name),
                )
            )
        return rows

    def batches(self) -> list[BatchRow]:
        rows = []
        for model in self._now.by("model", "sluice_batch_size_count"):
            releases = self._observed.by("flush_reason", "sluice_batch_wait_seconds_count", model=model)
            whole = sum(releases.values())
            rows.append(
                BatchRow(
                    model,
                    self.rate("sluice_batch_size_count", model=model),
                    self._observed.mean("sluice_batch_size", model=model),
                    {reason: count / whole for reason, count in sorted(releases.items()) if count},
                )
            )
        return rows

    def _spread(self, histogram: str, **labels: str) -> tuple[float | None, float | None]:
        return (
            self._observed.quantile(0.5, histogram, **labels),
            self._observed.quantile(0.99, histogram, **labels),
        )


def hit_rate(results: Mapping[str, float]) -> float | None:
    """Hits among the calls that could have been some; None of none."""
    asked = sum(results.get(result, 0.0) for result in ("hit", "miss", "collapsed"))
    return results.get("hit", 0.0) / asked if asked else None


def spend(usage: Sequence[Used]) -> list[SpendRow]:
    """Of the newest day only, upstreams put together; the dearest first. ValueError for what is no amount."""
    newest = max((row.day for row in usage), default="")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in usage:
        if row.day == newest:
            numbers = row.requests, row.input, row.output, parse_usd(row.cost_usd)
            before = sums[row.key, row.model]
            sums[row.key, row.model] = [a + b for a, b in zip(before, numbers, strict=True)]
    rows = [SpendRow(*who, *numbers) for who, numbers in sums.items()]
    return sorted(rows, key=lambda row: (-row.nanos, -row.requests, row.key, row.model))
