"""A stream that does not end: cut when it is far beyond its cap, and only then."""

import asyncio
from typing import Any

import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import DONE, LAST_CHUNK, NEVER, Step, Until, delta, event, frame, piece, sse_head
from doubles.settings import settings
from doubles.sse import contents, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, COMPLETIONS, S0, ask

from gateway.context_window import output_cap

CAP = 20
MANY = 2 * int(output_cap.limit(CAP))
TEXT = " word"


def text(words: str) -> bytes:
    """A chunk of a completion."""
    choice = {"index": 0, "text": words, "finish_reason": None}
    return event({"id": "t1", "object": "text_completion", "model": "up-small", "choices": [choice]})


def begun(chunk: bytes, times: int) -> list[Step]:
    return [sse_head(), frame(chunk) * times]


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    upstream_section = {"timeouts": {"idle": "5s"}}  # so that a stream that is not cut fails, and ends
    return await start_gateway(settings(upstream.url, server={"heartbeat": "100ms"}, upstream=upstream_section))


async def watched(
    gateway: InProcessGateway, upstream: FaultUpstream, script: list[Step], asked: dict[str, Any], path: str
) -> Answer:
    """The answer to a stream that ends well, but not before there was time to look at it: a heartbeat."""
    go_on = asyncio.Event()
    upstream.reply([*script, Until(go_on), frame(DONE), LAST_CHUNK])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", path, asked)
        answer = await client.head()
        await client.until(answer, b": keep-alive")
        go_on.set()
        await client.rest(answer)
        return answer


@pytest.mark.parametrize(
    "caps",
    [
        {"max_tokens": CAP},
        {"max_completion_tokens": CAP},
        {"max_tokens": CAP // 2, "n": 2},
        {"max_tokens": str(CAP)},
    ],
)
async def test_row_43_a_stream_far_beyond_its_cap_is_cut(
    upstream: FaultUpstream, gateway: InProcessGateway, caps: dict[str, Any]
) -> None:
    upstream.reply([*begun(piece(TEXT), MANY), NEVER])
    answer = await ask(gateway.port, {**S0, **caps})
    assert (answer.status, answer.complete, answer.end) == (200, False, "fin")
    assert final_error(answer.body)["code"] == "upstream_invalid_response"
    assert contents(answer.body) == TEXT * MANY
    await upstream.peer_closed(1)
    await gateway.outcome("truncated")
    await gateway.counted("sluice_upstream_attempts_total", 1, result="retryable")


@pytest.mark.parametrize("caps", [{}, {"max_tokens": None}, {"max_tokens": -1}, {"max_tokens": 10**6}])
async def test_without_a_small_cap_a_stream_may_be_long(
    upstream: FaultUpstream, gateway: InProcessGateway, caps: dict[str, Any]
) -> None:
    answer = await watched(gateway, upstream, begun(piece(TEXT), MANY), {**S0, **caps}, CHAT)
    assert answer.complete
    assert contents(answer.body) == TEXT * MANY


async def test_what_an_engine_does_without_a_cap_is_its_own_affair(
    upstream: FaultUpstream, gateway: InProcessGateway
) -> None:
    """Sixteen tokens, says OpenAI of completions; others go on to the end."""
    asked = {"model": "m-small", "prompt": "x", "stream": True}
    assert (await watched(gateway, upstream, begun(text(TEXT), MANY), asked, COMPLETIONS)).complete


WITHIN = {
    "many tokens in a chunk": begun(piece(TEXT * 100), CAP),
    "a letter in a chunk": begun(piece("a"), MANY),
    "nothing in a chunk": begun(piece(""), MANY),
}


THOUGHTS: dict[str, dict[str, Any]] = {
    "reasoning_content": {"reasoning_content": TEXT},
    "reasoning": {"reasoning": TEXT},
    "beside an empty content": {"content": "", "reasoning_content": TEXT},
    "OpenRouter": {
        "content": "",
        "reasoning": TEXT,
        "reasoning_details": [{"type": "reasoning.text", "text": TEXT}],
    },
    "Mistral": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": TEXT}]}]},
    "thinking": {"thinking": TEXT},
    "thinking blocks": {"thinking_blocks": [{"type": "thinking", "thinking": TEXT}]},
    "details alone": {"reasoning_details": [{"type": "reasoning.text", "text": TEXT}]},
}


@pytest.mark.parametrize("cap", [1, 30])
@pytest.mark.parametrize("name", THOUGHTS)
async def test_thoughts_are_not_held_against_the_cap(
    upstream: FaultUpstream, gateway: InProcessGateway, name: str, cap: int
) -> None:
    script = [sse_head(), frame(delta(THOUGHTS[name]) * 3000), frame(piece(TEXT) * 30)]
    answer = await watched(gateway, upstream, script, {**S0, "max_tokens": cap}, CHAT)
    assert answer.complete
    await gateway.outcome("ok")


@pytest.mark.parametrize("name", ["content", "thoughts"])
async def test_what_goes_on_after_or_as_thoughts_is_cut_all_the_same(
    upstream: FaultUpstream, gateway: InProcessGateway, name: str
) -> None:
    thought = delta({"reasoning_content": TEXT})
    some = [frame(thought * 2000), frame(piece(TEXT) * MANY)]
    endless = [frame(thought * 1000)] * 36
    upstream.reply([sse_head(), *(some if name == "content" else endless), NEVER])
    answer = await ask(gateway.port, {**S0, "max_tokens": CAP})
    assert final_error(answer.body)["code"] == "upstream_invalid_response"
    await gateway.outcome("truncated")


@pytest.mark.parametrize("script", WITHIN)
async def test_a_stream_that_may_be_within_its_cap_is_not_cut(
    upstream: FaultUpstream, gateway: InProcessGateway, script: str
) -> None:
    """However it was cut into chunks."""
    answer = await watched(gateway, upstream, WITHIN[script], {**S0, "max_tokens": CAP}, CHAT)
    assert answer.complete
