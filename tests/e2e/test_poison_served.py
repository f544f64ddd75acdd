"""A request that engines die of takes down two of them at most, and nobody else's call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.limited import FrozenClock
from doubles.routed import routed
from doubles.script import FIN, RST, Pause, Script
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask

ENGINES = 4
MAGIC = "the magic word"
POISON: dict[str, Any] = {**C0, "user": MAGIC}


def mortal(call: Call) -> Script:
    """An engine that dies of the magic word."""
    return [Pause(0.01), RST] if MAGIC.encode() in call.body else replies.ordinary(call)


@pytest.fixture
async def pool() -> AsyncIterator[list[FaultUpstream]]:
    """Engines of the same kind."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(FaultUpstream()) for _ in range(ENGINES)]
        for engine in engines:
            engine.always(mortal)
        yield engines


def deaths(pool: list[FaultUpstream]) -> int:
    return sum(MAGIC.encode() in call.body for engine in pool for call in engine.calls)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_row_28_two_engines_at_most(pool: list[FaultUpstream], start_gateway: StartGateway, stream: bool) -> None:
    config = routed(*(engine.url for engine in pool), retry={"attempts": ENGINES, "budget": 1.0})
    gateway = await start_gateway(config)
    poison = {**POISON, "stream": stream}
    for _ in range(3):
        answer = await ask(gateway.port, poison)
        assert (answer.status, answer.error["code"]) == (503, "request_suspended")
        assert answer.error["type"] == "overloaded_error"
        assert 55 <= int(answer.header("retry-after") or 0) <= 60
        assert deaths(pool) == 2
    for body in (C0, S0):
        assert (await ask(gateway.port, body)).status == 200
    await gateway.counted("sluice_requests_total", 3, outcome="shed", status="503")
    await gateway.counted("sluice_requests_total", 2, outcome="ok")


ENDS: dict[str, Script] = {
    "reset later": [Pause(0.02), RST],
    "closed later": [Pause(0.02), FIN],
    "reset in the head": [b"HTTP/1.1 200", RST],
    "closed in the head": [b"HTTP/1.1 200 OK\r\ncontent-", FIN],
    "closed after a head": [b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n", FIN],
    "reset in the body": [b'HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"id"', RST],
    "closed after a 100": [b"HTTP/1.1 100 Continue\r\n\r\n", FIN],
    "closed at once": [FIN],
    "reset at once": [RST],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("end", ENDS)
async def test_row_28_two_engines_at_most_on_warm_connections(
    pool: list[FaultUpstream], start_gateway: StartGateway, end: str, stream: bool
) -> None:
    """Also if the engine closes at once, which looks like a stale connection: one more sending then tells."""
    config = routed(*(engine.url for engine in pool), retry={"attempts": ENGINES, "budget": 1.0})
    for model in config["models"].values():
        model["route"] = "least_loaded"
    gateway = await start_gateway(config)
    for _ in range(2 * ENGINES):
        assert (await ask(gateway.port, C0)).status == 200
    for engine in pool:
        engine.always(lambda call: ENDS[end] if MAGIC.encode() in call.body else replies.ordinary(call))
    for _ in range(3):
        answer = await ask(gateway.port, {**POISON, "stream": stream})
        assert (answer.status, answer.error["code"]) == (503, "request_suspended")
        assert deaths(pool) == 2
    await gateway.counted("sluice_upstream_attempts_total", 2, result="retryable")


async def test_row_28_a_silent_second_sending_that_nobody_takes_is_a_death(
    upstream: FaultUpstream, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine died of the first one: its port is closed, and that is no mere failure to connect."""
    clock = FrozenClock(monkeypatch)
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 1}))
    assert (await ask(gateway.port, C0)).status == 200

    def dies(call: Call) -> Script:
        if upstream._server is not None:
            upstream._server.close()
            upstream._server = None
        return [FIN]

    upstream.always(dies)
    answer = await ask(gateway.port, POISON)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert "closed the connection before it answered" in answer.error["message"]
    assert len(upstream.calls) == 2
    await upstream.start()
    clock.passes(1.0)  # deaths within a second count as one
    assert (await ask(gateway.port, POISON)).error["code"] == "request_suspended"


async def test_row_28_two_deaths_over_two_calls(pool: list[FaultUpstream], start_gateway: StartGateway) -> None:
    config = routed(*(engine.url for engine in pool[:2]), retry={"attempts": 1})
    gateway = await start_gateway(config)
    assert (await ask(gateway.port, POISON)).error["code"] == "upstream_error"
    # Five failures of any kind open the first one's breaker, so the second death is another engine's.
    for number in range(4):
        await ask(gateway.port, {**POISON, "seed": number})
    assert pool[1].calls == []
    for _ in range(2):
        assert (await ask(gateway.port, POISON)).error["code"] == "request_suspended"
    assert (len(pool[0].calls), len(pool[1].calls)) == (5, 1)


async def test_row_28_the_real_sdk_does_not_hammer(pool: list[FaultUpstream], start_gateway: StartGateway) -> None:
    """A minute is as long as the SDK would wait for: this one gives up by itself."""
    gateway = await start_gateway(routed(*(engine.url for engine in pool), retry={"attempts": 3}))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as told:
            await client.chat.completions.create(**POISON)
    assert told.value.code == "request_suspended"
    assert deaths(pool) == 2


async def test_row_28_after_a_minute_it_may_try_again(
    pool: list[FaultUpstream], start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FrozenClock(monkeypatch)
    gateway = await start_gateway(routed(*(engine.url for engine in pool), retry={"attempts": ENGINES}))
    assert (await ask(gateway.port, POISON)).status == 503
    clock.passes(59.0)
    assert (await ask(gateway.port, POISON)).header("retry-after") == "1"
    clock.passes(1.0)
    for engine in pool:
        engine.always(replies.ordinary)
    assert (await ask(gateway.port, POISON)).status == 200


async def test_row_28_calls_that_were_there_when_an_engine_died_are_innocent(
    pool: list[FaultUpstream], start_gateway: StartGateway
) -> None:
    """All that an engine was doing dies with it: each of them has one more try, and none is refused."""
    gateway = await start_gateway(routed(*(engine.url for engine in pool[:2]), retry={"budget": 10.0}))
    pool[0].always([Pause(0.1), FIN])
    pool[1].always(replies.ordinary)
    answers = await asyncio.gather(*(ask(gateway.port, {**C0, "seed": number}) for number in range(4)))
    assert [answer.status for answer in answers] == [200] * 4
    answers = await asyncio.gather(*(ask(gateway.port, {**C0, "seed": number}) for number in range(4)))
    assert [answer.status for answer in answers] == [200] * 4
