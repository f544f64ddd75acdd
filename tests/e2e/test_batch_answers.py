"""What the upstream makes of one member is its own: odd formats, refusals of a size, lists of choices."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.listing_engine import ListingEngine, at_rest, gathering, merging, own, refusal, text, vector
from doubles.script import Script, compact, full
from doubles.upstream import FaultUpstream
from doubles.vocabulary import COMPLETIONS, EMBEDDINGS, ask

WINDOW = {"policy": "window", "max_wait": "50ms"}


def refusing(engine: ListingEngine, refused: Callable[[Any], bool], status: int, message: str) -> None:
    """Calls for which `refused` is true get an error, all others the engine's answer."""

    def answer(call: Call) -> Script:
        return refusal(status, message) if refused(call.json()) else engine.answer(call)

    engine.upstream.always(answer)


async def test_batch_05_an_encoding_that_the_upstream_does_not_know_is_its_own_callers_alone(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    refusing(engine, lambda asked: asked.get("encoding_format") == "int8", 400, "int8 is not supported")
    gateway = await start_gateway(merging(engine.upstream.url, WINDOW))
    bodies = [text("a"), text("b"), text("c", encoding_format="int8")]
    *good, bad = await asyncio.gather(*(ask(gateway.port, body, path=EMBEDDINGS) for body in bodies))
    assert (bad.status, bad.error["message"]) == (400, "int8 is not supported")
    for answer, given in zip(good, "ab", strict=True):
        own(answer, given)
    assert sorted((one.json()["input"] for one in engine.upstream.calls), key=len) == ["c", ["a", "b"]]
    await at_rest(gateway)


@pytest.mark.parametrize("status", [413, 422])
async def test_batch_03_a_member_that_makes_the_call_too_large_is_alone_with_it(
    start_gateway: StartGateway, engine: ListingEngine, status: int
) -> None:
    """Nor is the whole sent again and again."""
    given = ["a", "b", "large", "c"]
    batch = await gathering(given, engine, start_gateway)
    refusing(engine, lambda asked: "large" in asked["input"], status, "too large")
    for answer, one in zip(await batch.ends(), given, strict=True):
        if one == "large":
            assert (answer.status, answer.error["message"]) == (status, "too large")
        else:
            own(answer, one)
    assert len(batch.sent()) == 5


async def test_batch_04_numbers_instead_of_base64_reach_everybody_as_they_came(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    """From an upstream that does not know `encoding_format`: merged or not, the answer is the same."""

    def numbers(call: Call) -> Script:
        given = call.json()["input"]
        items = given if isinstance(given, list) else [given]
        data = [{"object": "embedding", "index": at, "embedding": vector(one)} for at, one in enumerate(items)]
        return [full(compact({"object": "list", "model": "up-embed", "data": data}))]

    engine.upstream.always(numbers)
    gateway = await start_gateway(merging(engine.upstream.url, WINDOW))
    kinds: list[dict[str, Any]] = [{"encoding_format": "base64"}, {}, {"encoding_format": "float"}]
    bodies = [text(f"{name}{at}", **kind) for at, kind in enumerate(kinds) for name in "ab"]
    answers = await asyncio.gather(*(ask(gateway.port, body, path=EMBEDDINGS) for body in bodies))
    for answer, body in zip(answers, bodies, strict=True):
        assert answer.header("x-sluice-batch-size") == "2"
        own(answer, body["input"])
    assert len(engine.upstream.calls) == 3


async def test_batch_15_choices_of_a_list_of_prompts_stay_with_who_asked_for_them(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    """Four shuffled choices of the one, and the other's single one; logprobs are not touched."""

    def answer(call: Call) -> Script:
        asked = call.json()
        if "prompt" not in asked:  # whether it takes several chats at once
            return refusal(404, "Not Found")
        prompts = asked["prompt"] if isinstance(asked["prompt"], list) else [asked["prompt"]]
        several = asked.get("n", 1)
        choices = [
            {
                "index": at * several + k,
                "text": f"{prompt}-{k}",
                "logprobs": {"tokens": ["x", "y"], "token_logprobs": [None, -0.25]},
                "finish_reason": "stop",
            }
            for at, prompt in enumerate(prompts)
            for k in range(several)
        ]
        shuffled = [choices[at] for at in (2, 0, 3, 1)] if len(choices) == 4 else choices
        return [full(compact({"id": "t1", "object": "text_completion", "model": "up", "choices": shuffled}))]

    upstream.always(answer)
    gateway = await start_gateway(merging(upstream.url, WINDOW, upstream={"kind": "vllm"}))
    model = {"model": "m-small", "max_tokens": 4}
    bodies: list[dict[str, Any]] = [
        {**model, "prompt": ["p0", "p1"], "n": 2, "logprobs": 2, "echo": True},
        {**model, "prompt": "q"},
    ]
    both, single = await asyncio.gather(*(ask(gateway.port, body, path=COMPLETIONS) for body in bodies))
    told = [(one["index"], one["text"]) for one in both.json()["choices"]]
    assert told == [(2, "p1-0"), (0, "p0-0"), (3, "p1-1"), (1, "p0-1")]
    assert both.json()["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.25]
    assert [(one["index"], one["text"]) for one in single.json()["choices"]] == [(0, "q-0")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_batch_16_what_is_asked_for_arrives_with_its_types_and_the_answer_as_it_came(
    upstream: FaultUpstream, start_gateway: StartGateway, stream: bool
) -> None:
    asked = {"prompt": "The capital of", "max_tokens": 1, "echo": True, "logprobs": 5, "n": 2}
    body = compact({"model": "m-small", **asked, **({"stream": True} if stream else {})})
    choice = {"index": 1, "text": "The capital of France", "logprobs": {"tokens": ["The"], "x": 1.50}}
    said = compact({"id": "t7", "model": "up-small", "choices": [choice | {"finish_reason": "length"}]})
    if stream:
        said = b"data: " + said + b"\n\ndata: [DONE]\n\n"
    upstream.reply([full(said, content_type="text/event-stream" if stream else "application/json")])
    gateway = await start_gateway(merging(upstream.url, WINDOW, upstream={"kind": "vllm"}))
    answer = await ask(gateway.port, body, path=COMPLETIONS)
    assert answer.body == said.replace(b"up-small", b"m-small")
    assert upstream.calls[-1].body == body.replace(b"m-small", b"up-small")
    assert json.loads(upstream.calls[-1].body)["logprobs"] == 5
