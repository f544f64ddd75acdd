"""Retries of the SDK, the gateway and its fallbacks together are few calls, and one where one is wanted."""

from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import call
from doubles.routed import routed
from doubles.script import FIN, RST, Step, piece, sse_head, stream
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_retry_05_the_sdk_two_attempts_and_two_fallbacks_are_four_calls(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    """Each with its own retries, not knowing of the others, would make 27."""
    gateway = await start_gateway(routed(upstream.url, fallbacks=(other.url, other.url)))
    upstream.always(replies.error(500))
    other.always(replies.error(500))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**body)
    assert [one.json()["model"] for one in upstream.calls] == ["up-a", "up-a"]
    assert [one.json()["model"] for one in other.calls] == ["up-x", "up-y"]


FAILS: dict[str, list[Step]] = {
    "before the head": [RST],
    "by its status": replies.error(500),
    "behind the 200": [sse_head(), FIN],
    "after the first event": [*stream(piece("one"), end=False), FIN],
}


@pytest.mark.parametrize("name", FAILS)
async def test_retry_11_one_attempt_is_one_call_wherever_a_stream_fails(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, retry={"attempts": 1}))
    upstream.always(FAILS[name])
    answer = await ask(gateway.port, S0)
    assert answer.status != 200 or not answer.complete
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("name", FAILS)
async def test_retry_11_a_client_that_has_sent_it_often_enough_gets_one_call(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    """The SDK's header is how one call says that no retry of its own is left to the gateway."""
    gateway = await start_gateway(routed(upstream.url))
    upstream.always(FAILS[name])
    await ask(gateway.port, S0, [("x-stainless-retry-count", "1")])
    assert len(upstream.calls) == 1


async def test_route_07_a_failure_of_a_fallback_counts_once(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, fallbacks=(other.url,), retry={"attempts": 1})
    config["upstreams"]["a"]["breaker"] = {"failures": 100}
    config["upstreams"]["x"]["breaker"] = {"failures": 2}
    gateway = await start_gateway(config)
    upstream.always(replies.error(500))
    other.always(replies.error(500))
    for state in ("closed", "open"):
        await ask(gateway.port, C0)
        shown = await call(gateway.admin_port, "GET", "/admin/upstreams")
        assert shown.json()["x"]["breaker"] == state
    assert len(other.calls) == 2
