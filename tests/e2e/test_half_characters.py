"""The gateway reads no stricter than the JSON readers of Python and JavaScript; the bytes pass unchanged."""

import json
from typing import Any

import openai
import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import call
from doubles.script import DONE, LAST_CHUNK, frame, full, sse_head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, EMBEDDINGS, ask

HALVES = {
    "the first half": rb"a\ud83d",
    "the second half": rb"\ude00 b",
    "both, the wrong way round": rb"\ude00\ud83d",
    "in capitals": rb"\uD83D",
    "before an escape": rb"\ud83d\n",
    "before a letter": rb"\ud83dude00",
    "after an escaped backslash": rb"\\\ud83d",
    "two first halves": rb"\ud83d\ud83d\ude00",
}
REQUESTS: dict[str, tuple[str, bytes]] = {
    "chat": (CHAT, b'{"model":"m-small","messages":[{"role":"user","content":"X"}],"max_tokens":7}'),
    "chat parts": (
        CHAT,
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"X"}]}],"model":"m-small"}',
    ),
    "stream": (CHAT, b'{"model":"m-small","stream":true,"messages":[{"role":"user","content":"X"}]}'),
    "name": (CHAT, b'{"model":"m-small","messages":[],"X":1}'),
    "completions": (COMPLETIONS, b'{"prompt":"X","model":"m-small"}'),
    "embeddings": (EMBEDDINGS, b'{"model":"m-embed","input":["X","b"]}'),
}
ANSWERS: dict[str, tuple[str, bytes]] = {
    "chat": (
        CHAT,
        b'{"id":"X","model":"up-small","choices":[{"message":{"content":"X"},"finish_reason":"stop"}]}',
    ),
    "name": (CHAT, b'{"model":"up-small","X":{"X":["X"]},"choices":[]}'),
    "completions": (
        COMPLETIONS,
        b'{"choices":[{"index":0,"text":"X","finish_reason":"stop"}],"model":"up-small"}',
    ),
    "embeddings": (EMBEDDINGS, b'{"model":"up-embed","data":[{"index":0,"embedding":[1],"text":"X"}]}'),
}
ODD = {
    "NaN": (b'{"model":"up-small","choices":[{"logprobs":[NaN,-Infinity,Infinity, NaN ],"text":"NaN"}]}'),
    "a mark": b'\xef\xbb\xbf{"model":"up-small","choices":[]}',
    "both": b'\xef\xbb\xbf{"x":"\\ud83d NaN","y":NaN,"model":"up-small","choices":[]}',
}


def caching(upstream: FaultUpstream) -> dict[str, Any]:
    """A config in which requests pass through as many features as possible."""
    return settings(
        upstream.url,
        cache={"enabled": True},
        batching={"policy": "window", "max_wait": "1ms"},
        upstream={"kind": "vllm", "cache_salt": None},
    )


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_passes_unchanged(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, half: str
) -> None:
    path, template = REQUESTS[name]
    body = template.replace(b"X", HALVES[half])
    json.loads(body)  # Python takes it
    gateway = await start_gateway(caching(upstream))
    for _ in range(2):
        answer = await ask(gateway.port, body, path=path)
        assert answer.status == 200
    sent = [call for call in upstream.calls if call.target.endswith(path.removeprefix("/v1"))]
    assert sent[0].body.replace(b"up-", b"m-") == body.replace(b"up-", b"m-")
    await gateway.outcome("ok", 2)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_whole_answer_passes_unchanged(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str, half: str
) -> None:
    path, template = ANSWERS[name]
    body = template.replace(b"X", HALVES[half])
    upstream.always([full(body)])
    gateway = await start_gateway(caching(upstream))
    model = "m-embed" if path == EMBEDDINGS else "m-small"
    asked = {"model": model, "input": "a", "prompt": "a", "messages": C0["messages"]}
    answer = await ask(gateway.port, asked, path=path)
    assert (answer.status, answer.body) == (200, body.replace(b'"up-', b'"m-'))
    await gateway.outcome("ok")


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("key", ["content", "reasoning_content", "refusal"])
async def test_a_stream_passes_unchanged(
    upstream: FaultUpstream, start_gateway: StartGateway, half: str, key: str
) -> None:
    def chunk(text: bytes, finish: bytes = b"null") -> bytes:
        delta = b'{"%b":"%b"}' % (key.encode(), text)
        choice = b'{"index":0,"delta":%b,"finish_reason":%b}' % (delta, finish)
        return b'data: {"id":"c","model":"up-small","choices":[%b]}\n\n' % choice

    events = [chunk(b"a"), chunk(HALVES[half]), chunk(b"b"), chunk(HALVES[half], b'"stop"'), DONE]
    upstream.always([sse_head(), *map(frame, events), LAST_CHUNK])
    gateway = await start_gateway(caching(upstream))
    answer = await ask(gateway.port, {**C0, "stream": True})
    assert answer.body == b"".join(events).replace(b"up-small", b"m-small")
    upstream.always([sse_head(), *map(frame, events[:-1]), LAST_CHUNK])
    assert b'"error"' not in (await ask(gateway.port, {**C0, "stream": True, "n": 1})).body
    await gateway.outcome("ok", 2)


