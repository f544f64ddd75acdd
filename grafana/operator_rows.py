"""What stands below the operator's first screen: one row of panels for each part of the gateway."""

from typing import Any, Final

from grafana import engines
from grafana.panels import BAD, GOOD, WARN, Placed, Query, lines, states
from grafana.promql import BOTH, KEY, MODEL, UPSTREAM, mean, quantile, rate

_REQUESTS: Final = "sluice_requests_total"
_WAIT: Final = "sluice_upstream_queue_wait_seconds"


def rows() -> list[tuple[str, list[Placed]]]:
    """Heading and panels of each row."""
    return [
        ("Outcomes", _outcomes()),
        ("Latency", _latency()),
        ("Queue and concurrency", _queue()),
        ("Breakers, retries, fallbacks, routing", _upstreams()),
        ("Engine metrics", engines.panels()),
        ("Batching", _batching()),
        ("Batch jobs", _batch_jobs()),
        ("Cache", _cache()),
        ("Limits and estimates", _limits()),
        ("Gateway", _gateway()),
    ]


def _rates(title: str, series: str, where: str, by: str, unit: str = "reqps", **more: Any) -> Placed:
    """A counter's growth per second, one line for each value of the labels `by`."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return lines(title, [Query(rate(series, where, by), legend)], unit=unit, **more)


def _times(title: str, histogram: str, where: str, by: str = "", **more: Any) -> Placed:
    """Median and p99: two lines for each value of the label `by`."""
    label = f"{{{{{by}}}}} " if by else ""
    both = [Query(quantile(q, histogram, where, by), f"{label}p{round(q * 100)}") for q in (0.5, 0.99)]
    return lines(title, both, unit="s", **more)


def _median(title: str, histogram: str, where: str, by: str, **more: Any) -> Placed:
    return lines(title, [Query(quantile(0.5, histogram, where, by), f"{{{{{by}}}}}")], **more)


def _outcomes() -> list[Placed]:
    failed = f'status!="200",{MODEL}'
    return [
        _rates("Requests by outcome", _REQUESTS, MODEL, "outcome", stacked=True),
        _rates("Requests by model", _REQUESTS, MODEL, "model", stacked=True),
        _rates("Responses other than 200 by status", _REQUESTS, failed, "status", stacked=True),
    ]


def _latency() -> list[Placed]:
    slowest = quantile(0.99, "sluice_request_duration_seconds", MODEL, "model")
    return [
        lines("Request duration by model, p99", [Query(slowest, "{{model}}")], unit="s"),
        _times("Time to first token by upstream", "sluice_time_to_first_token_seconds", BOTH, "upstream"),
        _times("Time per output token by upstream", "sluice_time_per_output_token_seconds", BOTH, "upstream"),
        _times(
            "Gateway overhead",
            "sluice_gateway_overhead_seconds",
            "",
            description="Time in the queue excluded. All requests; the filters do not apply.",
        ),
        _median("Input tokens per request, median", "sluice_request_input_tokens", MODEL, "model"),
        _median("Output tokens per request, median", "sluice_response_output_tokens", MODEL, "model"),
    ]


def _queue() -> list[Placed]:
    taken = f"sum by (upstream) (sluice_upstream_inflight{{{UPSTREAM}}})"
    slots = f"sum by (upstream) (sluice_upstream_max_concurrency{{{UPSTREAM}}})"
    waiting = f"sum by (upstream) (sluice_upstream_queue_depth{{{UPSTREAM}}})"
    cache = f"max by (upstream, kind) (sluice_upstream_kv_tokens{{{UPSTREAM}}})"
    oldest = f"max by (upstream) (sluice_upstream_queue_oldest_wait_seconds{{{UPSTREAM}}})"
    return [
        lines(
            "Concurrency slots in use",
            [Query(f"{taken} / {slots}", "{{upstream}}")],
            unit="percentunit",
            width=6,
            description="In flight, as a share of max_concurrency. At 100 % requests queue in the gateway.",
        ),
        lines("Queue depth", [Query(waiting, "{{upstream}}")], width=6),
        lines("Oldest queued request", [Query(oldest, "{{upstream}}")], unit="s", width=6),
        _times("Queue wait", _WAIT, UPSTREAM, "upstream", width=6, description="Of requests that left the queue."),
        lines(
            "KV cache of engines",
            [Query(cache, "{{upstream}} {{kind}}")],
            description="Tokens: the cache's size, what the gateway's ledger holds of it, and the engine's own figure.",
        ),
    ]


def _upstreams() -> list[Placed]:
    breaker = f"max by (upstream) (sluice_upstream_breaker_state{{{UPSTREAM}}})"
    routing = "sluice_routing_decisions_total"
    return [
        states(
            "Circuit breaker",
            Query(breaker, "{{upstream}}"),
            [("closed", GOOD), ("half-open", WARN), ("open", BAD)],
        ),
        _rates("Attempts by result", "sluice_upstream_attempts_total", UPSTREAM, "upstream, result"),
        _rates("Retries by reason", "sluice_retries_total", UPSTREAM, "upstream, reason"),
        _rates(
            "Fallbacks: from model, to model",
            "sluice_fallbacks_total",
            'from_model=~"$model"',
            "from_model, to_model",
        ),
        _rates("Routing decisions by reason", routing, BOTH, "model, upstream, reason"),
        _rates("Cascades by result", "sluice_cascade_requests_total", MODEL, "model, result"),
        lines(
            "Context overflows and truncated responses",
            [
                Query(
                    rate("sluice_context_overflows_total", MODEL, "model, action"),
                    "{{model}} overflow: {{action}}",
                ),
                Query(
                    rate("sluice_truncated_responses_total", MODEL, "model, cause"),
                    "{{model}} truncated by: {{cause}}",
                ),
            ],
            unit="reqps",
        ),
    ]


def _batching() -> list[Placed]:
    size, wait = "sluice_batch_size", "sluice_batch_wait_seconds"
    return [
        lines(
            "Batch size, mean",
            [Query(mean(size, MODEL, "model"), "{{model}}")],
            width=6,
            description="Requests per upstream call, of requests that may share one.",
        ),
        _rates("Requests by flush reason", f"{wait}_count", MODEL, "flush_reason", stacked=True, width=6),
        _times("Batching delay", wait, MODEL, "model", width=6),
        _rates(
            "Wasted tokens",
            "sluice_batch_wasted_tokens_total",
            MODEL,
            "model",
            "short",
            width=6,
            description="Input tokens per second of clients that left after their batch was sent.",
        ),
    ]


def _batch_jobs() -> list[Placed]:
    # The workers and gateways that share batches all report the same ones.
    return [
        lines(
            "Lines by state",
            [Query("max by (state) (sluice_batch_job_lines)", "{{state}}")],
            stacked=True,
            description="Of the batches that have not ended.",
        ),
        lines("Age of the oldest batch", [Query("max(sluice_batch_job_age_seconds)", "age")], unit="s"),
        lines(
            "Batches that will be late",
            [Query("max(sluice_batch_jobs_late)", "late")],
            description="At their pace so far they miss their completion window.",
        ),
    ]


def _cache() -> list[Placed]:
    return [
        _rates("Requests by cache result", "sluice_cache_requests_total", "", "result", stacked=True),
        lines("Cached responses in memory", [Query("sum(sluice_cache_entries)", "responses")]),
        lines("Cache memory", [Query("sum(sluice_cache_bytes)", "bytes")], unit="bytes"),
    ]


def _limits() -> list[Placed]:
    estimated = "sluice_usage_estimated_attempts_total"
    return [
        _rates("Requests rejected by limits", "sluice_limit_rejections_total", KEY, "key, limit"),
        _median(
            "Input tokens, counted / estimated, median",
            "sluice_token_estimate_ratio",
            MODEL,
            "model",
            description="1 is exact. Above 1 the estimate is too low.",
        ),
        _rates("Attempts with estimated usage", estimated, BOTH, "model, upstream"),
    ]


def _gateway() -> list[Placed]:
    generation = Query("max by (instance) (sluice_config_generation)", "{{instance}} generation")
    refused = Query("1 - min by (instance) (sluice_config_reload_success)", "{{instance}} refused")
    lost = [
        Query(rate("sluice_usage_write_errors_total"), "usage write errors"),
        Query(rate("sluice_log_lines_dropped_total"), "log lines dropped"),
    ]
    return [
        states(
            "Redis",
            Query("min by (instance) (sluice_redis_up)", "{{instance}}"),
            [("down", BAD), ("up", GOOD)],
            width=5,
        ),
        _rates("Redis errors by kind", "sluice_redis_errors_total", "", "kind", "ops", width=5),
        lines("Config generation and refused reloads", [generation, refused], width=5),
        lines("Usage write errors and dropped log lines", lost, unit="ops", width=5),
        lines(
            "Gateways by version",
            [Query("count by (version) (sluice_build_info)", "{{version}}")],
            width=4,
        ),
    ]
