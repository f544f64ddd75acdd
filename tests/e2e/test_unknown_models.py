"""An upstream that does not know a candidate's model: the config's mistake, not the client's."""

import asyncio
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.listing_engine import ListingEngine, gathering, merging
from doubles.rawclient import call
from doubles.routed import routed
from doubles.script import Script
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

GONE = {
    "vllm": replies.error(404, "The model `up-a` does not exist.", kind="NotFoundError", code=404),
    "openai": replies.error(404, "The model `up-a` does not exist or you have no access.", code="model_not_found"),
    "ollama": replies.error(404, 'model "up-a" not found, try pulling it first', kind="api_error"),
    "openrouter": replies.error(400, "up-a is not a valid model ID", code=400),
    "deepseek": replies.error(400, "Model Not Exist", kind="invalid_request_error", code="invalid_request_error"),
    "groq": replies.error(400, "The model `up-a` has been decommissioned.", code="model_decommissioned"),
}


@pytest.mark.parametrize("name", GONE)
async def test_another_candidate_answers_and_is_asked_first_for_a_while(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(GONE[name])
    for attempts in ("2", "1", "1"):
        answer = await ask(gateway.port, C0)
        assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
        assert answer.header("x-sluice-attempts") == attempts
    assert len(upstream.calls) == 1
    await gateway.counted("sluice_retries_total", 1, upstream="a", reason="model")
    assert (await gateway.metrics()).value("sluice_upstream_breaker_state", upstream="a") == 0


async def test_with_nobody_left_the_client_gets_the_upstream_s_words_and_the_upstream_is_blamed(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url))
    upstream.always(replies.error(404, "The model `up-small` does not exist.", code="model_not_found"))
    answer = await ask(gateway.port, C0)
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert answer.error["message"] == "The model `up-small` does not exist."
    await gateway.outcome("upstream_error")
    shown = (await call(gateway.admin_port, "GET", "/admin/upstreams")).json()["local"]
    assert shown["state"] == "failing"
    assert shown["last_error"]["message"] == (
        "Upstream `local` answered with status 404: it does not know the model `up-small`."
    )


async def test_the_other_models_of_the_upstream_are_asked_as_ever(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, other.url)
    config["models"]["m-b"] = {"candidates": [{"upstream": each, "model": "known"} for each in "ab"]}
    gateway = await start_gateway(config)

    def knows(one: Call) -> Script:
        return replies.chat() if one.json()["model"] == "known" else GONE["vllm"]

    upstream.always(knows)
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "b"
    assert (await ask(gateway.port, {**C0, "model": "m-b"})).header("x-sluice-upstream") == "a"


@pytest.mark.parametrize("message", ["No file found with id 'file-1'.", "The model `dall-e-9` does not exist."])
async def test_a_404_about_what_the_client_asked_for_is_its_own(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, message: str
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(replies.error(404, message))
    assert (await ask(gateway.port, C0)).status == 404
    assert other.calls == []
    await gateway.outcome("client_error")


async def test_a_merged_call_for_an_unknown_model_is_not_sent_for_each_caller(
    engine: ListingEngine, start_gateway: StartGateway
) -> None:
    batch = await gathering(["a", "b", "c"], engine, start_gateway, merging(engine.upstream.url))
    engine.upstream.always(replies.error(404, "The model `up-embed` does not exist."))
    answers: list[Any] = await batch.ends()
    assert {answer.status for answer in answers} == {404}
    assert len(batch.sent()) == 1


async def test_unknown_in_a_stream_s_first_event_moves_on_too(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url))
    upstream.always(GONE["vllm"])
    answers = await asyncio.gather(*(call(gateway.port, "POST", CHAT, {**C0, "stream": True}) for _ in range(2)))
    assert {answer.header("x-sluice-upstream") for answer in answers} == {"b"}
