"""An engine that takes lists of inputs, prompts and conversations, and whose answers show their item.

The vector of a text begins with its character codes; a prompt or conversation is answered with its last text
in upper case. `poison` in an item makes the whole call a 400, as real engines do.
"""

import asyncio
import base64
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from doubles.call import Call
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import Script, Step, Until, compact, full
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import E0, EMBEDDINGS, ask
from doubles.waiting import eventually

BATCH_CHAT = "/v1/chat/completions/batch"


def vector(item: Any) -> list[float]:
    """A vector from which the item can be read; exact in 32 bits."""
    numbers = item if isinstance(item, list) else [ord(character) for character in item]
    return [float(len(numbers)), *(number / 4 for number in numbers[:12])]


def packed(numbers: list[float]) -> str:
    """The vector as base64 of float32, little-endian."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def refusal(status: int, message: str, **headers: str) -> list[Step]:
    """An error in OpenAI's shape."""
    error = {"message": message, "type": "engine", "param": None, "code": status}
    return [full(compact({"error": error}), status, headers=headers.items())]


class ListingEngine:
    """Scripts an upstream. Between `hold` and `release` it answers nothing; `shuffled` shuffles the items."""

    def __init__(self, upstream: FaultUpstream) -> None:
        self.upstream = upstream
        self.shuffled = False
        self._go_on = asyncio.Event()
        self._go_on.set()
        upstream.always(self.answer)

    def hold(self) -> None:
        """Hold the answers to calls that arrive from now on until `release`."""
        self._go_on = asyncio.Event()

    def release(self) -> None:
        """Answer the held calls."""
        self._go_on.set()

    def answer(self, call: Call) -> Script:
        """The steps for this call."""
        return [Until(self._go_on), *self.said(call)]

    def said(self, call: Call) -> list[Step]:
        """The answer, without the hold."""
        request, path = call.json(), call.target
        payload = request.get("input", request.get("prompt", request.get("messages")))
        if not payload:
            return refusal(400, "messages: List should have at least 1 item")
        items = items_of(request, path)
        for at, item in enumerate(items):
            if "poison" in str(item):
                return refusal(400, f"input[{at}] is poisonous: {str(item)[:40]}")
        listed = [self._item(path, request, at, item) for at, item in enumerate(items)]
        if self.shuffled:
            random.Random(len(listed)).shuffle(listed)
        return [full(compact(answer_with(path, request["model"], listed, tokens(items))))]

    def _item(self, path: str, request: Mapping[str, Any], at: int, item: Any) -> dict[str, Any]:
        if path == EMBEDDINGS:
            numbers = vector(item)[: request.get("dimensions")]
            embedding: Any = packed(numbers) if request.get("encoding_format") == "base64" else numbers
            return {"object": "embedding", "index": at, "embedding": embedding}
        if path.startswith("/v1/chat"):
            message = {"role": "assistant", "content": item[-1]["content"].upper()}
            return {"index": at, "message": message, "finish_reason": "stop"}
        return {"index": at, "text": str(item).upper(), "logprobs": None, "finish_reason": "length"}


class Always:
    """Replaces `MergeExperiment`: merging pays, and needs no trial first."""

    def __init__(self, modes: Sequence[str], learned: object = None) -> None:
        self._mode = [mode for mode in modes if mode != "off"][-1]
        self.current = self.incumbent = self._mode

    def arrived(self, load: int, now: float) -> str:
        """The merge mode."""
        return self._mode

    def done(self, calls: int, now: float, seconds: float = 0.0, *, served: bool = True, settled: bool = True) -> None:
        """Learn nothing."""

    def learned(self) -> None:
        """Nothing."""

    def view(self) -> dict[str, object]:
        """The view of the admin port."""
        return {"merge_mode": self._mode, "gain": 0.0}


def items_of(request: Mapping[str, Any], path: str) -> list[Any]:
    """The items of a request, a single one as a list."""
    if path == BATCH_CHAT:
        return list(request["messages"])
    if "messages" in request:
        return [request["messages"]]
    payload = request.get("input", request.get("prompt"))
    single = isinstance(payload, str) or isinstance(payload[0], int)
    return [payload] if single else list(payload)


