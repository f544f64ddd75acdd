"""Every stream tells the gateway its usage; a client sees of it what it has asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import DONE, Script, compact, event, full, piece, stop, stream, usage
from doubles.settings import settings
from doubles.sse import contents, data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import COMPLETIONS, S0, ask, public


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path) -> InProcessGateway:
    """One that keeps usage, and so has to know it."""
    return await start_gateway(settings(upstream.url, usage=kept(tmp_path)))


def kept(folder: Path) -> dict[str, Any]:
    """A section that needs usage."""
    return {"store": "sqlite", "path": str(folder / "usage.db")}


ASKED = {**S0, "stream_options": {"include_usage": True}}


def choices(text: str, finish: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]


def chunk(**members: Any) -> bytes:
    return event({"id": "c1", "model": "up-small", **members})


COUNTS = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
DIALECTS = {
    "openai": [
        chunk(choices=choices("po"), usage=None, obfuscation="x"),
        chunk(choices=choices("ng"), usage=None, obfuscation="y"),
        chunk(choices=choices("", "stop"), usage=None, obfuscation="z"),
        chunk(choices=[], usage=COUNTS),
    ],
    "vllm": [piece("po"), piece("ng"), stop(), usage(5, 2)],
    "deepseek": [piece("po"), piece("ng"), chunk(choices=choices("", "stop"), usage=COUNTS)],
}


def unasked(events: list[bytes]) -> bytes:
    """The same events as they would have been without asking, under the public name."""
    said = [json.loads(one[6:]) for one in events]
    plain = [{name: value for name, value in one.items() if name != "usage"} for one in said]
    return public([*(event(one) for one in plain if one["choices"]), DONE])


async def counted(gateway: InProcessGateway, calls: int = 1) -> None:
    await gateway.counted("sluice_tokens_total", 5.0 * calls, type="input")
    await gateway.counted("sluice_tokens_total", 2.0 * calls, type="output")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_rate_03_usage_is_counted_and_taken_out(
    gateway: InProcessGateway, upstream: FaultUpstream, dialect: str
) -> None:
    upstream.reply(stream(*DIALECTS[dialect], DONE))
    answer = await ask(gateway.port, S0)
    assert upstream.calls[0].json() == {**ASKED, "model": "up-small"}
    assert answer.body == unasked(DIALECTS[dialect])
    assert answer.header("x-sluice-attempts") == "1"
    await counted(gateway)
    await gateway.outcome("ok")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_client_that_asked_gets_all_of_it(
    gateway: InProcessGateway, upstream: FaultUpstream, dialect: str
) -> None:
    upstream.reply(stream(*DIALECTS[dialect], DONE))
    body = compact(ASKED)
    answer = await ask(gateway.port, body)
    assert upstream.calls[0].body == body.replace(b"m-small", b"up-small")
    assert answer.body == public([*DIALECTS[dialect], DONE])
    await counted(gateway)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}])
async def test_other_options_of_the_client_travel(
    gateway: InProcessGateway, upstream: FaultUpstream, options: dict[str, Any] | None
) -> None:
    answer = await ask(gateway.port, {**S0, "stream_options": options})
    assert upstream.calls[0].json()["stream_options"] == {**(options or {}), "include_usage": True}
    assert answer.body == public(replies.chat_events("po", "ng"))
    await counted(gateway)


@pytest.mark.parametrize("options", [7, [], {"include_usage": "yes"}])
async def test_what_only_the_upstream_can_judge_travels_as_it_is(
    gateway: InProcessGateway, upstream: FaultUpstream, options: Any
) -> None:
    upstream.reply(replies.error(400, "bad stream_options"))
    answer = await ask(gateway.port, {**S0, "stream_options": options})
    assert answer.status == 400
    assert [one.json()["stream_options"] for one in upstream.calls] == [options]


async def test_rate_04_completions_too(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    texts = [chunk(choices=[{"index": 0, "text": text, "finish_reason": None}]) for text in "ab"]
    last = chunk(choices=[{"index": 0, "text": "", "finish_reason": "stop"}])
    upstream.reply(stream(*texts, last, chunk(choices=[], usage=COUNTS), DONE))
    asked = {"model": "m-small", "prompt": "x", "stream": True}
    answer = await ask(gateway.port, asked, path=COMPLETIONS)
    assert upstream.calls[0].json()["stream_options"] == {"include_usage": True}
    assert answer.body == public([*texts, last, DONE])
    await counted(gateway)


async def test_nothing_is_asked_of_whole_answers(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    body = compact({**S0, "stream": False})
    assert (await ask(gateway.port, body)).json()["usage"] == COUNTS
    assert upstream.calls[0].body == body.replace(b"m-small", b"up-small")


async def test_a_text_or_a_tool_that_speaks_of_it_is_not_the_option(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    told = '{"stream_options":{"include_usage":true}}'
    body = {
        **S0,
        "messages": [{"role": "user", "content": told}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": json.loads(told)}}],
    }
    answer = await ask(gateway.port, body)
    sent = upstream.calls[0].json()
    assert sent == {**body, "model": "up-small", "stream_options": {"include_usage": True}}
    assert answer.body == public(replies.chat_events("po", "ng"))


def refuses(error: bytes, status: int) -> Any:
    """An upstream that knows no `stream_options`."""

    def answer(call: Call) -> Script:
        return [full(error, status)] if "stream_options" in call.json() else replies.ordinary(call)

    return answer


OPENAI = b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}'
PYDANTIC = b'{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}'


@pytest.mark.parametrize(
    ("error", "status"), [(OPENAI, 400), (PYDANTIC, 422), (b"unknown field `stream_options`", 422)]
)
async def test_sse_20_an_upstream_that_refuses_is_not_asked_again(
    gateway: InProcessGateway, upstream: FaultUpstream, error: bytes, status: int
) -> None:
    upstream.always(refuses(error, status))
    body = compact(S0)
    first, second = [await ask(gateway.port, body) for _ in range(2)]
    assert contents(first.body) == contents(second.body) == "pong"
    assert data_of(first.body)[-1] == "[DONE]"
    assert (first.header("x-sluice-attempts"), second.header("x-sluice-attempts")) == ("2", "1")
    plain = body.replace(b"m-small", b"up-small")
    assert [one.body == plain for one in upstream.calls] == [False, True, True]
    await gateway.outcome("ok", 2)
    assert (await gateway.metrics()).value("sluice_retries_total") == 0


async def test_what_such_an_upstream_tells_unasked_passes(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = replies.chat_events("hi", with_usage=True)
    upstream.reply([full(OPENAI, 400)], stream(*events))
    assert (await ask(gateway.port, S0)).body == public(events)
    await counted(gateway)


async def test_a_refusal_about_something_else_is_the_clients(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    upstream.reply(replies.error(400, "`temperature` is too high"))
    answer = await ask(gateway.port, S0)
    assert (answer.status, answer.header("x-sluice-attempts")) == (400, "1")
    assert "temperature" in answer.error["message"]
    assert len(upstream.calls) == 1


async def test_an_upstream_that_refuses_both_ways_is_asked_again_the_next_time(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    """Some put the whole request into every refusal, so `stream_options` is in it whatever is wrong."""
    upstream.reply(
        replies.error(400, "Extra inputs are not permitted: foo, stream_options"),
        replies.error(400, "Extra inputs are not permitted: foo"),
    )
    answer = await ask(gateway.port, {**S0, "foo": 1})
    assert (answer.status, answer.header("x-sluice-attempts")) == (400, "2")
    assert answer.error["message"] == "Extra inputs are not permitted: foo"
    await ask(gateway.port, S0)
    asked = ["stream_options" in one.json() for one in upstream.calls]
    assert asked == [True, False, True]


OTHER_WORDS: dict[str, Script] = {
    "another status": [full(b'{"error":{"message":"stream_options?"}}', 500)],
    "a missing route": [full(b'{"error":{"message":"no handler for include_usage"}}', 404)],
    "forbidden": [full(b'{"error":{"message":"stream_options is not for you"}}', 403)],
    "a Python error": [full(b'{"error":"create() got an unexpected keyword argument"}', 500)],
    "zod": [full(b'{"error":{"message":"Unrecognized key(s) in object"}}', 400)],
    "in camel case": [full(b'{"message":"streamOptions: Extra data"}', 400)],
    "an error in a 200": [full(b'{"error":{"message":"Unknown parameter: stream_options","code":400}}')],
    "an error event": stream(event({"error": {"message": "stream_options unsupported"}})),
    "a choice that failed": stream(chunk(choices=[{"index": 0, "error": {"message": "stream_options", "code": 400}}])),
}


@pytest.mark.parametrize("name", OTHER_WORDS)
async def test_a_refusal_in_other_words_or_statuses_is_remembered_too(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    upstream.always(lambda call: OTHER_WORDS[name] if "stream_options" in call.json() else replies.ordinary(call))
    first, second = [await ask(gateway.port, S0) for _ in range(2)]
    assert contents(first.body) == contents(second.body) == "pong"
    assert (first.header("x-sluice-attempts"), second.header("x-sluice-attempts")) == ("2", "1")
    assert ["stream_options" in one.json() for one in upstream.calls] == [True, False, False]
    await gateway.outcome("ok", 2)


async def test_one_model_that_refuses_leaves_the_others(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, usage=kept(tmp_path))
    config["models"]["m-other"] = {"candidates": [{"upstream": "local", "model": "up-other"}]}
    gateway = await start_gateway(config)
    upstream.reply([full(OPENAI, 400)])
    for model in ("m-small", "m-small", "m-other"):
        await ask(gateway.port, {**S0, "model": model})
    assert ["stream_options" in one.json() for one in upstream.calls] == [True, False, False, True]


async def test_an_upstream_that_must_not_be_asked_is_not(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, upstream={"ask_usage": False}, usage=kept(tmp_path))
    gateway = await start_gateway(config)
    body = compact(S0)
    await ask(gateway.port, body)
    await ask(gateway.port, ASKED)
    assert upstream.calls[0].body == body.replace(b"m-small", b"up-small")
    assert upstream.calls[1].json()["stream_options"] == {"include_usage": True}


TOLD = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32}
END: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
PLACES: dict[str, list[dict[str, Any]]] = {
    "Moonshot": [{"choices": [{**END, "usage": TOLD}]}],
    "beside null": [{"usage": None, "choices": [{**END, "usage": TOLD}]}],
    "in the delta": [{"choices": [{**END, "delta": {"usage": TOLD}}]}],
    "Groq": [{"choices": [END], "x_groq": {"id": "r", "usage": TOLD}}],
    "another extension": [{"choices": [END], "x_vendor": {"usage": TOLD}}],
    "a bare extension": [{"choices": [END], "x_usage": TOLD}],
    "in a chunk of its own": [{"choices": [END]}, {"choices": [], "x_groq": {"usage": TOLD}}],
    "without choices": [{"choices": [END]}, {"meta": {"usage": TOLD}}],
    "Gemini": [{"choices": [END], "usageMetadata": {"promptTokenCount": 19, "candidatesTokenCount": 13}}],
    "llama.cpp": [{"choices": [END], "timings": {"cache_n": 9, "prompt_n": 10, "predicted_n": 13}}],
    "Ollama": [{"choices": [END], "prompt_eval_count": 19, "eval_count": 13}],
    "Bedrock": [
        {"choices": [END]},
        {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 19, "outputTokenCount": 13}},
    ],
    "LangChain": [{"choices": [END], "token_usage": TOLD}],
    "usage wins": [{"choices": [{**END, "usage": COUNTS}]}, {"choices": [], "usage": TOLD}],
    "two choices": [
        {"choices": [{**END, "usage": {"prompt_tokens": 19, "completion_tokens": 6}}]},
        {"choices": [{**END, "index": 1, "usage": {"prompt_tokens": 19, "completion_tokens": 7}}]},
    ],
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("streamed", [True, False])
async def test_usage_is_found_wherever_it_is_and_passes_unchanged(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, name: str, streamed: bool
) -> None:
    config = settings(upstream.url, upstream={"ask_usage": False}, usage=kept(tmp_path))
    gateway = await start_gateway(config)
    if streamed:
        events = [piece("po"), *(chunk(**members) for members in PLACES[name]), DONE]
        upstream.reply(stream(*events))
        assert (await ask(gateway.port, S0)).body == public(events)
    else:
        merged: dict[str, Any] = {"choices": []}
        for members in PLACES[name]:
            merged |= {**members, "choices": merged["choices"] + members.get("choices", [])}
        body = compact({"model": "up-small", **merged})
        upstream.reply([full(body)])
        answer = await ask(gateway.port, {**S0, "stream": False})
        assert answer.body == public([body])
        assert answer.header("x-sluice-usage") is None
    await gateway.counted("sluice_tokens_total", 19, type="input")
    await gateway.counted("sluice_tokens_total", 13, type="output")
    assert (await gateway.metrics()).value("sluice_usage_estimated_attempts_total") == 0


@pytest.mark.parametrize("status", [401, 402, 429, 503])
async def test_an_account_or_a_busy_upstream_is_no_refusal_to_be_asked(
    gateway: InProcessGateway, upstream: FaultUpstream, status: int
) -> None:
    upstream.reply(replies.error(status, "unknown field stream_options"))
    await ask(gateway.port, S0)
    assert len(upstream.calls) == 1


async def test_a_client_that_asked_gets_the_refusal(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.always(refuses(OPENAI, 400))
    answer = await ask(gateway.port, ASKED)
    assert (answer.status, len(upstream.calls)) == (400, 1)
    assert "stream_options" in answer.error["message"]
