"""Metrics of the engines themselves (vLLM, SGLang, llama.cpp) beside the gateway's view of them."""

from typing import Final

from grafana.panels import Placed, Query, lines
from grafana.promql import BOTH, UPSTREAM, quantile, rate

_RUNNING: Final = "vllm:num_requests_running or sglang:num_running_reqs or llamacpp:requests_processing"
_WAITING: Final = "vllm:num_requests_waiting or sglang:num_queue_reqs or llamacpp:requests_deferred"
_GENERATED: Final = "vllm:generation_tokens_total"
_LEGEND: Final = "engine {{instance}}"


def panels() -> list[Placed]:
    """The row of panels."""
    return [*_load(), *_speed()]


def _load() -> list[Placed]:
    ours = f"sum by (upstream) (sluice_upstream_inflight{{{UPSTREAM}}})"
    depth = f"sum by (upstream) (sluice_upstream_queue_depth{{{UPSTREAM}}})"
    hits, queries = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
    return [
        lines(
            "Running requests: engine and gateway",
            [Query(f"sum by (instance) ({_RUNNING})", _LEGEND), Query(ours, "sent to {{upstream}}")],
            width=6,
            description="An engine that runs more than the gateway has sent serves other clients too.",
        ),
        lines(
            "Queued requests: engine and gateway",
            [Query(f"sum by (instance) ({_WAITING})", _LEGEND), Query(depth, "gateway, for {{upstream}}")],
            width=6,
            description="The gateway cannot order requests that queue in the engine. If there are many, "
            "lower max_concurrency.",
        ),
        lines(
            "KV cache usage",
            [Query("max by (instance) (vllm:kv_cache_usage_perc or sglang:token_usage)", _LEGEND)],
            unit="percentunit",
            most=1,
            width=6,
            description="Near 100 % the engine preempts requests and repeats their work.",
        ),
        lines(
            "Prefix cache hit rate",
            [Query(f"{rate(hits, '', 'instance')} / {rate(queries, '', 'instance')}", _LEGEND)],
            unit="percentunit",
            most=1,
            width=6,
            description="Share of prompt tokens.",
        ),
    ]


def _speed() -> list[Placed]:
    ours = quantile(0.99, "sluice_time_to_first_token_seconds", BOTH, "upstream")
    tokens = rate("sluice_tokens_total", f'type="output",{BOTH}', "upstream")
    return [
        lines(
            "Time to first token, p99: engine and gateway",
            [
                Query(quantile(0.99, "vllm:time_to_first_token_seconds", "", "instance"), _LEGEND),
                Query(ours, "through {{upstream}}"),
            ],
            unit="s",
            width=6,
            description="The difference is the network between the two.",
        ),
        lines(
            "Engine queue time, p99",
            [Query(quantile(0.99, "vllm:request_queue_time_seconds", "", "instance"), _LEGEND)],
            unit="s",
            width=6,
        ),
        lines(
            "Preemptions",
            [Query(rate("vllm:num_preemptions_total", "", "instance"), _LEGEND)],
            unit="ops",
            width=6,
            description="Requests that the engine interrupted because its KV cache was full.",
        ),
        lines(
            "Output tokens per second: engine and gateway",
            [Query(rate(_GENERATED, "", "instance"), _LEGEND), Query(tokens, "from {{upstream}}")],
            width=6,
            description="The gateway counts a request's tokens when it ends.",
        ),
    ]
