"""One name for clients, another one upstream, and a header that tells the truth."""

import json
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.script import DONE, event, full, stream
from doubles.settings import settings
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, COMPLETIONS, EMBEDDINGS, ask

ROUTES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": []}),
    (CHAT, {"messages": [], "stream": True}),
    (COMPLETIONS, {"prompt": "x"}),
    (COMPLETIONS, {"prompt": "x", "stream": True}),
    (EMBEDDINGS, {"input": "x"}),
]


def models(public: str, served: str) -> dict[str, Any]:
    """A config's models with one alias."""
    return {public: {"candidates": [{"upstream": "local", "model": served}]}}


@pytest.mark.parametrize("names", [("fast", "org/model-7b"), ("org/fast", "m"), ('quo"te', "mod\\el ü")])
@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_route_03_an_alias_on_every_route(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    path: str,
    body: dict[str, Any],
    names: tuple[str, str],
) -> None:
    public, served = names
    gateway = await start_gateway(settings(upstream.url, models=models(public, served)))
    answer = await ask(gateway.port, {**body, "model": public}, path=path)
    assert answer.status == 200
    assert upstream.calls[0].json() == {**body, "model": served}
    if body.get("stream"):
        told = [json.loads(data)["model"] for data in data_of(answer.body) if data != "[DONE]"]
    else:
        told = [answer.json()["model"]]
    assert set(told) == {public}
    assert answer.header("x-sluice-upstream") == "local"
    assert answer.header("x-sluice-attempts") == "1"
    if served.isascii():
        assert answer.header("x-sluice-upstream-model") == served
    await gateway.outcome("ok", model=public)


async def test_route_03_whatever_the_upstream_calls_itself(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    names = ["up-small-2024", "/models/up-small.gguf", "m-small", None]
    chunks = [{"choices": [{"delta": {"content": '"model":"x"'}}], "model": name} for name in names]
    nested = {"model": "a", "choices": [{"model": "b", "finish_reason": "stop", "delta": {"model": "c"}}]}
    upstream.reply(stream(*map(event, [*chunks, nested, {"choices": []}]), DONE))
    answer = await ask(gateway.port, {"model": "m-small", "stream": True})
    told = [json.loads(data) for data in data_of(answer.body)[:-1]]
    assert [one.get("model") for one in told] == ["m-small", "m-small", "m-small", None, "m-small", None]
    assert told[4]["choices"] == nested["choices"]
    assert [one["choices"] for one in told[:4]] == [one["choices"] for one in chunks]


async def test_route_03_an_answer_without_a_model_stays_without_one(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    upstream.reply([full(b'{"object":"list","data":[]}')], replies.embeddings())
    answer = await ask(gateway.port, {"model": "m-embed", "input": "x"}, path=EMBEDDINGS)
    assert answer.body == b'{"object":"list","data":[]}'
