"""Every field that can change an answer tells kept answers apart; streams that were left are not kept."""

from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient
from doubles.script import NEVER, frame, piece, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

C: dict[str, Any] = {**C0, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SAYS = {"role": "user", "content": "ping"}
FIELDS: dict[str, Any] = {
    "response_format": {"type": "json_object"},
    "tools": [TOOL],
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "stop": ["x"],
    "seed": 1,
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"50256": -100},
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "x_foo": 1,
    "messages": [{**SAYS, "name": "n"}],
}
TOOL_CALL_ID = {"messages": [{"role": "tool", "tool_call_id": "a", "content": "1"}, SAYS]}
OTHER_ID = {"messages": [{"role": "tool", "tool_call_id": "b", "content": "1"}, SAYS]}


@pytest.fixture
async def caching(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway that keeps answers."""
    return await start_gateway(settings(upstream.url, cache={"enabled": True}))


async def test_cache_01_one_more_field_is_another_answer(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    bodies = [C, *({**C, name: value} for name, value in FIELDS.items())]
    bodies += [{**C, **TOOL_CALL_ID}, {**C, **OTHER_ID}]
    for number, body in enumerate(bodies, 1):
        answer = await ask(caching.port, body)
        assert (answer.status, answer.header("x-cache-hit")) == (200, "false"), body
        assert len(upstream.calls) == number
    # Those that are kept at all are found again, each by itself.
    assert (await ask(caching.port, C)).header("x-cache-hit") == "true"
    assert (await ask(caching.port, {**C, "seed": 1})).header("x-cache-hit") == "true"


async def test_cache_04_c_a_stream_whose_client_has_left_is_not_kept(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    body = {**C, "stream": True}
    for number in range(3):
        upstream.reply([sse_head(), frame(piece("a")), NEVER])
        client = await RawClient.open(caching.port)
        await client.request("POST", CHAT, body)
        answer = await client.head()
        assert answer.header("x-cache-hit") == "false"
        await client.until(answer, b'"a"')
        await client.close()
        await upstream.peer_closed(number + 1)
    await caching.counted("sluice_requests_total", 3, outcome="client_gone")
    await caching.counted("sluice_cache_entries", 0)
    whole = await ask(caching.port, body)
    assert (whole.header("x-cache-hit"), whole.complete) == ("false", True)
    assert len(upstream.calls) == 4
