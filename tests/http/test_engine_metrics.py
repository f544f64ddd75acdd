"""Engines' load: read from their metrics pages about once a second, ignored when stale."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from doubles.script import full
from doubles.upstream import FaultUpstream

from gateway.admission.engine_admission import EngineLoad
from gateway.core.clock import monotonic
from gateway.http.client.engine_metrics import STALE_S, EngineMetricsPoller, MetricsSource, metrics_url, read

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
OLD_VLLM = VLLM.replace(b"kv_cache_usage_perc", b"gpu_cache_usage_perc")
CACHE_INFO = b"".join(
    b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="260",num_cpu_blocks="None"} 1.0\n' % rank
    for rank in range(2)
)
PREEMPTIONS = b'vllm:num_preemptions_total{engine="0"} 4.0\nvllm:num_preemptions_total{engine="1"} 5.0\n'
SGLANG = b'sglang:num_running_reqs{a="m"} 5.0\nsglang:num_queue_reqs{a="m"} 1\nsglang:token_usage 1e-1\n'
LLAMA = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 6\n"


@pytest.mark.parametrize(
    ("kind", "page", "expected"),
    [
        ("vllm", VLLM, EngineLoad(7, 2, 0.5)),
        ("vllm", OLD_VLLM, EngineLoad(7, 2, 0.5)),
        ("sglang", SGLANG, EngineLoad(5, 1, 0.1)),
        ("llamacpp", LLAMA, EngineLoad(1, 6, None)),
        ("llamacpp", LLAMA + b"llamacpp:kv_cache_usage_ratio 0.5\n", EngineLoad(1, 6, 0.5)),
        ("vllm", VLLM + CACHE_INFO + PREEMPTIONS, EngineLoad(7, 2, 0.5, 9, 2 * 260 * 16, 16)),
        ("sglang", SGLANG + b'sglang:max_total_num_tokens{a="m"} 8192.0\n', EngineLoad(5, 1, 0.1, 0, 8192, 1)),
        ("vllm", VLLM + CACHE_INFO.replace(b'"260"', b'"None"'), EngineLoad(7, 2, 0.5)),
        ("vllm", SGLANG, None),
        ("vllm", b"", None),
        ("llamacpp", b"llamacpp:requests_processing 1\nllamacpp:requests_deferred NaN\n", None),
        ("llamacpp", b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 1e1e1\n", None),
        ("llamacpp", b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 1e999\n", None),
    ],
)
def test_the_names_of_each_engine(kind: str, page: bytes, expected: EngineLoad | None) -> None:
    assert read(kind, page) == expected


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/metrics"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("https://engines.example/one/v1", "https://engines.example/one/metrics"),
    ],
)
def test_the_metrics_page_is_next_to_v1(base_url: str, url: str) -> None:
    assert str(metrics_url(base_url)) == url


@asynccontextmanager
async def following(upstream: FaultUpstream) -> AsyncIterator[EngineMetricsPoller]:
    upstream.has_metrics = True
    made = EngineMetricsPoller(
        {"local": MetricsSource("vllm", upstream.url, [("authorization", "Bearer k")])}, monotonic
    )
    try:
        yield made
    finally:
        await made.close()


async def next_load(loads: EngineMetricsPoller) -> EngineLoad:
    async with asyncio.timeout(5):
        while True:
            engine = loads.of("local", monotonic())
            if engine is not None:
                return engine
            await asyncio.sleep(0.001)


async def test_an_engine_is_polled_and_its_load_goes_stale(upstream: FaultUpstream) -> None:
    upstream.always([full(VLLM, content_type="text/plain")])
    async with following(upstream) as loads:
        assert await next_load(loads) == EngineLoad(7, 2, 0.5)
        asked = upstream.calls[0]
        assert (asked.method, asked.target) == ("GET", "/metrics")
        assert asked.header("authorization") == ["Bearer k"]
        assert loads.view("local") == {"running": 7, "waiting": 2, "kv": 0.5}
        assert loads.of("local", monotonic() + STALE_S + 0.1) is None
        assert loads.view("other") is None


async def test_an_endless_page_is_abandoned(upstream: FaultUpstream) -> None:
    upstream.always([full(VLLM + b"#" * (5 * 1024 * 1024), content_type="text/plain")])
    async with following(upstream) as loads:
        await upstream.received(1)
        await upstream.peer_closed(1)
        assert loads.view("local") is None


async def test_an_engine_that_never_answers_blocks_nothing(upstream: FaultUpstream) -> None:
    upstream.deaf = True
    async with asyncio.timeout(5), following(upstream) as loads:
        await upstream.until(lambda: upstream.accepted == 1, "asked")
        assert loads.view("local") is None


async def test_no_engine_is_polled_unless_a_route_needs_it() -> None:
    loads = EngineMetricsPoller({}, monotonic)
    assert loads.of("local", 1.0) is None
    await loads.close()
