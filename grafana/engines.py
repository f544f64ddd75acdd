"""What engines say of themselves, in vLLM's, SGLang's or llama.cpp's names, beside our view of them."""

from typing import Final

from grafana.panels import Placed, Query, lines
from grafana.promql import BOTH, UPSTREAM, quantile, rate

_RUNNING: Final = "vllm:num_requests_running or sglang:num_running_reqs or llamacpp:requests_processing"
_WAITING: Final = "vllm:num_requests_waiting or sglang:num_queue_reqs or llamacpp:requests_deferred"
_MADE: Final = "vllm:generation_tokens_total"
_EACH: Final = "engine {{instance}}"


def panels() -> list[Placed]:
    """The row of panels."""
    return [*_load(), *_speed()]


def _load() -> list[Placed]:
    ours = f"sum by (upstream) (sluice_inflight{{{UPSTREAM}}})"
    depth = f"sum by (upstream) (sluice_queue_depth{{{UPSTREAM}}})"
    found, asked = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
    return [
        lines(
            "Running: theirs and ours",
            [Query(f"sum by (instance) ({_RUNNING})", _EACH), Query(ours, "sent to {{upstream}}")],
            width=6,
            tells="An engine that runs more than was sent has other callers too.",
        ),
        lines(
            "Waiting: there and here",
            [Query(f"sum by (instance) ({_WAITING})", _EACH), Query(depth, "here for {{upstream}}")],
            width=6,
            tells="Calls that wait in the engine are beyond our order and deadlines: lower max_concurrency.",
        ),
        lines(
            "KV cache in use",
            [Query("max by (instance) (vllm:kv_cache_usage_perc or sglang:token_usage)", _EACH)],
            unit="percentunit",
            most=1,
            width=6,
            tells="Near 100 % the engine puts calls back and does their work again.",
        ),
        lines(
            "Prompt tokens found in the prefix cache",
            [Query(f"{rate(found, '', 'instance')} / {rate(asked, '', 'instance')}", _EACH)],
            unit="percentunit",
            most=1,
            width=6,
        ),
    ]


def _speed() -> list[Placed]:
    ours = quantile(0.99, "sluice_time_to_first_token_seconds", BOTH, "upstream")
    made = rate("sluice_tokens_total", f'type="output",{BOTH}', "upstream")
    return [
        lines(
            "First token p99: theirs and ours",
            [
                Query(quantile(0.99, "vllm:time_to_first_token_seconds", "", "instance"), _EACH),
                Query(ours, "through {{upstream}}"),
            ],
            unit="s",
            width=6,
            tells="What lies between the two is the way there and back.",
        ),
        lines(
            "Time in the engine's queue, p99",
            [Query(quantile(0.99, "vllm:request_queue_time_seconds", "", "instance"), _EACH)],
            unit="s",
            width=6,
        ),
        lines(
            "Calls put back for want of memory",
            [Query(rate("vllm:num_preemptions_total", "", "instance"), _EACH)],
            unit="ops",
            width=6,
        ),
        lines(
            "Output tokens a second: theirs and ours",
            [Query(rate(_MADE, "", "instance"), _EACH), Query(made, "from {{upstream}}")],
            width=6,
            tells="Ours count when a call is over.",
        ),
    ]
