"""SIGTERM: not ready at once, no new work, open calls finish or are told, exit 0."""

import asyncio
import signal
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path

from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import Answer, RawClient, call
from doubles.script import LAST_CHUNK, NEVER, Until, frame, piece, sse_head
from doubles.settings import settings
from doubles.sse import contents, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0
from doubles.waiting import eventually

STREAMS = 10
EVENTS = replies.chat_events("one", "two")


def readiness(gateway: GatewayProcess) -> int:
    """The status of /readyz; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"{gateway.admin_url}/readyz", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


async def open_streams(gateway: GatewayProcess, stack: AsyncExitStack) -> tuple[list[RawClient], list[Answer]]:
    """Streams of which the first event has been read; `stack` closes their clients."""
    clients = [await stack.enter_async_context(await RawClient.open(gateway.port)) for _ in range(STREAMS)]
    answers = []
    for client in clients:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        await client.chunk(answer)
        answers.append(answer)
    return clients, answers


async def test_ops_01_open_streams_finish(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    upstream.always([sse_head(), frame(EVENTS[0]), Until(go_on), *map(frame, EVENTS[1:]), LAST_CHUNK])
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(settings(upstream.url), tmp_path))
        clients, answers = await open_streams(gateway, stack)
        idle = await stack.enter_async_context(await RawClient.open(gateway.port))
        await idle.request("GET", "/health")
        assert (await idle.response()).status == 200
        assert await asyncio.to_thread(readiness, gateway) == 200
        gateway.terminate()
        await eventually(lambda: readiness(gateway) == 503, "not ready")
        assert await refused(gateway, idle)
        assert gateway.process.poll() is None
        go_on.set()
        for client, answer in zip(clients, answers, strict=True):
            await client.rest(answer)
            assert answer.complete
            assert contents(answer.body) == "onetwo"
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
    assert len(upstream.calls) == STREAMS


async def refused(gateway: GatewayProcess, idle: RawClient) -> bool:
    """Whether new work is refused, on a new connection and on one that was open already."""
    try:
        new = await call(gateway.port, "POST", CHAT, C0)
    except ConnectionError:
        pass
    else:
        assert new.status == 503
        assert new.error["code"] == "draining"
        assert new.header("connection") == "close"
        assert new.header("retry-after")
    try:
        await idle.request("POST", CHAT, C0)
        old = await idle.response()
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    assert old.header("connection") == "close"
    return old.status == 503 and old.error["code"] == "draining"


async def test_ops_01_streams_that_take_too_long_are_told(upstream: FaultUpstream, tmp_path: Path) -> None:
    upstream.always([sse_head(), frame(piece("one")), NEVER])
    config = settings(upstream.url, server={"drain": {"timeout": "300ms"}})
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(config, tmp_path))
        clients, answers = await open_streams(gateway, stack)
        upstream.always([NEVER])
        whole = await stack.enter_async_context(await RawClient.open(gateway.port))
        await whole.request("POST", CHAT, C0)
        await upstream.received(STREAMS + 1)
        gateway.terminate()
        for client, answer in zip(clients, answers, strict=True):
            await client.rest(answer)
            assert (answer.complete, answer.end) == (False, "fin")
            error = final_error(answer.body)
            assert (error["type"], error["code"]) == ("overloaded_error", "draining")
        answer = await whole.response()
        assert answer.status == 503
        assert answer.error["code"] == "draining"
        assert answer.header("retry-after")
        assert answer.header("connection") == "close"
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
    await upstream.idle()


async def test_ops_01_a_delay_serves_on_while_it_is_not_ready(upstream: FaultUpstream, tmp_path: Path) -> None:
    with GatewayProcess(settings(upstream.url, server={"drain": {"delay": "2s"}}), tmp_path) as gateway:
        gateway.terminate()
        await eventually(lambda: readiness(gateway) == 503, "not ready")
        assert (await call(gateway.port, "POST", CHAT, C0)).status == 200
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0


async def test_ops_01_a_second_signal_ends_at_once(upstream: FaultUpstream, tmp_path: Path) -> None:
    upstream.always([sse_head(), frame(piece("one")), NEVER])
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(settings(upstream.url), tmp_path))
        await open_streams(gateway, stack)
        gateway.terminate()
        await eventually(lambda: readiness(gateway) == 503, "not ready")
        gateway.process.send_signal(signal.SIGINT)
        await asyncio.to_thread(gateway.process.wait, 10)
    await upstream.idle()
