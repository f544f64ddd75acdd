"""Traces: the spans of a call at a collector, below the client's and above the upstream's own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.collector import Collector, Span
from doubles.gateway import GatewayProcess, StartGateway
from doubles.rawclient import call
from doubles.routed import routed
from doubles.script import Until
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, EMBEDDINGS, S0, ask

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER, CLIENT, INTERNAL = 2, 3, 1
ON = {"enabled": True}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with Collector() as one:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield one


def traceparent(flags: str = "01", version: str = "00") -> tuple[str, str]:
    return ("traceparent", f"{version}-{TRACE}-{PARENT}-{flags}")


def only(spans: list[Span], kind: int) -> Span:
    (one,) = [span for span in spans if span.kind == kind]
    return one


async def test_a_call_has_a_span_and_so_has_its_attempt(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True, traces=ON))
    answer = await ask(gateway.port, C0, [AUTH])
    assert answer.status == 200
    spans = await collector.received(2)
    root, attempt = only(spans, SERVER), only(spans, CLIENT)
    assert (root.name, root.parent_id, root.error) == (f"POST {CHAT}", "", None)
    assert root.resource["service.name"] == "sluice"
    told = {"http.route": CHAT, "http.response.status_code": 200, "sluice.key": "team-a"}
    told |= {"sluice.request_id": answer.header("x-request-id"), "sluice.outcome": "ok"}
    told |= {"sluice.attempts": 1, "sluice.model": "m-small", "http.request.method": "POST"}
    assert told.items() <= root.attributes.items()
    assert (attempt.name, attempt.trace_id, attempt.parent_id) == (
        "chat up-small",
        root.trace_id,
        root.span_id,
    )
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "up-small", "sluice.upstream": "local"}
    told |= {"gen_ai.provider.name": "openai", "server.address": "127.0.0.1", "server.port": upstream.port}
    told |= {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 2}
    told |= {"gen_ai.response.finish_reasons": ["stop"]}
    assert told.items() <= attempt.attributes.items()
    assert root.began <= attempt.began < attempt.ended <= root.ended
    (sent,) = upstream.calls
    assert sent.header("traceparent") == [f"00-{root.trace_id}-{attempt.span_id}-01"]


async def test_the_clients_trace_goes_on(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    gateway = await start_gateway(settings(upstream.url, traces={"enabled": True, "sample": 0}))
    given = [traceparent(), ("tracestate", "a=1")]
    assert (await ask(gateway.port, S0, given)).status == 200
    spans = await collector.received(2)
    root, attempt = only(spans, SERVER), only(spans, CLIENT)
    assert (root.trace_id, root.parent_id) == (TRACE, PARENT)
    assert attempt.attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert attempt.attributes["gen_ai.request.stream"] is True
    (sent,) = upstream.calls
    assert sent.header("traceparent") == [f"00-{TRACE}-{attempt.span_id}-01"]
    assert sent.header("tracestate") == ["a=1"]


async def test_a_stream_is_an_attempt_to_its_end(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    gateway = await start_gateway(settings(upstream.url, traces=ON))
    assert (await ask(gateway.port, S0)).complete
    spans = await collector.received(2)
    assert only(spans, CLIENT).ended == pytest.approx(only(spans, SERVER).ended, abs=1e-6)


@pytest.mark.parametrize("traces", [{"enabled": True, "sample": 0}, {"enabled": False}])
@pytest.mark.parametrize("given", [[], [traceparent("00"), ("tracestate", "a=1")]])
async def test_what_is_not_traced_passes_untouched(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    collector: Collector,
    traces: dict[str, Any],
    given: list[tuple[str, str]],
) -> None:
    gateway = await start_gateway(settings(upstream.url, traces=traces))
    assert (await ask(gateway.port, C0, given)).status == 200
    (sent,) = upstream.calls
    for name in ("traceparent", "tracestate"):
        assert sent.header(name) == [value for key, value in given if key == name]
    await gateway.stop()
    assert collector.spans == []


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "junk",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
    ],
)
async def test_a_malformed_parent_begins_a_trace_of_its_own(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector, odd: str
) -> None:
    gateway = await start_gateway(settings(upstream.url, traces=ON))
    assert (await ask(gateway.port, C0, [("traceparent", odd), ("tracestate", "a=1")])).status == 200
    root = only(await collector.received(2), SERVER)
    assert (root.parent_id, root.trace_id != TRACE) == ("", True)
    (sent,) = upstream.calls
    assert root.trace_id in sent.header("traceparent")[0]
    assert sent.header("tracestate") == []


async def test_each_attempt_has_a_span_and_failure_a_name(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    upstream.reply(replies.error(500))
    gateway = await start_gateway(routed(upstream.url, upstream.url, traces=ON))
    assert (await ask(gateway.port, C0)).header("x-sluice-attempts") == "2"
    spans = await collector.received(3)
    first, second = [one for one in spans if one.kind == CLIENT]
    assert (first.name, first.error, first.attributes["error.type"]) == (
        "chat up-a",
        "upstream_error",
        "upstream_error",
    )
    assert "gen_ai.usage.input_tokens" not in first.attributes
    assert (second.name, second.error) == ("chat up-b", None)
    assert second.attributes["gen_ai.usage.input_tokens"] == 5
    assert only(spans, SERVER).error is None
    headers = [one.header("traceparent")[0].split("-")[2] for one in upstream.calls]
    assert headers == [first.span_id, second.span_id]


async def test_a_failed_call_is_an_error(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    upstream.reply(replies.error(500))
    gateway = await start_gateway(settings(upstream.url, traces=ON))
    assert (await ask(gateway.port, C0)).status == 502
    root = only(await collector.received(2), SERVER)
    assert (root.error, root.attributes["error.type"]) == ("upstream_error", "upstream_error")
    assert root.attributes["http.response.status_code"] == 502


async def test_waiting_for_a_slot_is_a_span(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    go_on = asyncio.Event()
    upstream.always([Until(go_on), *replies.chat()])
    gateway = await start_gateway(
        settings(upstream.url, upstream={"max_concurrency": 1}, batching={"policy": "off"}, traces=ON)
    )
    calls = [asyncio.create_task(ask(gateway.port, C0)) for _ in range(2)]
    await gateway.counted("sluice_upstream_queue_depth", 1)
    go_on.set()
    assert [(await one).status for one in calls] == [200, 200]
    spans = await collector.received(5)
    waited = only(spans, INTERNAL)
    (root,) = [one for one in spans if one.span_id == waited.parent_id]
    (attempt,) = [one for one in spans if one.parent_id == root.span_id and one.kind == CLIENT]
    assert waited.name == "queue"
    assert root.began <= waited.began < waited.ended <= attempt.began + 1e-6
    assert root.attributes["sluice.queue_ms"] == pytest.approx(1000 * (waited.ended - waited.began), abs=1)


async def test_callers_that_share_a_call_have_a_span_each(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    gateway = await start_gateway(
        settings(upstream.url, batching={"policy": "window", "max_size": 2, "max_wait": "5s"}, traces=ON)
    )
    body = {"model": "m-embed", "input": "one"}
    answers = await asyncio.gather(*(call(gateway.port, "POST", EMBEDDINGS, body) for _ in range(2)))
    assert [answer.header("x-sluice-batch-size") for answer in answers] == ["2", "2"]
    spans = [one for one in await collector.received(6) if one.kind == CLIENT]
    assert [one.attributes["sluice.batch_size"] for one in spans] == [2, 2]
    assert len({one.trace_id for one in spans}) == 2


async def test_strangers_make_no_spans(
    upstream: FaultUpstream, start_gateway: StartGateway, collector: Collector
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True, traces=ON))
    assert (await ask(gateway.port, C0, [traceparent()])).status == 401
    await gateway.stop()
    assert collector.spans == []


async def test_a_collector_that_is_away_holds_nobody_up(
    upstream: FaultUpstream, tmp_path: Path, unused_tcp_port: int
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{unused_tcp_port}"}
    environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"  # it would try as long
    config = settings(upstream.url, traces=ON, upstream={"api_key": "up-secret-1"})
    with GatewayProcess(config, tmp_path, environ) as gateway:
        for _ in range(3):
            assert (await ask(gateway.port, C0)).status == 200
        await asyncio.to_thread(gateway.stop, 20.0)
        assert "up-secret-1" not in gateway.log


async def test_workers_send_theirs_and_the_log_names_the_trace(
    upstream: FaultUpstream, tmp_path: Path, collector: Collector
) -> None:
    config = settings(upstream.url, traces=ON, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        assert (await ask(gateway.port, C0, [traceparent()])).status == 200
        assert only(await collector.received(2), SERVER).trace_id == TRACE
        assert f'"trace_id":"{TRACE}"' in gateway.log
