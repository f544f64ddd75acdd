"""One deadline for queue, attempts and pauses together; who leaves in between leaves nothing behind."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, StartGateway
from doubles.rawclient import RawClient
from doubles.routed import routed
from doubles.script import NEVER, Pause, frame, piece, sse_head
from doubles.sse import contents, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from doubles.waiting import eventually

LONG = {"attempts": 9, "backoff_max": "60s", "budget": 1.0}
BUSY = replies.error(429, headers=[("retry-after-ms", "250")])
AWAY = replies.error(429, headers=[("retry-after", "30")])
"""A pause that no test waits for."""


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_pauses_end_with_the_total(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, object]
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=LONG, upstream={"timeouts": {"total": "600ms"}}))
    upstream.always(BUSY)
    answer = await ask(gateway.port, body)
    assert (answer.status, answer.error["code"]) == (429, "upstream_rate_limited")
    assert answer.header("retry-after") == "1"
    assert len(upstream.calls) == 3  # at 0, 250 and 500 ms


async def test_an_attempt_ends_with_what_the_others_left_of_the_total(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """The second answer would be in time, had its attempt a total of its own."""
    gateway = await start_gateway(routed(upstream.url, upstream={"timeouts": {"total": "1s"}}))
    upstream.reply([Pause(0.6), *replies.error(500)], [Pause(0.6), *replies.chat()])
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    assert len(upstream.calls) == 2
    await upstream.peer_closed(2)
    await gateway.outcome("upstream_timeout")


@pytest.mark.parametrize("timeout", ["0.6", "1"])
async def test_pauses_end_with_the_clients_own_patience(
    upstream: FaultUpstream, start_gateway: StartGateway, timeout: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=LONG))
    upstream.always(BUSY)
    answer = await ask(gateway.port, C0, [("x-stainless-read-timeout", timeout)])
    assert answer.status == 429
    assert len(upstream.calls) == {"0.6": 3, "1": 4}[timeout]


async def test_row_52_the_queue_of_a_retry_counts_too(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    """While it pauses another call takes the only slot, and keeps it."""
    gateway = await start_gateway(routed(upstream.url, retry=LONG, upstream={"max_concurrency": 1}))
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "300")]), [NEVER])
    async with await RawClient.open(gateway.port) as client, await RawClient.open(gateway.port) as holder:
        await client.request("POST", CHAT, C0, [("x-stainless-read-timeout", "1")])
        await upstream.received(1)
        await gateway.counted("sluice_upstream_attempts_total", 1, result="retryable")
        await holder.request("POST", CHAT, C0)
        await upstream.received(2)
        answer = await client.response()
    assert answer.status in (429, 503)
    assert answer.header("retry-after") is not None
    assert len(upstream.calls) == 2
    await gateway.counted("sluice_upstream_inflight", 0)
    await gateway.counted("sluice_upstream_queue_depth", 0)


async def test_row_5_row_6_a_slow_one_leaves_time_for_another(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, other.url, upstream={"timeouts": {"first_byte": "150ms"}})
    gateway = await start_gateway(config)
    upstream.always([NEVER])
    for body in (C0, S0):
        answer = await ask(gateway.port, body)
        assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    await upstream.peer_closed(1)
    await upstream.peer_closed(2)


async def test_retry_07_one_that_may_still_be_at_work_is_not_asked_again(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, retry=LONG, upstream={"timeouts": {"first_byte": "150ms"}})
    gateway = await start_gateway(config)
    upstream.always([NEVER])
    assert (await ask(gateway.port, C0)).status == 504
    assert len(upstream.calls) == 1


async def test_row_41_a_slow_stream_is_not_cut_by_the_total(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, upstream={"timeouts": {"total": "300ms", "idle": "5s"}})
    gateway = await start_gateway(config)
    events = replies.chat_events("one", "two")
    pauses = [step for one in events[:2] for step in (frame(one), Pause(0.3))]
    upstream.reply([sse_head(), *pauses, *map(frame, events[2:]), b"0\r\n\r\n"])
    answer = await ask(gateway.port, S0)
    assert answer.complete
    assert contents(answer.body) == "onetwo"


# Streams whose 200 a heartbeat has committed.


async def test_a_retry_goes_on_behind_a_committed_200(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    """No event has gone out, only comments: what comes of the second attempt is the answer."""
    gateway = await start_gateway(routed(upstream.url, server={"heartbeat": "100ms"}))
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "400")]))
    answer = await ask(gateway.port, S0)
    assert (answer.status, answer.complete) == (200, True)
    assert answer.body.startswith(b": keep-alive\n\n")
    assert contents(answer.body) == "pong"
    assert len(upstream.calls) == 2


async def test_a_retry_that_fails_behind_a_committed_200_is_told_in_the_stream(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, server={"heartbeat": "100ms"}))
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "400")]), replies.error(500))
    answer = await ask(gateway.port, S0)
    assert (answer.status, answer.complete) == (200, False)
    assert final_error(answer.body)["code"] == "upstream_error"
    assert len(upstream.calls) == 2


# Leaving.


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_row_46_who_leaves_in_the_pause_calls_nobody(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, object], how: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=LONG, upstream={"max_concurrency": 1}))
    upstream.reply(AWAY)
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, body)
    await upstream.received(1)
    await gateway.counted("sluice_upstream_attempts_total", 1, result="retryable")
    await gateway.counted("sluice_upstream_inflight", 0)  # nor does a pause keep the only slot
    assert (await ask(gateway.port, C0)).status == 200
    await (client.reset() if how == "reset" else client.close())
    await gateway.counted("sluice_requests_total", 1, outcome="client_gone")
    assert len(upstream.calls) == 2
    await gateway.counted("sluice_upstream_queue_depth", 0)


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_row_46_who_leaves_in_the_second_attempt_ends_it(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, body: dict[str, object]
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, upstream={"max_concurrency": 1}))
    upstream.always(replies.error(500))
    other.reply([NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, body)
    await other.received(1)
    await gateway.counted("sluice_upstream_inflight", 1, upstream="b")
    await client.close()
    assert await other.peer_closed(1, 1.0)
    await gateway.outcome("client_gone")
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="b", result="ignore")
    await gateway.counted("sluice_upstream_breaker_state", 0)
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"


# Draining.


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_a_drain_lets_a_pause_end(upstream: FaultUpstream, tmp_path: Path, body: dict[str, object]) -> None:
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "700")]))
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(routed(upstream.url), tmp_path))
        client = await stack.enter_async_context(await RawClient.open(gateway.port))
        await client.request("POST", CHAT, body)
        await upstream.received(1)
        await eventually(lambda: not upstream.in_flight, "answered")
        gateway.terminate()
        answer = await client.response()
        assert (answer.status, answer.complete) == (200, True)
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
    assert len(upstream.calls) == 2


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_a_drain_that_runs_out_of_time_tells_those_who_pause(
    upstream: FaultUpstream, tmp_path: Path, body: dict[str, object]
) -> None:
    upstream.reply(AWAY)
    config = routed(upstream.url, retry=LONG, server={"drain": {"timeout": "300ms"}})
    async with AsyncExitStack() as stack:
        gateway = stack.enter_context(GatewayProcess(config, tmp_path))
        client = await stack.enter_async_context(await RawClient.open(gateway.port))
        await client.request("POST", CHAT, body)
        await upstream.received(1)
        await eventually(lambda: not upstream.in_flight, "answered")
        gateway.terminate()
        answer = await client.response()
        assert (answer.status, answer.error["code"]) == (503, "draining")
        assert answer.header("retry-after")
        assert await asyncio.to_thread(gateway.process.wait, 10) == 0
    assert len(upstream.calls) == 1


async def test_a_break_in_a_long_stream_comes_when_it_comes(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    """What was sent belongs to the client: another candidate could only begin anew."""
    config = routed(upstream.url, other.url, upstream={"timeouts": {"idle": "200ms"}})
    gateway = await start_gateway(config)
    upstream.reply([sse_head(), frame(piece("one")), NEVER])
    answer = await ask(gateway.port, S0)
    assert final_error(answer.body)["code"] == "upstream_timeout"
    assert other.calls == []
