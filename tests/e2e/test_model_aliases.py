"""Aliases of a model: further names that clients may ask for, exact or as patterns."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import ListingEngine, merging, text
from doubles.rawclient import call
from doubles.script import DONE, compact, event, full, stream
from doubles.settings import KEY, settings
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import EMBEDDINGS, ask

ALIASES = ["gpt-4o-mini", "claude-haiku-*"]
ASKED = ["gpt-4o-mini", "claude-haiku-4-5", "m-small"]


def aliased(url: str, **sections: Any) -> dict[str, Any]:
    """A config in which `m-small` has aliases."""
    config = settings(url, **sections)
    config["models"]["m-small"]["aliases"] = ALIASES
    return config


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys, whose `m-small` has aliases."""
    return await start_gateway(aliased(upstream.url, keys=True))


@pytest.fixture
async def sdk(gateway: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client as its users make it."""
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("asked", ASKED)
async def test_the_answer_names_what_was_asked_for(
    upstream: FaultUpstream, gateway: InProcessGateway, sdk: openai.AsyncOpenAI, asked: str
) -> None:
    messages: Any = [{"role": "user", "content": "ping"}]
    raw = await sdk.chat.completions.with_raw_response.create(model=asked, messages=messages)
    assert raw.parse().model == asked
    assert raw.headers["x-sluice-upstream-model"] == "up-small"
    reading = await sdk.chat.completions.create(model=asked, messages=messages, stream=True)
    assert {chunk.model async for chunk in reading} == {asked}
    assert [one.json()["model"] for one in upstream.calls] == ["up-small", "up-small"]
    assert (await sdk.models.retrieve(asked)).id == asked
    await gateway.counted("sluice_requests_total", 2, model="m-small", outcome="ok")


@pytest.mark.parametrize("asked", ASKED)
async def test_an_upstream_that_uses_the_public_name(
    upstream: FaultUpstream, start_gateway: StartGateway, asked: str
) -> None:
    models = {"m-small": {"candidates": [{"upstream": "local"}], "aliases": ALIASES}}
    gateway = await start_gateway(settings(upstream.url, models=models))
    chunk = {"model": "m-small", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    upstream.reply(replies.ordinary, stream(event(chunk), DONE))
    assert (await ask(gateway.port, {"model": asked, "messages": []})).json()["model"] == asked
    streamed = await ask(gateway.port, {"model": asked, "messages": [], "stream": True})
    assert [json.loads(data)["model"] for data in data_of(streamed.body)[:-1]] == [asked]


async def test_only_exact_aliases_are_listed(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["m-small", "m-embed", "gpt-4o-mini"]
    with pytest.raises(openai.NotFoundError, match="claude-sonnet-4"):
        await sdk.models.retrieve("claude-sonnet-4")
    with pytest.raises(openai.NotFoundError, match="claude-sonnet-4"):
        await sdk.chat.completions.create(model="claude-sonnet-4", messages=[])


async def test_a_key_may_use_the_aliases_of_its_models_only(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    keys = [
        {"name": "team-a", "key": "key-of-team-a", "models": ["m-small"]},
        {"name": "team-b", "key": "key-of-team-b", "models": ["m-embed", "gpt-4o-mini"]},
    ]
    gateway = await start_gateway(aliased(upstream.url) | {"keys": keys})
    for key, status, listed in (("key-of-team-a", 200, True), ("key-of-team-b", 403, False)):
        headers = [("x-api-key", key)]
        assert (await ask(gateway.port, {"model": "gpt-4o-mini", "messages": []}, headers)).status == status
        listing = await call(gateway.port, "GET", "/v1/models", headers=headers)
        assert ("gpt-4o-mini" in {entry["id"] for entry in listing.json()["data"]}) == listed
        one = await call(gateway.port, "GET", "/v1/models/claude-haiku-4", headers=headers)
        assert one.status == (200 if listed else 404)


async def test_no_alias_is_a_way_around_fields_that_steer_the_engine(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(aliased(upstream.url, keys=True, upstream={"kind": "vllm"}))
    for asked in ASKED:
        body = {"model": asked, "messages": [], "priority": -1}
        answer = await ask(gateway.port, body, [("x-api-key", KEY)])
        assert (answer.status, answer.error["param"]) == (400, "priority")
    assert upstream.calls == []


async def test_a_cached_answer_has_the_name_that_was_asked_for(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(aliased(upstream.url, cache={"enabled": True}))
    for hit in ("false", "true"):
        for asked in ASKED:
            body = {"model": asked, "messages": [{"role": "user", "content": "ping"}], "temperature": 0}
            answer = await ask(gateway.port, body)
            assert (answer.json()["model"], answer.header("x-cache-hit")) == (asked, hit)
    assert len(upstream.calls) == len(ASKED)


async def test_merged_calls_keep_their_names(start_gateway: StartGateway, engine: ListingEngine) -> None:
    config = merging(engine.upstream.url, {"policy": "window", "max_wait": "1m", "max_size": 2})
    config["models"]["m-embed"]["aliases"] = ["ada*"]
    gateway = await start_gateway(config)
    asked = ["m-embed", "ada-1", "ada-2", "m-embed", "ada-1", "ada-2"]
    answers = await asyncio.gather(*(ask(gateway.port, text("a", model=name), path=EMBEDDINGS) for name in asked))
    assert [answer.json()["model"] for answer in answers] == asked
    assert [one.json() for one in engine.upstream.calls] == [{"model": "up-embed", "input": ["a", "a"]}] * 3


async def test_truncated_answers_are_counted_for_the_model(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(aliased(upstream.url))
    choice = {"index": 0, "message": {"role": "assistant", "content": "p"}, "finish_reason": "length"}
    upstream.always([full(compact({"model": "up-small", "choices": [choice]}))])
    for asked in ASKED:
        await ask(gateway.port, {"model": asked, "messages": []})
    await gateway.counted("sluice_truncated_responses_total", len(ASKED), model="m-small")
    await gateway.counted("sluice_truncated_responses_total", len(ASKED))
