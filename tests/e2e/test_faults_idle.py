"""Streams that say nothing for long: what each costs is little, and no more later than at first."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import Answer, RawClient
from doubles.script import LAST_CHUNK, Until, frame, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, S0

STREAMS = 300
KIB = 1024
HEARTBEAT = b": keep-alive\n\n"


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Both ends of every connection are in this process, so it needs more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def until_heartbeats(client: RawClient, answer: Answer, count: int) -> None:
    while answer.body.count(HEARTBEAT) < count:
        assert await client.chunk(answer)


async def test_row_48_idle_streams_cost_no_more_with_time(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    events = replies.chat_events("one", "two")
    upstream.always([sse_head(), frame(b"".join(events[:2])), Until(go_on), *map(frame, events[2:]), LAST_CHUNK])
    config = settings(upstream.url, upstream={"max_concurrency": STREAMS}, server={"heartbeat": "50ms"})
    with GatewayProcess(config, tmp_path) as gateway:
        before = gateway.rss()
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await RawClient.open(gateway.port)) for _ in range(STREAMS)]
            for client in clients:
                await client.request("POST", CHAT, S0)
            answers = [await client.head() for client in clients]
            await until_heartbeats(clients[-1], answers[-1], 3)
            at_first = gateway.rss()
            await until_heartbeats(clients[-1], answers[-1], 30)
            later = gateway.rss()
            go_on.set()
            for client, answer in zip(clients, answers, strict=True):
                await client.rest(answer)
                assert answer.complete
                assert answer.body.replace(HEARTBEAT, b"").count(b"data: ") == len(events)
    assert at_first - before <= STREAMS * 64 * KIB
    assert later - at_first <= STREAMS * 2 * KIB
