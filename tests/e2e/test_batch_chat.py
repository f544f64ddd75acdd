"""Short generation in one call where the engine offers it; every conversation whole, alone and unchanged."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import BATCH_CHAT, ListingEngine, at_rest, gathered, merging
from doubles.rawclient import Answer
from doubles.script import Script
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, ask
from doubles.waiting import eventually

VLLM = {"kind": "vllm"}


def talk(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation; what its texts are to the engine is nobody else's business."""
    roles = ["system", "user", "assistant"]
    messages = [{"role": roles[at % 3], "content": one} for at, one in enumerate(texts)]
    return {"model": "m-small", "messages": messages, "max_tokens": 4, "temperature": 0, **more}


async def probed(gateway: InProcessGateway, body: dict[str, Any]) -> None:
    """A first call, after which it is known what the engine offers."""
    assert (await ask(gateway.port, body)).status == 200
    offers = gateway._gateway._pipeline.offers
    await eventually(lambda: not offers._probing, "the engine has been asked")


async def started(start: StartGateway, engine: ListingEngine, **more: Any) -> InProcessGateway:
    """A gateway that knows what the engine offers, in front of an engine that has forgotten it."""
    gateway = await start(merging(engine.upstream.url, **{"upstream": VLLM, **more}))
    await probed(gateway, talk("warm"))
    engine.upstream.calls.clear()
    return gateway


async def together(
    gateway: InProcessGateway, engine: ListingEngine, bodies: list[dict[str, Any]], path: str = CHAT
) -> list[Answer]:
    engine.hold()
    first = asyncio.create_task(ask(gateway.port, bodies[0], path=path))
    await engine.upstream.received(1)
    tasks = [first]
    for number, body in enumerate(bodies[1:]):
        tasks.append(asyncio.create_task(ask(gateway.port, body, path=path)))
        await gathered(gateway, number + 1)
    engine.release()
    answers = list(await asyncio.gather(*tasks))
    await at_rest(gateway)
    return answers


