"""An upstream that fails is left alone: quickly found out, rarely asked, soon back."""

import asyncio
import time

import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import FrozenClock
from doubles.rawclient import call as raw_call
from doubles.routed import routed
from doubles.script import NEVER, RST, Step
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask

ONE_TRY = {"attempts": 1}


async def shown(gateway: InProcessGateway, upstream: str = "a") -> str:
    """What the admin port says of this breaker."""
    answer = await raw_call(gateway.admin_port, "GET", "/admin/upstreams")
    return str(answer.json()[upstream]["breaker"])


async def opened(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    """The upstream has failed five times."""
    upstream.always(replies.error(500))
    for _ in range(5):
        assert (await ask(gateway.port, C0)).status == 502
    assert await shown(gateway) == "open"


async def test_a_lone_upstream_opens_after_five_and_is_asked_once_a_second(
    upstream: FaultUpstream, start_gateway: StartGateway, clock: FrozenClock
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=ONE_TRY))
    await gateway.counted("sluice_upstream_breaker_state", 0, upstream="a")
    await opened(gateway, upstream)
    await gateway.counted("sluice_upstream_breaker_state", 2, upstream="a")
    for body in (C0, S0):
        answer = await ask(gateway.port, body)
        assert (answer.status, answer.error["code"]) == (503, "upstream_unavailable")
        assert answer.error["type"] == "overloaded_error"
        assert (answer.header("retry-after"), answer.header("retry-after-ms")) == ("1", "1000")
        assert answer.header("x-should-retry") is None
        assert answer.header("x-sluice-attempts") is None
    assert len(upstream.calls) == 5
    for second in range(1, 31):  # its time does not grow
        clock.passes(1.0)
        statuses = [(await ask(gateway.port, C0)).status for _ in range(3)]
        assert statuses == [502, 503, 503]
        assert len(upstream.calls) == 5 + second
    clock.passes(1.0)
    upstream.always(replies.ordinary)
    assert [(await ask(gateway.port, C0)).status for _ in range(5)] == [200] * 5
    assert await shown(gateway) == "closed"
    await gateway.counted("sluice_upstream_breaker_state", 0, upstream="a")


async def test_who_waits_as_told_goes(upstream: FaultUpstream, start_gateway: StartGateway, clock: FrozenClock) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=ONE_TRY))
    await opened(gateway, upstream)
    clock.passes(0.4)
    told = (await ask(gateway.port, C0)).header("retry-after-ms")
    assert told is not None
    assert 0 < int(told) <= 600
    clock.passes(int(told) / 1000)
    upstream.always(replies.ordinary)
    assert (await ask(gateway.port, C0)).status == 200


async def test_one_probe_at_a_time(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, clock: FrozenClock
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, retry={"budget": 1.0}))
    upstream.always(replies.error(500))
    for _ in range(5):
        assert (await ask(gateway.port, C0)).status == 200
    assert await shown(gateway) == "open"
    clock.passes(3.9)  # a fifth less than the five seconds, at the least
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
    clock.passes(2.2)
    assert await shown(gateway) == "half-open"
    await gateway.counted("sluice_upstream_breaker_state", 1, upstream="a")
    upstream.reply([NEVER])
    probe = asyncio.create_task(ask(gateway.port, C0))
    await upstream.received(6)
    for _ in range(3):
        assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
    # Its client leaves, which says nothing of the upstream: the next call is the probe.
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    await upstream.peer_closed(6)
    await gateway.counted("sluice_requests_total", 1, outcome="client_gone")
    upstream.always(replies.ordinary)
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "a"
    assert await shown(gateway) == "closed"


async def test_a_probe_that_fails_opens_it_for_longer(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, clock: FrozenClock
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, retry={"budget": 1.0}))
    upstream.always(replies.error(500))
    for _ in range(5):
        await ask(gateway.port, C0)
    for failures, longest in enumerate((6.0, 12.0, 24.0), 5):
        assert len(upstream.calls) == failures
        clock.passes(longest / 1.2 * 0.79)
        await ask(gateway.port, C0)
        assert len(upstream.calls) == failures
        clock.passes(longest)
        await ask(gateway.port, C0)
    assert len(upstream.calls) == 8


NO_FAULT: dict[str, list[Step]] = {
    "route_08 a 429": replies.error(429),
    "route_08 a 503": replies.error(503),
    "route_08 a 529": replies.error(529),
    "a 408": replies.error(408),
    "route_05 a 400": replies.error(400),
    "route_05 a 404": replies.error(404),
    "retry_10 a 401": replies.error(401),
    "retry_10 a 402": replies.error(402),
}


@pytest.mark.parametrize("name", NO_FAULT)
async def test_route_05_route_08_these_open_nothing(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry=ONE_TRY))
    upstream.always(NO_FAULT[name])
    for _ in range(25):
        await ask(gateway.port, C0)
    assert len(upstream.calls) == 25
    assert await shown(gateway) == "closed"
    upstream.always(replies.ordinary)
    assert (await ask(gateway.port, C0)).status == 200


FAULTS: dict[str, list[Step]] = {
    "a 500": replies.error(500),
    "a 504": replies.error(504),
    "row 15 a reset": [RST],
    "row 5 no answer": [NEVER],
}


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("name", FAULTS)
async def test_row_17_these_open_it_and_the_others_are_answered_at_once(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, body: dict[str, object]
) -> None:
    config = routed(upstream.url, retry=ONE_TRY, upstream={"timeouts": {"first_byte": "100ms"}})
    gateway = await start_gateway(config)
    upstream.always(FAULTS[name])
    for number in range(5):
        assert (await ask(gateway.port, {**body, "seed": number})).status in (502, 504)
    assert await shown(gateway) == "open"
    assert (await ask(gateway.port, {**body, "seed": 9})).status == 503
    assert len(upstream.calls) == 5


async def test_row_16_one_of_two_that_always_fails(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(replies.error(500))
    until_found_out = [(await ask(gateway.port, C0)).status for _ in range(10)]
    assert until_found_out.count(200) >= 8
    assert len(upstream.calls) == 5
    good = 0
    for _ in range(1000):
        good += (await ask(gateway.port, C0)).status == 200
    assert good >= 999
    assert len(upstream.calls) <= 7


async def test_row_54_retry_05_a_dead_lone_upstream_and_400_calls_of_the_real_sdk(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(500))
    for _ in range(10):  # the warm-up
        await ask(gateway.port, C0)
    before = len(upstream.calls)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:

        async def one() -> int:
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(**C0)
            return caught.value.status_code

        begun = time.monotonic()
        statuses = await asyncio.gather(*(one() for _ in range(400)))
        lasted = time.monotonic() - begun
    assert set(statuses) <= {502, 503}
    assert len(upstream.calls) - before <= lasted + 2  # one a second
    assert (len(upstream.calls) - before) / 400 <= 1.1


async def test_row_54_without_the_breaker_the_budget_holds_alone(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Busy opens no breaker, and the SDK is told to stay away."""
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(replies.error(503, headers=[("x-should-retry", "false")]))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        for _ in range(20):
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(**C0)
    assert len(upstream.calls) == 20
    upstream.always(replies.error(429, headers=[("retry-after-ms", "1")]))
    before = len(upstream.calls)
    answers = [await ask(gateway.port, C0) for _ in range(300)]
    assert {answer.status for answer in answers} == {429}
    assert len(upstream.calls) - before <= 1.1 * 300 + 3
    assert len(upstream.calls) - before > 1.05 * 300
