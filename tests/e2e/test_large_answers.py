"""Answers larger than `server.max_answer`: an embeddings list is halved, and no upstream is blamed."""

import gzip
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.script import NEVER, Script, compact, frame, full, head
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0, EMBEDDINGS, ask

ITEM = 1000
LIMIT = {"max_answer": "16KiB"}


def vectors(call: Call) -> Script:
    """About ITEM bytes for each input, which name it."""
    inputs = call.json()["input"]
    inputs = inputs if isinstance(inputs, list) else [inputs]
    data = [{"embedding": [float(text)], "pad": "x" * ITEM, "index": at} for at, text in enumerate(inputs)]
    counts = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
    return [full(compact({"object": "list", "model": "up-embed", "data": data, "usage": counts}))]


def chunked(call: Call) -> Script:
    """The same without a length."""
    body = vectors(call)[0]
    assert isinstance(body, bytes)
    plain = body.partition(b"\r\n\r\n")[2]
    pieces = [frame(plain[at : at + 3000]) for at in range(0, len(plain), 3000)]
    return [head(200, [("transfer-encoding", "chunked")]), *pieces, b"0\r\n\r\n"]


def zipped(call: Call) -> Script:
    """The same compressed: small on the wire."""
    body = vectors(call)[0]
    assert isinstance(body, bytes)
    coded = [("content-encoding", "gzip")]
    return [full(gzip.compress(body.partition(b"\r\n\r\n")[2]), headers=coded)]


def texts(count: int, first: int = 0) -> dict[str, Any]:
    return {**E0, "input": [str(number) for number in range(first, first + count)]}


@pytest.mark.parametrize("transport", ["httptools", "aiohttp"])
@pytest.mark.parametrize("answer", [vectors, chunked, zipped])
@pytest.mark.parametrize("policy", ["eager", "window", "off"])
async def test_a_list_whose_answer_is_too_large_is_halved(
    upstream: FaultUpstream, start_gateway: StartGateway, policy: str, answer: Any, transport: str
) -> None:
    upstream.always(answer)
    config = settings(
        upstream.url,
        server=LIMIT,
        upstream={"transport": transport, "breaker": {"failures": 1}},
        batching={"policy": policy},
    )
    gateway = await start_gateway(config)
    got = await ask(gateway.port, texts(60), path=EMBEDDINGS)
    assert got.status == 200
    data = got.json()["data"]
    assert [(item["index"], item["embedding"]) for item in data] == [(at, [at]) for at in range(60)]
    assert got.json()["usage"]["prompt_tokens"] == 60
    sizes = [len(call.json()["input"]) for call in upstream.calls]
    assert sizes[0] == 60
    assert sorted(sizes[1:]) == [15, 15, 15, 15, 30, 30]
    assert got.header("x-sluice-attempts") == str(len(sizes))
    # The size is remembered: further lists of the kind are sent in parts at once.
    again = await ask(gateway.port, texts(30), path=EMBEDDINGS)
    assert len(again.json()["data"]) == 30
    assert [len(call.json()["input"]) for call in upstream.calls[len(sizes) :]] == [15, 15]
    await gateway.counted("sluice_requests_total", 2, outcome="ok")
    await gateway.counted("sluice_upstream_breaker_state", 0, upstream="local")


async def test_the_halves_of_token_ids_and_of_base64(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    def answer(call: Call) -> Script:
        inputs = call.json()["input"]
        return replies.embeddings(len(inputs), "base64") if len(inputs) < 100 else [full(b"[" * 20_000)]

    upstream.always(answer)
    gateway = await start_gateway(settings(upstream.url, server=LIMIT))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        got = await client.embeddings.create(model="m-embed", input=[[1, 2]] * 150)
    assert [item.index for item in got.data] == list(range(150))
    assert [item.embedding for item in got.data] == [list(replies.VECTOR)] * 150


@pytest.mark.parametrize("body", [{**E0, "input": "7"}, {**E0, "input": ["7"]}, C0], ids=["text", "one", "chat"])
async def test_an_answer_that_cannot_be_halved_is_a_502_and_no_failure(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any]
) -> None:
    upstream.always([head(200, [("transfer-encoding", "chunked")]), frame(b"{" + b" " * 20_000), NEVER])
    retries = {"attempts": 3, "backoff_base": "1ms"}
    config = settings(upstream.url, server=LIMIT, upstream={"breaker": {"failures": 1}}, retry=retries)
    gateway = await start_gateway(config)
    path = EMBEDDINGS if "input" in body else "/v1/chat/completions"
    for sent in (1, 2):
        answer = await ask(gateway.port, body, path=path)
        assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
        assert "16384 bytes" in answer.error["message"]
        assert answer.header("x-should-retry") == "false"
        assert len(upstream.calls) == sent
    await gateway.counted("sluice_upstream_breaker_state", 0, upstream="local")


async def test_the_bound_is_four_times_that_of_requests(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"max_body": "16KiB"}))
    for size, status in ((16 * 1024, 200), (4 * 16 * 1024 - 20, 200), (4 * 16 * 1024, 502)):
        upstream.reply([full(compact({"x": "y" * size}))])
        assert (await ask(gateway.port, C0)).status == status


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
async def test_parts_and_cached_items_need_no_index(
    upstream: FaultUpstream, start_gateway: StartGateway, index: dict[str, Any]
) -> None:
    def answer(call: Call) -> Script:
        inputs = call.json()["input"]
        inputs = inputs if isinstance(inputs, list) else [inputs]
        data = [{"object": "embedding", "embedding": [float(text)], **index} for text in inputs]
        return [full(compact({"object": "list", "model": "up-embed", "data": data}))]

    upstream.always(answer)
    config = settings(upstream.url, upstream={"max_inputs": 4}, cache={"enabled": True})
    gateway = await start_gateway(config)
    for _ in range(2):
        got = await ask(gateway.port, texts(10), path=EMBEDDINGS)
        assert [(item["index"], item["embedding"]) for item in got.json()["data"]] == [(at, [at]) for at in range(10)]
    assert len(upstream.calls) == 3
    mixed = await ask(gateway.port, texts(4, first=8), path=EMBEDDINGS)
    assert [item["embedding"] for item in mixed.json()["data"]] == [[8], [9], [10], [11]]
    assert upstream.calls[3].json()["input"] == ["10", "11"]