def tokens(items: list[Any]) -> int:
    """The input tokens, as this engine counts."""
    return sum(len(item) if isinstance(item, list) else len(str(item)) // 3 + 1 for item in items)


def answer_with(path: str, model: str, listed: list[dict[str, Any]], prompt: int) -> dict[str, Any]:
    """The whole answer around the list."""
    if path == EMBEDDINGS:
        usage = {"prompt_tokens": prompt, "total_tokens": prompt}
        return {"object": "list", "model": model, "data": listed, "usage": usage}
    output = 3 * len(listed)
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    name = "chat.completion" if path.startswith("/v1/chat") else "text_completion"
    return {"id": "c1", "object": name, "created": 1, "model": model, "choices": listed, "usage": usage}


def merging(url: str, batching: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """`settings` in which calls are merged that arrive while one is under way."""
    return settings(url, batching={"max_inflight": 1, "max_wait": 0, **(batching or {})}, **more)


async def gathered(gateway: InProcessGateway, calls: int) -> None:
    """Waits until this many calls are held to be merged."""
    groups = gateway._gateway._pipeline.batching._groups
    await eventually(
        lambda: sum(group.batcher.waiting for group in groups.values()) == calls,
        f"{calls} calls are gathered",
    )


async def at_rest(gateway: InProcessGateway) -> None:
    """Waits until no group, batch or timer is left."""
    batching = gateway._gateway._pipeline.batching
    await eventually(lambda: not batching._groups and not batching._tasks, "no group and no batch is left")


def text(given: Any, **more: Any) -> dict[str, Any]:
    """A request for embeddings."""
    return {**E0, "input": given, **more}


class Gathering:
    """One call under way, and calls that wait to be sent together when it ends."""

    def __init__(self, gateway: InProcessGateway, engine: ListingEngine) -> None:
        self.gateway, self.engine, self.upstream = gateway, engine, engine.upstream
        self.first: asyncio.Task[Answer]
        self.tasks: list[asyncio.Task[Answer]] = []

    async def gather(self, given: list[Any], headers: Any = ()) -> None:
        """Start the first call and make these wait."""
        before = len(self.upstream.calls)
        self.engine.hold()
        self.first = asyncio.create_task(ask(self.gateway.port, text("first"), headers, EMBEDDINGS))
        await self.upstream.received(before + 1)
        for number, one in enumerate(given):
            body = one if isinstance(one, bytes) else text(one)
            self.tasks.append(asyncio.create_task(ask(self.gateway.port, body, headers, EMBEDDINGS)))
            await gathered(self.gateway, number + 1)

    async def ends(self) -> list[Answer]:
        """Answer the first call, then the merged ones; returns their answers."""
        self.engine.release()
        assert (await self.first).status == 200
        answers = list(await asyncio.gather(*self.tasks))
        await at_rest(self.gateway)
        return answers

    def sent(self) -> list[Any]:
        """The inputs that the upstream got after the first call."""
        return [one.json()["input"] for one in self.upstream.calls[1:]]


async def gathering(
    given: list[Any], engine: ListingEngine, start: StartGateway, config: Mapping[str, Any] | None = None
) -> Gathering:
    """A gateway with this config (by default `merging`), and these calls waiting."""
    gathering = Gathering(await start(config or merging(engine.upstream.url)), engine)
    await gathering.gather(given)
    return gathering


def own(answer: Answer, given: str) -> None:
    """Assert that it is the answer to this text, as if sent unmerged."""
    assert answer.status == 200, answer.body
    body = answer.json()
    assert (body["object"], body["model"]) == ("list", "m-embed")
    assert body["data"] == [{"object": "embedding", "index": 0, "embedding": vector(given)}]


async def asks(gateway: InProcessGateway, given: str) -> RawClient:
    """A client that has sent this text and may leave."""
    client = await RawClient.open(gateway.port)
    await client.request("POST", EMBEDDINGS, text(given))
    return client
