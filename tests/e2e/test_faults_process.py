"""A process that runs out of descriptors goes on with what it has, and takes new clients when it can."""

import asyncio
import errno
import resource
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.rawclient import RawClient
from doubles.routed import routed
from doubles.script import LAST_CHUNK, Until, frame, sse_head
from doubles.sse import contents
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually

SPARE = 12


async def test_row_61_out_of_descriptors(upstream: FaultUpstream, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    events = replies.chat_events("one", "two")
    upstream.reply([sse_head(), frame(events[0]), Until(go_on), *map(frame, events[1:]), LAST_CHUNK])
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(routed(upstream.url), tmp_path))
        streaming = await stack.enter_async_context(await RawClient.open(gateway.port))
        await streaming.request("POST", CHAT, S0)
        answer = await streaming.head()
        await streaming.chunk(answer)
        limits = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
        few = gateway.fds() + SPARE
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (few, limits[1]))
        crowd = [await RawClient.open(gateway.port) for _ in range(3 * SPARE)]
        # Whoever is inside already is served to the end.
        go_on.set()
        await streaming.rest(answer)
        assert answer.complete
        assert contents(answer.body) == "onetwo"
        await streaming.request("GET", "/health")
        assert (await streaming.response()).status == 200
        assert gateway.process.poll() is None
        for one in crowd:
            await one.close()
        await eventually(lambda: gateway.fds() < few - SPARE // 2, "descriptors come back")
        new = await stack.enter_async_context(await RawClient.open(gateway.port))
        await new.request("POST", CHAT, C0)
        assert (await new.response()).status == 200


LIMIT = 256
IDLE = 400
CALLS = 60


def gone(client: RawClient) -> bool:
    return client.reader.at_eof() or client.reader.exception() is not None


@pytest.mark.parametrize("kind", ["httptools", "aiohttp"])
async def test_row_61_idle_clients_give_way_and_no_upstream_is_blamed(
    kind: str, upstream: FaultUpstream, tmp_path: Path
) -> None:
    """Some descriptors are kept for upstreams and the admin port, and the log says what is short."""
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    config = routed(upstream.url, upstream={"transport": kind}, retry={"attempts": 1})
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(config, tmp_path))
        hard = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
        crowd = [await RawClient.open(gateway.port) for _ in range(IDLE)]
        for one in crowd:
            stack.push_async_callback(one.close)
        await crowd[-1].request("GET", "/health")
        assert (await crowd[-1].response()).status == 200  # so all have been accepted
        await eventually(lambda: gateway.fds() <= LIMIT - CALLS // 2, "idle clients were closed")
        still = [one for one in crowd if not gone(one)]
        assert len(still) > 2 * CALLS
        callers = still[-CALLS:]  # one that is just being closed may not hear of a call in time
        for number, one in enumerate(callers):
            await one.request("POST", CHAT, {**C0, "seed": number})
        # The gateway may have closed a connection as idle just before the call on it arrived.
        held = lambda: upstream.in_flight + sum(map(gone, callers)) == CALLS  # noqa: E731
        await upstream.until(held, f"{CALLS} calls in flight or closed before they began")
        callers = [one for one in callers if not gone(one)]
        assert len(callers) > CALLS * 0.9
        await asyncio.to_thread(gateway.metrics)
        new = await stack.enter_async_context(await RawClient.open(gateway.port))
        await new.request("GET", "/health")
        assert (await new.response()).status == 200
        go_on.set()
        assert {(await one.response()).status for one in callers} == {200}
        metrics = await asyncio.to_thread(gateway.metrics)
        assert metrics.value("sluice_upstream_attempts_total", result="success") == len(callers)
        assert metrics.value("sluice_upstream_attempts_total") == len(callers)
        said = [line for line in gateway.log.splitlines() if "out of file descriptors" in line]
        assert len(said) == 1
        assert f'"limit": {LIMIT}' in said[0] or f'"limit":{LIMIT}' in said[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("kind", ["httptools", "aiohttp"])
async def test_row_61_what_this_machine_lacks_opens_no_breaker(
    kind: str,
    number: int,
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = routed(upstream.url, upstream={"transport": kind, "breaker": {"failures": 2}}, retry={"attempts": 1})
    gateway = await start_gateway(config)
    await eventually(lambda: upstream.accepted == 1, "its health is checked")
    loop = asyncio.get_running_loop()

    real = loop.sock_connect

    async def short(sock: socket.socket, address: Any) -> None:
        if address[1] == upstream.port:
            raise OSError(number, "short")
        await real(sock, address)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "sock_connect", short)
        for _ in range(4):
            answer = await ask(gateway.port, C0)
            assert (answer.status, answer.error["code"]) == (503, "gateway_overloaded")
            assert "`a` cannot be reached" not in answer.error["message"]
    assert (await ask(gateway.port, C0)).status == 200
    metrics = await gateway.metrics()
    assert metrics.value("sluice_upstream_up", upstream="a") == 1
    assert metrics.value("sluice_upstream_breaker_state", upstream="a") == 0
    assert metrics.value("sluice_requests_total", outcome="shed") == 4
