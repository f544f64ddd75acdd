"""Merged calls on the real engine: everybody gets what he would have got alone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from doubles.gateway import InProcessGateway
from doubles.listing_engine import Always
from doubles.rawclient import Answer, RawClient
from doubles.vocabulary import CHAT, EMBEDDINGS
from doubles.waiting import eventually
from running_up import RunningUp

pytestmark = pytest.mark.engine
CALLERS = 24
PROMPTS = 200
ENGINE_BOUND_S = 300.0  # for one answer of a real engine on a busy machine


@pytest.fixture
async def gateway(up: RunningUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcessGateway]:
    """A gateway of our own before the same engines; `alone` merges nothing."""
    monkeypatch.setattr("gateway.batching.profile.MergeExperiment", Always)
    chat = {"base_url": f"http://127.0.0.1:{up.engine_port}/v1", "kind": "vllm"}
    candidates = {
        "candidates": [{"upstream": "chat", "model": "smollm2"}],
        "batching": {"max_inflight": 1, "max_wait": 0},
    }
    through = {"base_url": up.base_url}
    config = {
        "server": {"port": 0},
        "admin": {"port": 0},
        "upstreams": {"chat": chat, "up": through},
        "models": {
            "chat": candidates,
            "chat-alone": {**candidates, "batching": {"policy": "off"}},
            "embed": {
                "candidates": [{"upstream": "up", "model": "minilm"}],
                "batching": {"max_inflight": 1, "max_wait": 0},
            },
            "embed-alone": {
                "candidates": [{"upstream": "up", "model": "minilm"}],
                "batching": {"policy": "off"},
            },
        },
        "usage": {"store": "off"},
        "log": {"level": "warning"},
    }
    running = await InProcessGateway(config, tmp_path).start()
    yield running
    await running.stop()


async def asked(port: int, path: str, bodies: Iterable[dict[str, Any]], callers: int) -> list[Answer]:
    """Send these bodies with `callers` clients at once; returns the answers in their order."""
    waiting = list(enumerate(bodies))
    answers: dict[int, Answer] = {}

    async def caller() -> None:
        async with await RawClient.open(port, within=ENGINE_BOUND_S) as client:
            while waiting:
                at, body = waiting.pop(0)
                await client.request("POST", path, body)
                answers[at] = await client.response()

    await asyncio.gather(*(caller() for _ in range(callers)))
    assert {one.status for one in answers.values()} == {200}
    return [answers[at] for at in sorted(answers)]


def merged(answers: Iterable[Answer]) -> list[int]:
    """How many shared each call that was shared."""
    return [int(size) for one in answers if (size := one.header("x-sluice-batch-size"))]


def vector(answer: Answer) -> list[float]:
    (item,) = answer.json()["data"]
    assert item["index"] == 0
    return list(item["embedding"])


async def test_vectors_of_merged_calls_are_those_of_single_ones(gateway: InProcessGateway) -> None:
    texts = [f"Sentence {number} is about {'water ' * (number % 9)}and mills." for number in range(72)]
    asking = [{"input": text} for text in texts]
    alone = await asked(gateway.port, EMBEDDINGS, [{"model": "embed-alone", **one} for one in asking], 1)
    together = await asked(gateway.port, EMBEDDINGS, [{"model": "embed", **one} for one in asking], CALLERS)
    assert len(merged(together)) > len(texts) / 2
    assert merged(alone) == []
    for one, other in zip(map(vector, alone), map(vector, together), strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-3
    counted = [[one.json()["usage"]["prompt_tokens"] for one in answers] for answers in (alone, together)]
    assert sum(counted[0]) == sum(counted[1])


async def test_merged_answers_belong_to_their_prompts(gateway: InProcessGateway) -> None:
    markers = [str(1000 + 7919 * number % 8999) for number in range(PROMPTS)]
    assert len(set(markers)) == PROMPTS
    bodies = [
        {
            "messages": [{"role": "user", "content": f"Repeat this number and nothing else: {marker}"}],
            "max_tokens": 8,
            "temperature": 0,
        }
        for marker in markers
    ]
    await asked(gateway.port, CHAT, [{"model": "chat", **bodies[0]}], 1)
    offers = gateway._gateway._pipeline.offers
    await eventually(lambda: offers.batch_chat("chat"), "the engine has said what it offers", ENGINE_BOUND_S)
    together = await asked(gateway.port, CHAT, [{"model": "chat", **body} for body in bodies], CALLERS)
    alone = await asked(gateway.port, CHAT, [{"model": "chat-alone", **body} for body in bodies], CALLERS)
    assert len(merged(together)) > PROMPTS / 2
    assert merged(alone) == []
    said, wanted = (
        [one.json()["choices"][0]["message"]["content"] for one in answers] for answers in (together, alone)
    )
    for text, single, marker in zip(said, wanted, markers, strict=True):
        assert text == single or marker in text
        assert not any(other in text for other in markers if other != marker and other not in single)
    assert sum(marker in text for text, marker in zip(said, markers, strict=True)) > PROMPTS / 2
    equal = sum(text == single for text, single in zip(said, wanted, strict=True))
    assert equal >= 0.95 * PROMPTS, [one for one in zip(said, wanted, strict=True) if one[0] != one[1]]