def said(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    (choice,) = answer.json()["choices"]
    assert (choice["index"], answer.json()["model"]) == (0, "m-small")
    assert answer.json()["object"] == "chat.completion"
    return str(choice["message"]["content"])


async def test_every_conversation_reaches_the_engine_whole_and_alone(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await started(start_gateway, engine)
    texts = [("be brief", f"question {n}", "Ignore the others", f"and now {n}") for n in range(6)]
    answers = await together(gateway, engine, [talk(*one) for one in texts])
    for answer, one in zip(answers, texts, strict=True):
        assert said(answer) == one[-1].upper()
    single, merged = engine.upstream.calls
    assert (single.target, merged.target) == (CHAT, BATCH_CHAT)
    assert merged.json()["messages"] == [talk(*one)["messages"] for one in texts[1:]]
    assert {**merged.json(), "messages": 0} == {
        "model": "up-small",
        "max_tokens": 4,
        "temperature": 0,
        "messages": 0,
    }
    assert len({answer.json()["id"] for answer in answers[1:]}) == 5
    assert [one.header("x-sluice-batch-size") for one in answers] == [None, *["5"] * 5]
    usages = [one.json()["usage"] for one in answers[1:]]
    assert sum(one["completion_tokens"] for one in usages) == 15
    assert all(one["total_tokens"] == one["prompt_tokens"] + one["completion_tokens"] for one in usages)


async def test_spelling_and_order_of_a_conversation_stay_the_clients(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await started(start_gateway, engine)
    odd = b'{"content":  "\\u0061\xc3\xa9", "name":"n", "role":"user"}'
    raw = b'{"max_tokens":4,"messages":[ %b ],"temperature":0,"model":"m-small"}' % odd
    engine.hold()
    tasks = [asyncio.create_task(ask(gateway.port, talk("x")))]
    await engine.upstream.received(1)
    for number, body in enumerate((raw, json.dumps(talk("y")).encode())):
        tasks.append(asyncio.create_task(ask(gateway.port, body)))
        await gathered(gateway, number + 1)
    engine.release()
    await asyncio.gather(*tasks)
    assert engine.upstream.calls[1].target == BATCH_CHAT
    assert b"[ %b ]" % odd in engine.upstream.calls[1].body


NEVER_TOGETHER: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1},
    "max_tokens": {"max_tokens": 5},
    "stop": {"stop": ["\n"]},
    "seed": {"seed": 1},
    "response_format": {"response_format": {"type": "json_object"}},
    "a schema's order": {"response_format": {"json_schema": {"b": 1, "a": 2}}},
    "the same schema, other order": {"response_format": {"json_schema": {"a": 2, "b": 1}}},
    "user": {"user": "u"},
    "unknown": {"x_foo": 1},
}


async def test_other_parameters_never_share_a_call(start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await started(start_gateway, engine, batching={"policy": "window", "max_wait": "50ms"})
    bodies = [talk("x", **more) for more in ({}, *NEVER_TOGETHER.values())]
    answers = await asyncio.gather(*(ask(gateway.port, body) for body in bodies))
    assert {said(one) for one in answers} == {"X"}
    assert {call.target for call in engine.upstream.calls} == {CHAT}
    sent = [{**call.json(), "model": "m-small"} for call in engine.upstream.calls]
    assert sorted(sent, key=str) == sorted(bodies, key=str)


async def test_streams_and_long_answers_go_by_themselves(start_gateway: StartGateway, engine: ListingEngine) -> None:
    window = {"policy": "window", "max_wait": "50ms", "merge_max_output": 8}
    gateway = await started(start_gateway, engine, batching=window)
    engine.upstream.always(replies.ordinary)
    bodies = [talk("x", stream=True), talk("x", max_tokens=9), talk("x", max_tokens=None), talk("x", n=2)]
    answers = await asyncio.gather(*(ask(gateway.port, body) for body in bodies * 3))
    assert {one.status for one in answers} == {200}
    assert {call.target for call in engine.upstream.calls} == {CHAT}
    assert len(engine.upstream.calls) == 12


async def test_a_poison_conversation_fails_alone(start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await started(start_gateway, engine)
    answers = await together(gateway, engine, [talk(one) for one in ("a", "b", "poison", "d")])
    assert [one.status for one in answers] == [200, 200, 400, 200]
    assert [said(answers[at]) for at in (0, 1, 3)] == ["A", "B", "D"]
    assert [call.target for call in engine.upstream.calls] == [CHAT, BATCH_CHAT, CHAT, CHAT, CHAT]


async def test_prompts_merge_as_lists(start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await started(start_gateway, engine, upstream={"kind": "sglang"})
    bodies = [{"model": "m-small", "prompt": one, "max_tokens": 2} for one in ("a", "b", ["c", "d"], "e")]
    answers = await together(gateway, engine, bodies, COMPLETIONS)
    texts = [[one["text"] for one in answer.json()["choices"]] for answer in answers]
    assert texts == [["A"], ["B"], ["C", "D"], ["E"]]
    assert [call.json()["prompt"] for call in engine.upstream.calls] == ["a", ["b", "c", "d", "e"]]


async def many(gateway: InProcessGateway, body: dict[str, Any], path: str = CHAT) -> None:
    """Calls that would all merge with each other, if anything did."""
    answers = await asyncio.gather(*(ask(gateway.port, body, path=path) for _ in range(5)))
    assert {one.status for one in answers} == {200}
    assert {one.header("x-sluice-batch-size") for one in answers} == {None}


@pytest.mark.parametrize("kind", ["openai", "sglang", "llamacpp"])
async def test_only_an_engine_of_kind_vllm_is_probed(
    start_gateway: StartGateway, engine: ListingEngine, kind: str
) -> None:
    window = {"policy": "window", "max_wait": "10ms"}
    gateway = await start_gateway(merging(engine.upstream.url, window, upstream={"kind": kind}))
    await many(gateway, talk("x"))
    assert {call.target for call in engine.upstream.calls} == {CHAT}


@pytest.mark.parametrize("merge_chat", ["auto", "off"])
async def test_the_probe_cannot_generate_and_comes_once(
    start_gateway: StartGateway, engine: ListingEngine, merge_chat: str
) -> None:
    rules = {"policy": "window", "max_wait": "10ms", "merge_chat": merge_chat}
    gateway = await start_gateway(merging(engine.upstream.url, rules, upstream={**VLLM, "api_key": "up-k"}))
    await probed(gateway, talk("x"))
    for _ in range(3):
        assert (await ask(gateway.port, talk("x"))).status == 200
    probes = [call for call in engine.upstream.calls if call.target == BATCH_CHAT]
    assert [one.json() for one in probes] == ([{"messages": []}] if merge_chat == "auto" else [])
    assert all(one.header("authorization") == ["Bearer up-k"] for one in probes)


def no_route(call: Call) -> Script:
    return replies.error(404) if call.target == BATCH_CHAT else replies.ordinary(call)


def broken(call: Call) -> Script:
    return replies.error(500) if call.target == BATCH_CHAT else replies.ordinary(call)


def anything(call: Call) -> Script:
    """A server that says yes to every path."""
    return replies.chat()


@pytest.mark.parametrize("answer", [no_route, broken, anything])
async def test_an_engine_that_does_not_offer_it_is_not_asked_for_it(
    start_gateway: StartGateway, engine: ListingEngine, answer: Callable[[Call], Script]
) -> None:
    engine.upstream.always(answer)
    gateway = await start_gateway(merging(engine.upstream.url, {"policy": "window", "max_wait": "10ms"}, upstream=VLLM))
    await probed(gateway, C0 | {"max_tokens": 2})
    await many(gateway, C0 | {"max_tokens": 2})
    assert [call.target for call in engine.upstream.calls].count(BATCH_CHAT) == 1


async def test_an_offer_that_is_gone_costs_nobody_an_answer_and_no_retry(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    async with FaultUpstream() as other:
        ListingEngine(other)
        config = merging(engine.upstream.url, upstream=VLLM, retry={"attempts": 2, "backoff_base": "1ms"})
        config["upstreams"]["other"] = {"base_url": other.url, **VLLM}
        config["models"]["m-small"]["candidates"].append({"upstream": "other", "model": "o"})
        gateway = await start_gateway(config)
        for _ in config["upstreams"]:
            await probed(gateway, talk("warm"))
        assert [one.target for one in other.calls] == [BATCH_CHAT]
        engine.upstream.calls.clear()

        def merges_no_more(call: Call) -> Script:
            gone = replies.error(404, "Not Found")
            return gone if call.target == BATCH_CHAT else engine.answer(call)

        engine.upstream.always(merges_no_more)
        answers = await together(gateway, engine, [talk(one) for one in "abcd"])
        assert [said(one) for one in answers] == ["A", "B", "C", "D"]
        assert [one.header("x-sluice-upstream") for one in answers] == ["local"] * 4
        assert [one.target for one in engine.upstream.calls] == [CHAT, BATCH_CHAT, CHAT, CHAT, CHAT]
        assert len(other.calls) == 1
        await gateway.counted("sluice_retries_total", 0)


async def test_a_fallback_that_does_not_offer_it_keeps_calls_single(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = merging(engine.upstream.url, {"policy": "window", "max_wait": "10ms"}, upstream=VLLM)
    config["upstreams"]["paid"] = {"base_url": engine.upstream.url}
    config["models"]["m-small"]["candidates"].append({"upstream": "paid", "model": "p"})
    gateway = await start_gateway(config)
    await many(gateway, talk("x"))
    assert {call.target for call in engine.upstream.calls} == {CHAT}
