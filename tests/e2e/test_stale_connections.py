"""Connections that an upstream closes just as they are used again, and answers that stop in the middle."""

import asyncio
import random

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.routed import routed
from doubles.script import FIN, NEVER, RST, Act, Pause, Script, head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, ask

KEPT = 0.015
"""Seconds that the upstream keeps an idle connection."""


async def test_retry_06_calls_in_step_with_the_end_of_idle_connections_all_succeed(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Each comes about when the upstream closes the connection of the one before."""
    upstream.keepalive = KEPT
    gateway = await start_gateway(settings(upstream.url))
    dice = random.Random(6)
    for _ in range(100):
        answer = await ask(gateway.port, C0)
        assert (answer.status, answer.header("x-sluice-attempts")) == (200, "1")
        await asyncio.sleep(KEPT + dice.uniform(-0.003, 0.003))
    assert len({one.header("x-request-id")[0] for one in upstream.calls}) == 100
    await gateway.counted("sluice_upstream_attempts_total", 100, result="success")


async def test_retry_07_read_and_then_dead_is_two_generations_at_most(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    def dies(call: Call) -> Script:
        return [Pause(0.02), FIN]

    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 2}))
    upstream.always(dies)
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.header("x-sluice-attempts")) == (502, "2")
    assert len(upstream.calls) == 2
    await gateway.counted("sluice_upstream_attempts_total", 2, result="retryable")


@pytest.mark.parametrize("end", [FIN, RST], ids=["closed", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_retry_07_the_same_on_a_connection_that_was_used_before(
    upstream: FaultUpstream, start_gateway: StartGateway, end: Act, stream: bool
) -> None:
    """Only a close at once may be one that crossed the request."""
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 2}))
    assert (await ask(gateway.port, C0)).status == 200
    upstream.always([Pause(0.02), end])
    answer = await ask(gateway.port, {**C0, "stream": stream})
    assert (answer.status, answer.header("x-sluice-attempts")) == (502, "2")
    assert len(upstream.calls) == 3
    await gateway.counted("sluice_upstream_attempts_total", 2, result="retryable")


@pytest.mark.parametrize("body", [b"", b'{"id":'], ids=["nothing", "half"])
async def test_retry_07_a_head_without_the_rest_is_not_asked_for_again(
    upstream: FaultUpstream, start_gateway: StartGateway, body: bytes
) -> None:
    """It may still be at work."""
    timeouts = {"timeouts": {"total": "300ms"}}
    gateway = await start_gateway(routed(upstream.url, upstream=timeouts, retry={"attempts": 3}))
    start = head(200, [("content-type", "application/json"), ("content-length", "100")])
    upstream.reply([start + body, NEVER])
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    assert len(upstream.calls) == 1
    await upstream.peer_closed(1)
    upstream.always(replies.ordinary)
    assert (await ask(gateway.port, C0)).status == 200
