"""What stands below the operator's first screen: a row of panels for each part of the gateway."""

from typing import Any, Final

from grafana import engines
from grafana.panels import BAD, GOOD, WARN, Placed, Query, lines, states
from grafana.promql import BOTH, KEY, MODEL, UPSTREAM, mean, quantile, rate

_REQUESTS: Final = "sluice_requests_total"
_WAIT: Final = "sluice_queue_wait_seconds"


def rows() -> list[tuple[str, list[Placed]]]:
    """Heading and panels of each."""
    return [
        ("Outcomes", _outcomes()),
        ("Latency", _latency()),
        ("Queue and places", _queue()),
        ("Breaker, retries, fallbacks, routes", _upstreams()),
        ("The engines' own numbers, beside ours", engines.panels()),
        ("Batches", _batches()),
        ("Cache", _cache()),
        ("Limits and estimates", _limits()),
        ("The gateway itself", _itself()),
    ]


def _rates(title: str, series: str, where: str, by: str, unit: str = "reqps", **more: Any) -> Placed:
    """A counter's growth a second, a line for each value of the labels `by`."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return lines(title, [Query(rate(series, where, by), legend)], unit=unit, **more)


def _times(title: str, histogram: str, where: str, by: str = "", **more: Any) -> Placed:
    """Half and hundredth slowest: a pair of lines for each value of the label `by`."""
    label = f"{{{{{by}}}}} " if by else ""
    both = [Query(quantile(q, histogram, where, by), f"{label}p{round(q * 100)}") for q in (0.5, 0.99)]
    return lines(title, both, unit="s", **more)


def _median(title: str, histogram: str, where: str, by: str, **more: Any) -> Placed:
    return lines(title, [Query(quantile(0.5, histogram, where, by), f"{{{{{by}}}}}")], **more)


def _outcomes() -> list[Placed]:
    return [
        _rates("Calls by outcome", _REQUESTS, MODEL, "outcome", stacked=True),
        _rates("Calls by model", _REQUESTS, MODEL, "model", stacked=True),
        _rates("Calls by status, but 200", _REQUESTS, f'status!="200",{MODEL}', "status", stacked=True),
    ]


def _latency() -> list[Placed]:
    slowest = quantile(0.99, "sluice_request_duration_seconds", MODEL, "model")
    return [
        lines("Whole call by model, p99", [Query(slowest, "{{model}}")], unit="s"),
        _times("First token by upstream", "sluice_time_to_first_token_seconds", BOTH, "upstream"),
        _times("Time for each output token", "sluice_time_per_output_token_seconds", BOTH, "upstream"),
        _times(
            "Gateway's own time",
            "sluice_overhead_seconds",
            "",
            tells="Waiting excluded; all calls, whatever the filters.",
        ),
        _median("Prompt tokens of a call, median", "sluice_prompt_tokens", MODEL, "model"),
        _median("Output tokens of a call, median", "sluice_output_tokens", MODEL, "model"),
    ]


def _queue() -> list[Placed]:
    taken = f"sum by (upstream) (sluice_inflight{{{UPSTREAM}}})"
    places = f"sum by (upstream) (sluice_max_concurrency{{{UPSTREAM}}})"
    waiting = f"sum by (upstream) (sluice_queue_depth{{{UPSTREAM}}})"
    oldest = f"max by (upstream) (sluice_queue_oldest_seconds{{{UPSTREAM}}})"
    return [
        lines(
            "Places taken",
            [Query(f"{taken} / {places}", "{{upstream}}")],
            unit="percentunit",
            width=6,
            tells="Calls in flight, as a part of max_concurrency. At 100 % calls wait here.",
        ),
        lines("Waiting in the gateway", [Query(waiting, "{{upstream}}")], width=6),
        lines("Oldest that waits", [Query(oldest, "{{upstream}}")], unit="s", width=6),
        _times("Wait of those that have gone on", _WAIT, UPSTREAM, "upstream", width=6),
    ]


def _upstreams() -> list[Placed]:
    breaker = f"max by (upstream) (sluice_breaker_state{{{UPSTREAM}}})"
    return [
        states(
            "Breaker",
            Query(breaker, "{{upstream}}"),
            [("closed", GOOD), ("half-open", WARN), ("open", BAD)],
        ),
        _rates(
            "Calls to upstreams by verdict", "sluice_upstream_attempts_total", UPSTREAM, "upstream, verdict"
        ),
        _rates("Retries, by what caused them", "sluice_retries_total", UPSTREAM, "upstream, reason"),
        _rates(
            "Fallbacks: from model, to model",
            "sluice_fallbacks_total",
            'from_model=~"$model"',
            "from_model, to_model",
        ),
        _rates("Routes: model, upstream, reason", "sluice_routed_total", BOTH, "model, upstream, reason"),
        _rates("Cascades: model, result", "sluice_cascade_total", MODEL, "model, result"),
        lines(
            "Too long, or cut short",
            [
                Query(
                    rate("sluice_context_overflows_total", MODEL, "model, action"),
                    "{{model}} did not fit: {{action}}",
                ),
                Query(
                    rate("sluice_finish_length_total", MODEL, "model, cause"),
                    "{{model}} cut by: {{cause}}",
                ),
            ],
            unit="reqps",
        ),
    ]


def _batches() -> list[Placed]:
    size, wait = "sluice_batch_size", "sluice_batch_wait_seconds"
    return [
        lines("Callers in a batch, mean", [Query(mean(size, MODEL, "model"), "{{model}}")], width=6),
        _rates("What released them", f"{wait}_count", MODEL, "release", stacked=True, width=6),
        _times("Held back for", wait, MODEL, "model", width=6),
        _rates("Tokens in vain", "sluice_batch_wasted_tokens_total", MODEL, "model", "short", width=6),
    ]


def _cache() -> list[Placed]:
    return [
        _rates("What the cache did", "sluice_cache_requests_total", "", "result", stacked=True),
        lines("Answers kept in memory", [Query("sum(sluice_cache_entries)", "answers")]),
        lines("Memory they take", [Query("sum(sluice_cache_bytes)", "bytes")], unit="bytes"),
    ]


def _limits() -> list[Placed]:
    return [
        _rates("Refused by limits", "sluice_limit_rejections_total", KEY, "key, limit"),
        _median(
            "Input tokens, counted / estimated, median",
            "sluice_token_estimate_ratio",
            MODEL,
            "model",
            tells="1 is exact. Above 1 the estimate is too low.",
        ),
        _rates("Calls whose usage is estimated", "sluice_estimated_usage_total", BOTH, "model, upstream"),
    ]


def _itself() -> list[Placed]:
    generation = Query("max by (instance) (sluice_config_generation)", "{{instance}} generation")
    refused = Query("1 - min by (instance) (sluice_config_reload_success)", "{{instance}} refused")
    lost = [
        Query(rate("sluice_usage_write_errors_total"), "writes of usage that failed"),
        Query(rate("sluice_log_lines_dropped_total"), "log lines dropped"),
    ]
    return [
        states(
            "Redis",
            Query("min by (instance) (sluice_redis_up)", "{{instance}}"),
            [("away", BAD), ("up", GOOD)],
            width=5,
        ),
        _rates("Trouble with Redis", "sluice_redis_errors_total", "", "kind", "ops", width=5),
        lines("Config in force, refused reloads", [generation, refused], width=5),
        lines("Writes and lines lost", lost, unit="ops", width=5),
        lines(
            "Gateways by version",
            [Query("count by (version) (sluice_build_info)", "{{version}}")],
            width=4,
        ),
    ]
