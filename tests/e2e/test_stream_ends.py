"""What ends a choice, and a stream with several of them; failures that are reported inside a choice."""

from typing import Any

import openai
import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import DONE, FIN, LAST_CHUNK, RST, Step, compact, event, frame, full, sse_head
from doubles.settings import settings
from doubles.sse import data_of, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, COMPLETIONS, S0, ask

UNSAID: list[Any] = ["", "null", "None", " ", "NULL", "undefined", "FINISH_REASON_UNSPECIFIED", False, 0, {}]
CALL = {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "rm", "arguments": '{"path"'}}]}
ENDS: dict[str, Step] = {"clean": LAST_CHUNK, "fin": FIN, "reset": RST}
FAILURES: dict[str, tuple[dict[str, Any], int]] = {
    "an error beside its reason": (
        {"delta": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "boom"}},
        502,
    ),
    "an error without a reason": ({"delta": {}, "finish_reason": None, "error": {"message": "boom"}}, 502),
    "an error as text": ({"delta": {}, "error": "boom", "finish_reason": ""}, 502),
    "an error with a status": ({"delta": {}, "error": {"code": 503, "message": "boom"}}, 503),
    "Mistral": ({"delta": {}, "finish_reason": "error"}, 502),
    "Zhipu": ({"delta": {}, "finish_reason": "network_error"}, 502),
    "DeepSeek": ({"delta": {}, "finish_reason": "insufficient_system_resource"}, 503),
    "vLLM, SGLang": ({"delta": {}, "finish_reason": "abort"}, 502),
    "in capitals": ({"delta": {}, "finish_reason": "ERROR"}, 502),
    "a time limit": ({"delta": {}, "finish_reason": "timeout"}, 504),
}


def said(finish: Any, index: int = 0, **content: Any) -> bytes:
    """One chunk of one choice."""
    choice = {"index": index, **(content or {"delta": {"content": "x"}}), "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "up-small", "choices": [choice]})


async def streamed(
    gateway: InProcessGateway, upstream: FaultUpstream, body: dict[str, Any], *steps: Step, path: str = CHAT
) -> bytes:
    """The answer's body."""
    upstream.reply([sse_head(), *steps])
    answer = await ask(gateway.port, {**S0, **body}, path=path)
    assert answer.status == 200
    return answer.body


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("reason", UNSAID, ids=repr)
async def test_a_reason_that_says_nothing_ends_nothing(
    gateway: InProcessGateway, upstream: FaultUpstream, reason: Any, end: str
) -> None:
    chunks = [frame(said(reason)), frame(said(reason))]
    assert final_error(await streamed(gateway, upstream, {}, *chunks, ENDS[end]))["code"] == "upstream_error"
    await gateway.outcome("truncated")
    await gateway.counted("sluice_upstream_attempts_total", 0, result="success")


@pytest.mark.parametrize("reason", UNSAID, ids=repr)
async def test_a_real_reason_after_it_ends_the_choice(
    gateway: InProcessGateway, upstream: FaultUpstream, reason: Any
) -> None:
    chunks = [frame(said(reason)), frame(said("stop", delta={}))]
    assert b'"error"' not in await streamed(gateway, upstream, {}, *chunks, LAST_CHUNK)
    await gateway.outcome("ok")


async def test_it_ends_no_tool_call_and_no_completion(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    final_error(await streamed(gateway, upstream, {}, frame(said("", delta=CALL)), LAST_CHUNK))
    text = {"model": "m-small", "prompt": "a"}
    chunk = frame(said("", text="x"))
    final_error(await streamed(gateway, upstream, text, chunk, LAST_CHUNK, path=COMPLETIONS))
    await gateway.outcome("truncated", 2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"n": 2}),
        (COMPLETIONS, {"n": 2, "prompt": "a"}),
        (COMPLETIONS, {"prompt": ["a", "b"]}),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}),
        (CHAT, {"n": 2.0}),
    ],
)
async def test_every_choice_that_was_asked_for_needs_its_own_end(
    gateway: InProcessGateway, upstream: FaultUpstream, path: str, body: dict[str, Any]
) -> None:
    first, second = frame(said("stop")), frame(said("length", index=1))
    final_error(await streamed(gateway, upstream, body, first, LAST_CHUNK, path=path))
    final_error(await streamed(gateway, upstream, body, first, first, RST, path=path))
    await gateway.outcome("truncated", 2)
    for good in ([first, second, LAST_CHUNK], [second, first, FIN], [first, frame(DONE), FIN]):
        assert b'"error"' not in await streamed(gateway, upstream, body, *good, path=path)
    await gateway.counted("sluice_requests_total", 3, outcome="ok")


async def test_two_choices_may_end_in_one_chunk(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    both = [{"index": at, "delta": {}, "finish_reason": "stop"} for at in (0, 1)]
    chunk = frame(event({"model": "up-small", "choices": both}))
    assert b'"error"' not in await streamed(gateway, upstream, {"n": 2}, chunk, LAST_CHUNK)


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_inside_a_choice_breaks_the_stream(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    choice, status = FAILURES[name]
    failing = event({"model": "up-small", "choices": [{"index": 0, **choice}]})
    # With the same beginning as the chunk before it, and with another one.
    for before in (event({"model": "up-small", "choices": [{"index": 0, "delta": {}}]}), said(None)):
        body = await streamed(gateway, upstream, {}, frame(before), frame(failing), frame(DONE), LAST_CHUNK)
        assert (
            final_error(body)["code"]
            == {
                502: "upstream_error",
                503: "upstream_unavailable",
                504: "upstream_timeout",
            }[status]
        )
        assert len(data_of(body)) == 2
    await gateway.counted("sluice_requests_total", 0, outcome="ok")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_inside_a_choice_moves_on(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, stream: bool
) -> None:
    choice, _ = FAILURES[name]
    choice = {"index": 0, **choice, "message": {"role": "assistant", "content": None}}
    answer = {"id": "c", "object": "chat.completion", "model": "up-small", "choices": [choice]}
    config = settings(upstream.url, retry={"attempts": 2, "backoff_base": "1ms"})
    config["upstreams"]["other"] = {"base_url": upstream.url}
    config["models"]["m-small"]["candidates"].append({"upstream": "other", "model": "up-small"})
    gateway = await start_gateway(config)
    failing = [sse_head(), frame(event(answer)), LAST_CHUNK] if stream else [full(compact(answer))]
    upstream.reply(failing)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = S0["messages"]
        if stream:
            chunks = await client.chat.completions.create(model="m-small", messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])
        else:
            whole = await client.chat.completions.create(model="m-small", messages=messages)
            text = whole.choices[0].message.content or ""
    assert text == "pong"
    assert len(upstream.calls) == 2
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="local", result="retryable")


async def test_an_empty_error_in_a_choice_is_none(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    for nothing in (None, "", {}, False):
        choice = {"index": 0, "delta": {}, "finish_reason": "stop", "error": nothing}
        chunk = frame(event({"model": "up-small", "choices": [choice]}))
        assert len(data_of(await streamed(gateway, upstream, {}, frame(said(None)), chunk, LAST_CHUNK))) == 2
    await gateway.outcome("ok", 4)