async def test_the_sdk_gets_both_halves_of_an_emoji(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    chunk = b'data: {"id":"c","object":"chat.completion.chunk","model":"up-small","choices":[%b]}\n\n'
    texts = [b"a", rb"\ud83d", rb"\ude00"]
    choices = [b'{"index":0,"delta":{"content":"%b"},"finish_reason":null}' % text for text in texts]
    events = [chunk % choice for choice in choices]
    upstream.reply([sse_head(), *map(frame, events), frame(DONE), LAST_CHUNK])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        messages: Any = C0["messages"]
        chunks = await client.chat.completions.create(model="m-small", messages=messages, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in chunks] == ["a", "\ud83d", "\ude00"]


@pytest.mark.parametrize("name", ODD)
async def test_numbers_and_marks_that_python_takes_pass_in_answers(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    upstream.reply([full(ODD[name])])
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.body) == (200, ODD[name].replace(b"up-small", b"m-small"))


@pytest.mark.parametrize("name", ["NaN"])
async def test_and_in_streams(gateway: InProcessGateway, upstream: FaultUpstream, name: str) -> None:
    event = b"data: " + ODD[name] + b"\n\n"
    upstream.reply([sse_head(), frame(event), frame(event), frame(DONE), LAST_CHUNK])
    answer = await ask(gateway.port, {**C0, "stream": True})
    assert answer.body == (event * 2 + DONE).replace(b"up-small", b"m-small")


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m-small","messages":[],"temperature":NaN}',
        b'{"model":"m-small","messages":[],"x":-Infinity}',
        b'{"model":"m-small","messages":["\\ud83d"],"temperature":1NaN}',
        b'{"model":"m-small","messages":["\\ud8"]}',
        b'{"model":"m-small","messages":["\\ud83d]}',
        b'{"model":"m-small","messages":["\\ud83d"],"temperature":"NaN"}',
    ],
)
async def test_what_no_engine_can_compute_with_stays_refused(
    gateway: InProcessGateway, upstream: FaultUpstream, body: bytes
) -> None:
    assert (await ask(gateway.port, body)).status == 400
    assert not upstream.calls


async def test_a_cap_beside_half_an_emoji_still_holds(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    body = b'{"model":"m-small","messages":[{"role":"user","content":"\\ud83d"}],"n":129}'
    gateway = await start_gateway(settings(upstream.url))
    assert (await ask(gateway.port, body)).error["param"] == "n"
    deep = b'{"model":"m-small","messages":["\\ud83d"],"x":' + b"[" * 200 + b"]" * 200 + b"}"
    assert (await ask(gateway.port, deep)).error["code"] == "invalid_json"


async def test_a_model_name_beyond_ascii_is_percent_encoded(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url)
    names = {"größe": "gr%C3%B6%C3%9Fe", "모델": "%EB%AA%A8%EB%8D%B8", "a b/c:d": "a b/c:d"}
    config["models"] = {name: {"candidates": [{"upstream": "local"}]} for name in names}
    gateway = await start_gateway(config)
    for name, shown in names.items():
        answer = await call(gateway.port, "POST", CHAT, {**C0, "model": name})
        assert (answer.status, answer.header("x-sluice-upstream-model")) == (200, shown)
