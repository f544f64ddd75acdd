"""What an upstream says of its rate counts for the model that it says it of; another candidate that is free is used."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.limited import FrozenClock
from doubles.routed import routed
from doubles.script import Script
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0, EMBEDDINGS, S0, ask

NOTHING_LEFT = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "8s")]
NO_WAIT = "0.000"
PACED = {"rate": {"rpm": 600_000}}


def of(model: str, answer: Script, otherwise: Script) -> Callable[[Call], Script]:
    """This answer for calls to one of the upstream's models, and another for the rest."""
    return lambda call: answer if call.json()["model"] == model else otherwise


def two_models(url: str, **sections: Any) -> dict[str, Any]:
    """`m-small` and `m-big` at one paced upstream."""
    config = settings(url, upstream=PACED, **sections)
    config["models"]["m-big"] = {"candidates": [{"upstream": "local", "model": "up-big"}]}
    return config


BIG = {**C0, "model": "m-big"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_used_up_quota_of_one_model_holds_back_no_other(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, *, stream: bool
) -> None:
    gateway = await start_gateway(two_models(upstream.url))
    upstream.reply(replies.chat(headers=NOTHING_LEFT))
    assert (await ask(gateway.port, BIG)).status == 200
    held = [asyncio.create_task(ask(gateway.port, BIG)) for _ in range(3)]
    await gateway.counted("sluice_upstream_queue_depth", 3)
    upstream.reply(replies.chat_stream("pong") if stream else replies.chat(), replies.embeddings())
    small = await ask(gateway.port, S0 if stream else C0)
    embedded = await ask(gateway.port, E0, path=EMBEDDINGS)
    assert (small.status, embedded.status) == (200, 200)
    assert small.header("x-sluice-queue-ms") == embedded.header("x-sluice-queue-ms") == NO_WAIT
    assert [call.json()["model"] for call in upstream.calls] == ["up-big", "up-small", "up-embed"]
    for task in held:
        task.cancel()


async def test_with_no_place_to_wait_other_models_are_served_all_the_same(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(two_models(upstream.url, server={"max_queue": 1}))
    upstream.reply(replies.chat(headers=NOTHING_LEFT))
    assert (await ask(gateway.port, BIG)).status == 200
    held = asyncio.create_task(ask(gateway.port, BIG))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    assert [(await ask(gateway.port, C0)).status for _ in range(3)] == [200] * 3
    refused = await ask(gateway.port, BIG)
    assert (refused.status, refused.error["code"]) == (503, "queue_full")
    held.cancel()


@pytest.mark.parametrize("route", ["priority", "least_loaded", "cheapest", "weighted"])
async def test_a_candidate_without_quota_counts_as_busy(
    clock: FrozenClock, upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway, route: str
) -> None:
    config = routed(upstream.url, other.url, upstream=PACED)
    config["models"]["m-small"]["route"] = route
    gateway = await start_gateway(config)
    upstream.always(replies.chat(headers=NOTHING_LEFT))
    asked = 0
    while not upstream.calls:  # some routes draw lots
        assert (await ask(gateway.port, C0)).status == 200
        asked += 1
    answers = [await ask(gateway.port, C0) for _ in range(10)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.header("x-sluice-queue-ms") for answer in answers} == {NO_WAIT}
    assert (len(upstream.calls), len(other.calls)) == (1, asked - 1 + 10)


async def test_a_call_goes_to_the_next_candidate_instead_of_spilling_late(
    clock: FrozenClock, upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, other.url, upstream=PACED)
    config["models"]["m-small"]["spill_after"] = "5s"
    gateway = await start_gateway(config)
    upstream.always(replies.chat(headers=NOTHING_LEFT))
    assert (await ask(gateway.port, C0)).header("x-sluice-upstream") == "a"
    answer = await ask(gateway.port, C0)
    assert (answer.header("x-sluice-upstream"), answer.header("x-sluice-queue-ms")) == ("b", NO_WAIT)


async def test_a_call_that_needs_more_tokens_than_are_left_goes_elsewhere_and_a_smaller_one_stays(
    clock: FrozenClock, upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, upstream=PACED))
    left = [("x-ratelimit-remaining-tokens", "500"), ("x-ratelimit-reset-tokens", "8s")]
    upstream.always(replies.chat(headers=left))
    seen = [
        (await ask(gateway.port, {**C0, "max_tokens": most})).header("x-sluice-upstream") for most in (10, 1000, 10)
    ]
    assert seen == ["a", "b", "a"]


async def test_when_all_candidates_are_without_quota_the_call_waits(
    clock: FrozenClock, upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(routed(upstream.url, other.url, upstream=PACED))
    short = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "50ms")]
    upstream.always(replies.chat(headers=short))
    other.always(replies.chat(headers=short))
    assert [(await ask(gateway.port, C0)).status for _ in range(2)] == [200, 200]
    waiting = asyncio.create_task(ask(gateway.port, C0))
    await gateway.counted("sluice_upstream_queue_depth", 1)
    clock.passes(0.05)
    assert (await waiting).status == 200


async def test_a_429_of_one_model_leaves_the_other_models_of_its_upstream(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Both models have a candidate at both upstreams; a second name of the held model is held too."""
    config = routed(upstream.url, other.url, retry={"attempts": 2})
    names = {"m-big": "up-big", "m-alias": "up-big", "m-mini": "up-mini"}
    for name, model in names.items():
        config["models"][name] = {"candidates": [{"upstream": each, "model": model} for each in "ab"]}
    gateway = await start_gateway(config)
    refusal = replies.error(429, "Rate limit reached for `up-big`.", headers=[("retry-after", "30")])
    upstream.always(of("up-big", refusal, replies.chat()))

    async def served_by(model: str) -> str | None:
        return (await ask(gateway.port, {**C0, "model": model})).header("x-sluice-upstream")

    assert [await served_by("m-big") for _ in range(3)] == ["b"] * 3
    assert await served_by("m-alias") == "b"
    assert await served_by("m-mini") == "a"
    assert [call.json()["model"] for call in upstream.calls] == ["up-big", "up-mini"]


async def test_a_429_about_the_account_holds_all_models_of_its_upstream(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = routed(upstream.url, other.url, retry={"attempts": 2})
    config["models"]["m-mini"] = {"candidates": [{"upstream": each, "model": "up-mini"} for each in "ab"]}
    gateway = await start_gateway(config)
    upstream.always(
        replies.error(429, "You exceeded your current quota.", kind="insufficient_quota", code="insufficient_quota")
    )
    for model in ("m-small", "m-small", "m-mini"):
        answer = await ask(gateway.port, {**C0, "model": model})
        assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    assert len(upstream.calls) == 1
