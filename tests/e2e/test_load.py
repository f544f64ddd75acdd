"""Many calls at once: no hidden limit, no upstream that drags others along, no reader that costs memory."""

import asyncio
import resource
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import LAST_CHUNK, Until, compact, frame, piece, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually

MANY = 300


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Both ends of every connection are in this process, so it needs more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ops_03_ops_05_300_streams_at_once(upstream: FaultUpstream, tmp_path: Path) -> None:
    all_there = asyncio.Event()
    texts = [str(number) for number in range(20)]
    events = replies.chat_events(*texts)
    upstream.always([sse_head(), frame(events[0]), Until(all_there), *map(frame, events[1:]), LAST_CHUNK])
    with GatewayProcess(settings(upstream.url, upstream={"max_concurrency": MANY}), tmp_path) as gateway:
        asking = [asyncio.create_task(call(gateway.port, "POST", CHAT, S0)) for _ in range(MANY)]
        await upstream.holding(MANY, within=20)
        live = await asyncio.to_thread(urllib.request.urlopen, f"{gateway.admin_url}/livez", timeout=5)
        with live:
            assert live.status == 200
        metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_upstream_inflight", upstream="local") == MANY
        all_there.set()
        whole = b"".join(events).replace(b"up-small", b"m-small")
        for answer in await asyncio.gather(*asking):
            assert answer.complete
            assert answer.body == whole
        metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_requests_total", outcome="ok") == MANY
        assert metrics.value("sluice_upstream_inflight") == 0
    assert upstream.most_in_flight == MANY


async def test_ops_04_a_dead_upstream_leaves_the_other_alone(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    async with FaultUpstream() as dead:
        dead.deaf = True
        config = settings(
            upstream.url,
            upstreams={
                "local": {"base_url": upstream.url},
                "dead": {"base_url": dead.url, "max_concurrency": 200, "timeouts": {"first_byte": "2s"}},
            },
            models={
                "m-small": {"candidates": [{"upstream": "local"}]},
                "m-dead": {"candidates": [{"upstream": "dead"}]},
            },
        )
        gateway = await start_gateway(config)
        stuck = [asyncio.create_task(ask(gateway.port, {**C0, "model": "m-dead"})) for _ in range(200)]
        await dead.until(lambda: len(dead.connections) >= 200, "200 connections to the dead one")
        healthy = await asyncio.gather(*(ask(gateway.port, C0) for _ in range(50)))
        assert {answer.status for answer in healthy} == {200}
        assert not any(task.done() for task in stuck)
        for answer in await asyncio.gather(*stuck):
            assert answer.status == 504
            assert answer.error["code"] == "upstream_timeout"
        await gateway.counted("sluice_upstream_inflight", 0)


SLOW_READERS = 20
PIECE = frame(piece("x" * 65_000))
PIECES = 500  # 32 MB a stream, far more than all socket buffers on the way


async def test_ops_08_readers_that_read_nothing_cost_little(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, upstream={"max_concurrency": SLOW_READERS + 1})
    with GatewayProcess(config, tmp_path) as gateway:
        assert (await ask(gateway.port, S0)).complete
        before = gateway.rss()
        upstream.always([sse_head(), *[PIECE] * PIECES, frame(b"data: [DONE]\n\n"), LAST_CHUNK])
        readers = [await RawClient.open(gateway.port)]
        readers += [await RawClient.open(gateway.port, receive_buffer=4096) for _ in range(SLOW_READERS - 1)]
        for reader in readers:
            await reader.request("POST", CHAT, S0)
        await upstream.holding(SLOW_READERS)
        sent: list[int] = []

        def at_a_standstill() -> bool:
            sent.append(sum(one.sent for one in upstream.calls))
            return len(sent) > 30 and sent[-30] == sent[-1]

        await eventually(at_a_standstill, "the upstream held up", within=20)
        assert sent[-1] < SLOW_READERS * PIECES * len(PIECE)
        assert gateway.rss() - before < SLOW_READERS * 2 * 2**20
        upstream.reply(replies.chat())
        assert (await ask(gateway.port, C0)).status == 200
        patient, *others = readers
        for reader in others:
            await reader.reset()
        await upstream.until(lambda: upstream.in_flight == 1, "the others' upstream calls ended")
        answer = await patient.response()
        assert answer.complete
        assert answer.body.count(b"data: ") == PIECES + 1
        await patient.close()


def image(size: int) -> dict[str, Any]:
    """A request body of about `size` bytes."""
    url = "data:image/png;base64," + "A" * size
    content = [{"type": "image_url", "image_url": {"url": url}}]
    return {"model": "m-small", "messages": [{"role": "user", "content": content}]}


async def test_compat_07_memory_stays_within_three_times_the_body(upstream: FaultUpstream, tmp_path: Path) -> None:
    with GatewayProcess(settings(upstream.url), tmp_path) as gateway:
        assert (await ask(gateway.port, C0)).status == 200
        before = gateway.peak_rss()
        body = compact(image(20 * 10**6))
        assert (await ask(gateway.port, body)).status == 200
        assert gateway.peak_rss() - before <= 3 * len(body)
        assert upstream.calls[-1].body == body.replace(b'"m-small"', b'"up-small"')
        peak = gateway.peak_rss()
        answer = await ask(gateway.port, b" " * 33 * 2**20)
        assert answer.status == 413
        assert gateway.peak_rss() - peak < 2**20
