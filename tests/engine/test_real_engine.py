"""The whole thing: the real SDK, through the gateway, to a real engine. The last test stops it."""

import subprocess
import sys
from collections.abc import Iterator

import openai
import pytest
from running_up import RunningUp

pytestmark = pytest.mark.engine
QUESTION = {"role": "user", "content": "What is the capital of France?"}


@pytest.fixture(scope="module")
def client(up: RunningUp) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=up.base_url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", temperature=0, messages=[QUESTION])
    assert "Paris" in answer.choices[0].message.content
    assert answer.model == "smollm2"
    assert answer.usage.completion_tokens > 0


def test_streamed_chat_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            temperature=0,
            messages=[QUESTION],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert len(chunks) > 3
    assert {chunk.model for chunk in chunks} == {"smollm2"}
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0


def test_embeddings_in_the_default_encoding(client: openai.OpenAI) -> None:
    sentences = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Shares fell on Monday."]
    answer = client.embeddings.create(model="minilm", input=sentences)
    cat, kitten, shares = (item.embedding for item in answer.data)
    assert {len(cat), len(kitten), len(shares)} == {384}
    assert _dot(cat, kitten) > _dot(cat, shares) + 0.2


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"small", "smollm2", "embed", "minilm"}


def test_the_printed_examples_work(up: RunningUp) -> None:
    printed = "".join(up.printed)
    curl = printed[printed.index("curl ") : printed.index("\nor with the OpenAI SDK")]
    said = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=True)
    assert "Paris" in said.stdout
    example = printed[printed.index("from openai") : printed.index("\nwatch:")]
    said = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=True)
    assert "Paris" in said.stdout
    assert "384 dimensions" in said.stdout


def test_ctrl_c_ends_everything(up: RunningUp) -> None:
    assert len(up.sessions) == 3
    assert up.leftovers() != []
    assert up.interrupt() == 0
    assert up.leftovers() == []
