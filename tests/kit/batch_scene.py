"""Batches as clients make them, through the openai SDK, and what comes out of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
from doubles.settings import KEY, settings

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(number: int | str, model: str = "m-small", **body: Any) -> dict[str, Any]:
    """A valid line, `line-<number>`."""
    messages = [{"role": "user", "content": f"ping {number}"}]
    asked = {"model": model, "messages": messages, **body}
    return {"custom_id": f"line-{number}", "method": "POST", "url": CHAT, "body": asked}


def jsonl(*lines: Any) -> bytes:
    """A file of these lines; bytes stay as they are."""
    encoded = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
    return b"".join(each + b"\n" for each in encoded)


def batching(url: str, folder: Path, batches: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A config with batches below this folder and two keys."""
    section = {"enabled": True, "path": str(folder / "batches"), **(batches or {})}
    return settings(url, **{"keys": True, "batches": section, **more})


@asynccontextmanager
async def client_of(url: str, key: str = KEY) -> AsyncIterator[openai.AsyncOpenAI]:
    """The SDK, changed in nothing but its address and key."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        yield client


async def submitted(sdk: openai.AsyncOpenAI, *lines: Any, window: Any = "24h", **more: Any) -> Any:
    """A batch of these lines."""
    file = await sdk.files.create(file=("in.jsonl", jsonl(*lines)), purpose="batch")
    return await sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window=window, **more)


async def until(sdk: openai.AsyncOpenAI, id: str, *statuses: str, within: float = 30.0) -> Any:
    """The batch in one of these statuses."""
    batch = await sdk.batches.retrieve(id)
    try:
        async with asyncio.timeout(within):
            while batch.status not in statuses:
                await asyncio.sleep(0.01)
                batch = await sdk.batches.retrieve(id)
    except TimeoutError:
        raise AssertionError(f"not {statuses}: {batch}") from None
    return batch


async def results(sdk: openai.AsyncOpenAI, file: str | None) -> dict[str, Any]:
    """The lines of an output or error file by custom_id; no id may come twice."""
    if file is None:
        return {}
    read = [json.loads(each) for each in (await sdk.files.content(file)).text.splitlines()]
    found = {each["custom_id"]: each for each in read}
    assert len(found) == len(read)
    return found
