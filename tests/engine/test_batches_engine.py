"""The whole life of batches on the real engine, with the openai SDK: chat and embeddings."""

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from doubles.gateway import InProcessGateway
from kit.batch_scene import client_of, jsonl, results, until
from running_up import RunningUp

pytestmark = pytest.mark.engine
ENGINE_BOUND_S = 300.0


@pytest.fixture
async def gateway(up: RunningUp, tmp_path: Path) -> AsyncIterator[InProcessGateway]:
    """A gateway of our own before the same engines."""
    upstreams = {
        "chat": {"base_url": f"http://127.0.0.1:{up.engine_port}/v1", "kind": "vllm"},
        "embeddings": {"base_url": up.base_url},
    }
    config = {
        "server": {"port": 0},
        "admin": {"port": 0},
        "upstreams": upstreams,
        "models": {
            "chat": {"candidates": [{"upstream": "chat", "model": "smollm2"}]},
            "embed": {"candidates": [{"upstream": "embeddings", "model": "minilm"}]},
        },
        "usage": {"store": "off"},
        "batches": {"enabled": True, "path": str(tmp_path / "batches")},
        "log": {"level": "warning"},
    }
    running = await InProcessGateway(config, tmp_path).start()
    yield running
    await running.stop()


async def finished(
    sdk: openai.AsyncOpenAI, endpoint: str, bodies: list[dict[str, object]]
) -> dict[str, dict[str, object]]:
    """The answers to these bodies, by their places."""
    lines = [
        {"custom_id": str(number), "method": "POST", "url": endpoint, "body": body}
        for number, body in enumerate(bodies)
    ]
    file = await sdk.files.create(file=("in.jsonl", jsonl(*lines)), purpose="batch")
    batch = await sdk.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")  # type: ignore[arg-type]
    batch = await until(sdk, batch.id, "completed", within=ENGINE_BOUND_S)
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.error_file_id) == (len(bodies), None)
    assert batch.usage is not None
    assert batch.usage.input_tokens > 0
    found = await results(sdk, batch.output_file_id)
    assert {each["response"]["status_code"] for each in found.values()} == {200}
    return {id: each["response"]["body"] for id, each in found.items()}


async def test_chat(gateway: InProcessGateway) -> None:
    async with client_of(gateway.url, "none") as sdk:
        asked = {"role": "user", "content": "What is the capital of France?"}
        body = {"model": "chat", "messages": [asked], "max_tokens": 10, "temperature": 0}
        answers = await finished(sdk, "/v1/chat/completions", [body | {"seed": number} for number in range(8)])
    texts = {answer["choices"][0]["message"]["content"] for answer in answers.values()}  # type: ignore[index]
    assert all("Paris" in text for text in texts), texts


async def test_embeddings(gateway: InProcessGateway) -> None:
    async with client_of(gateway.url, "none") as sdk:
        texts = [f"The mill has {number} wheels." for number in range(100)]
        answers = await finished(sdk, "/v1/embeddings", [{"model": "embed", "input": text} for text in texts])
        alone = await sdk.embeddings.create(model="embed", input=texts[7], encoding_format="float")
    vector = answers["7"]["data"][0]["embedding"]  # type: ignore[index]
    assert vector == pytest.approx(alone.data[0].embedding, abs=1e-4)
