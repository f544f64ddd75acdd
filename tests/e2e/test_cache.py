"""Answers given again: who gets one, what it looks like, and what it is charged."""

import asyncio
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.listing_engine import ListingEngine, gathered, merging
from doubles.rawclient import call
from doubles.script import DONE, RST, Step, compact, delta, event, full, piece, stop, stream
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.sse import contents, data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, EMBEDDINGS, S0, ask

CACHE = {"cache": {"enabled": True}}
C = {**C0, "temperature": 0}
S = {**S0, "temperature": 0}


@pytest.fixture
async def caching(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway that keeps answers."""
    return await start_gateway(settings(upstream.url, **CACHE))


async def test_the_same_again_is_a_hit(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    first = await ask(caching.port, C)
    assert (first.header("x-cache-hit"), first.header("cache-status")) == (
        "false",
        "sluice; fwd=miss; stored",
    )
    assert first.header("age") is None
    # Other order of members, another number for the same, and what does not count.
    again = await ask(
        caching.port,
        b'{"messages":[{"content":"ping","role":"user"}],"user":"u","temperature":0.0,"model":"m-small"}',
    )
    assert (again.status, again.header("x-cache-hit")) == (200, "true")
    assert (again.header("cache-status") or "").startswith("sluice; hit; ttl=")
    assert again.header("age") == "0"
    assert again.header("x-sluice-cost-usd") == "0"
    assert again.header("x-sluice-upstream") is None
    before, after = first.json(), again.json()
    assert before.pop("id") != after.pop("id")
    assert before == after
    assert len(upstream.calls) == 1
    await caching.outcome("ok", 2)
    await caching.counted("sluice_cache_requests_total", 1, result="hit")
    await caching.counted("sluice_cache_requests_total", 1, result="miss")
    await caching.counted("sluice_cache_saved_tokens_total", 5, type="input")
    await caching.counted("sluice_cache_saved_tokens_total", 2, type="output")
    await caching.counted("sluice_tokens_total", 5, type="input")
    await caching.counted("sluice_cache_entries", 1)


async def test_it_stands_around_the_limits_where_it_is_wanted_at_all(
    upstream: FaultUpstream, caching: InProcessGateway, start_gateway: StartGateway
) -> None:
    entries = (await call(caching.admin_port, "GET", "/admin/stack")).json()
    assert entries.index("ModelAccess") < entries.index("CacheLookup") < entries.index("KeyLimits")
    assert entries.index("UsageAccounting") < entries.index("Cache") < entries.index("Batching")
    without = await start_gateway(settings(upstream.url))
    assert not {"CacheLookup", "Cache"} & set((await call(without.admin_port, "GET", "/admin/stack")).json())


async def test_streams_and_whole_answers_come_from_one_entry(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    streamed = await ask(caching.port, S)
    whole = await ask(caching.port, C)
    assert whole.header("x-cache-hit") == "true"
    assert whole.json()["choices"][0]["message"] == {"role": "assistant", "content": "pong"}
    assert whole.json()["model"] == "m-small"
    assert whole.json()["object"] == "chat.completion"
    assert whole.json()["usage"]["total_tokens"] == 7
    again = await ask(caching.port, {**S, "stream_options": {"include_usage": True}})
    assert (again.header("x-cache-hit"), again.complete) == ("true", True)
    assert contents(again.body) == contents(streamed.body) == "pong"
    assert again.body.endswith(DONE)
    assert '"choices":[],"usage":{"prompt_tokens":5' in data_of(again.body)[-2]
    assert not any('"usage"' in one for one in data_of((await ask(caching.port, S)).body))
    assert len(upstream.calls) == 1


async def test_the_sdk_reads_hits_as_it_reads_answers(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{caching.url}/v1", api_key="x" * 9) as sdk:
        first = await sdk.chat.completions.create(**C)
        second = await sdk.chat.completions.create(**C)
        assert second.choices == first.choices
        assert second.usage == first.usage
        chunks = [one async for one in await sdk.chat.completions.create(**C, stream=True)]
        assert "".join(one.choices[0].delta.content or "" for one in chunks) == "pong"
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert len({one.id for one in chunks}) == 1
    assert len(upstream.calls) == 1


async def test_calls_of_tools_are_kept_only_on_demand(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ":1}"}}
    upstream.always(
        stream(
            delta({"role": "assistant", "content": None, "tool_calls": [first]}),
            delta({"tool_calls": [rest]}),
            stop(finish="tool_calls"),
            DONE,
        )
    )
    for _ in range(2):
        assert (await ask(caching.port, S)).header("x-cache-hit") == "false"
    assert (await ask(caching.port, S, [("x-sluice-cache", "on")])).header("x-cache-hit") == "false"
    again = await ask(caching.port, S, [("x-sluice-cache", "on")])
    assert again.header("x-cache-hit") == "true"
    async with openai.AsyncOpenAI(base_url=f"{caching.url}/v1", api_key="x" * 9) as sdk:
        answer = await sdk.chat.completions.create(**C, extra_headers={"x-sluice-cache": "on"})
    assert answer.choices[0].message.tool_calls is not None
    assert answer.choices[0].message.tool_calls[0].to_dict() == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
    }
    assert len(upstream.calls) == 3
    assert (await ask(caching.port, S)).header("x-cache-hit") == "false"
    assert len(upstream.calls) == 4


def _chat(finish: str) -> list[Step]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "po"}, "finish_reason": finish}
    return [full(compact({"id": "c1", "object": "chat.completion", "created": 1, "choices": [choice]}))]


NOT_KEPT: dict[str, tuple[Any, list[Step]]] = {
    "cache_04 a a stream that is reset": (S, [*stream(piece("a"), piece("b"), piece("c"), end=False), RST]),
    "cache_04 b done without finish_reason": (S, stream(piece("a"), DONE)),
    "cache_04 d a stream that met its bound": (S, stream(piece("a"), stop(finish="length"), DONE)),
    "cache_04 e an error event": (S, stream(piece("a"), event({"error": {"message": "boom"}}))),
    "cache_04 f a stream that is reset where another choice may come": (
        {**S, "n": 2},
        [*stream(piece("a"), stop(), end=False), RST],
    ),
    "a stream with something new": (S, stream(delta({"content": "a", "poem": "b"}), stop(), DONE)),
    "one choice of two": (
        S,
        stream(event({"choices": [{"index": 1, "delta": {"content": "a"}, "finish_reason": "stop"}]}), DONE),
    ),
    "an answer that met its bound": (C, _chat("length")),
    "an answer that met a filter": (C, _chat("content_filter")),
    "an error": (C, replies.error(500)),
    "an error in a 200": (C, [full(compact({"error": {"message": "boom", "code": 400}}))]),
}


@pytest.mark.parametrize("name", NOT_KEPT)
async def test_what_is_not_a_whole_answer_is_not_kept(
    upstream: FaultUpstream, caching: InProcessGateway, name: str
) -> None:
    body, script = NOT_KEPT[name]
    upstream.always(script)
    for _ in range(3):
        answer = await ask(caching.port, body)
        assert answer.header("x-cache-hit") == "false"
        assert "stored" not in (answer.header("cache-status") or "")
    assert len(upstream.calls) == 3
    await caching.counted("sluice_cache_entries", 0)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (C0, [], "fwd=bypass"),
        ({**C0, "temperature": 0.1}, [], "fwd=bypass"),
        ({**C0, "temperature": False}, [], "fwd=bypass"),
        (C, [("x-sluice-cache", "off")], "fwd=bypass"),
        (b'{"model":"m-small","messages":[],"temperature":1,"temperature":0}', [], "fwd=bypass"),
        (C, [("cache-control", "no-store")], "fwd=miss"),
    ],
)
async def test_what_is_left_alone(
    upstream: FaultUpstream, caching: InProcessGateway, body: Any, headers: Any, status: str
) -> None:
    for number in (1, 2):
        answer = await ask(caching.port, body, headers)
        assert (answer.header("x-cache-hit"), answer.header("cache-status")) == ("false", f"sluice; {status}")
        assert len(upstream.calls) == number


async def test_a_caller_may_share_what_its_request_does_not_settle(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    wants = [("x-sluice-cache", "on")]
    assert (await ask(caching.port, C0, wants)).header("x-cache-hit") == "false"
    assert (await ask(caching.port, C0, wants)).header("x-cache-hit") == "true"
    assert (await ask(caching.port, C0)).header("x-cache-hit") == "false"


async def test_the_directives_of_a_request(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    async def status(control: str) -> str | None:
        answer = await ask(caching.port, C, [("cache-control", control)])
        return answer.header("cache-status")

    missing = await ask(caching.port, C, [("cache-control", "only-if-cached")])
    assert (missing.status, missing.error["code"]) == (504, "cache_miss")
    never_kept = await ask(caching.port, C0, [("cache-control", "only-if-cached")])
    assert (never_kept.status, never_kept.header("cache-status")) == (504, "sluice; fwd=bypass")
    assert upstream.calls == []
    assert await status("no-cache") == "sluice; fwd=request; stored"
    assert (await status("no-store") or "").startswith("sluice; hit")
    assert (await status("only-if-cached, max-stale=5") or "").startswith("sluice; hit")
    assert (await status("max-age=100") or "").startswith("sluice; hit")
    assert await status("no-cache") == "sluice; fwd=request; stored"
    assert await status("max-age=0") == "sluice; fwd=request; stored"
    twice = await ask(caching.port, C, [("cache-control", "max-age=0"), ("cache-control", "no-store")])
    assert twice.header("cache-status") == "sluice; fwd=request"
    assert len(upstream.calls) == 4


async def test_cache_02_keys_share_nothing(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = settings(upstream.url, keys=True, **CACHE)
    config["keys"][1]["models"] = ["*"]
    gateway = await start_gateway(config)
    assert (await ask(gateway.port, C, [AUTH])).header("x-cache-hit") == "false"
    assert (await ask(gateway.port, C, [("x-api-key", OTHER_KEY)])).header("x-cache-hit") == "false"
    assert (await ask(gateway.port, C, [("x-api-key", KEY)])).header("x-cache-hit") == "true"
    stranger = await ask(gateway.port, C, [("x-api-key", KEY + "x")])
    assert (stranger.status, stranger.header("x-cache-hit")) == (401, None)
    assert len(upstream.calls) == 2


async def test_a_hit_takes_no_tokens_and_no_dollars(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = settings(upstream.url, keys=True, **CACHE)
    config["keys"][0]["limits"] = {"tpm": 40, "rpm": 3, "usd_per_day": "0.00005"}
    candidate = config["models"]["m-small"]["candidates"][0]
    candidate["price"] = {"input": 1, "output": 1}
    gateway = await start_gateway(config)
    body = {**C, "max_tokens": 2}
    upstream.reply(
        [
            full(
                compact(
                    {
                        "id": "c1",
                        "choices": [{"index": 0, "message": {"content": "pong"}, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 500, "completion_tokens": 2},
                    }
                )
            )
        ]
    )
    assert (await ask(gateway.port, body, [AUTH])).status == 200
    hit = await ask(gateway.port, body, [AUTH])
    assert (hit.status, hit.header("x-cache-hit")) == (200, "true")
    other = await ask(gateway.port, {**body, "seed": 1}, [AUTH])
    assert (other.status, other.header("x-cache-hit")) == (429, "false")
    assert other.error["code"] == "insufficient_quota"
    await gateway.counted("sluice_cache_saved_usd_total", 0.000502)
    assert (await ask(gateway.port, body, [AUTH])).status == 200
    refused = await ask(gateway.port, body, [AUTH])
    assert (refused.error["type"], refused.header("x-cache-hit")) == ("requests", "false")
    assert refused.header("age") is None
    assert len(upstream.calls) == 1


# Embeddings.


def _vectors(number: int) -> Any:
    def script(asked: Any) -> list[Step]:
        inputs = asked.json()["input"]
        inputs = inputs if isinstance(inputs, list) else [inputs]
        data = [
            {"object": "embedding", "index": at, "embedding": [float(ord(text)), number]}
            for at, text in enumerate(inputs)
        ]
        usage = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
        answer = {"object": "list", "data": list(reversed(data)), "model": "up-embed", "usage": usage}
        return [full(compact(answer))]

    return script


async def test_cache_06_only_what_is_missing_is_asked_for(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    upstream.always(_vectors(1))
    first = await ask(caching.port, {"model": "m-embed", "input": "a"}, path=EMBEDDINGS)
    assert first.header("cache-status") == "sluice; fwd=miss; stored"
    upstream.always(_vectors(2))
    many = {"input": ["b", "a", "c", "a"], "model": "m-embed"}
    mixed = await ask(caching.port, many, path=EMBEDDINGS)
    assert upstream.calls[1].json() == {"input": ["b", "c"], "model": "up-embed"}
    assert mixed.header("cache-status") == "sluice; fwd=partial; stored"
    assert mixed.json() == {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": [98.0, 2], "index": 0},
            {"object": "embedding", "embedding": [97.0, 1], "index": 1},
            {"object": "embedding", "embedding": [99.0, 2], "index": 2},
            {"object": "embedding", "embedding": [97.0, 1], "index": 3},
        ],
        "model": "m-embed",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    again = await ask(caching.port, {"model": "m-embed", "input": ["c", "b"]}, path=EMBEDDINGS)
    assert again.header("x-cache-hit") == "true"
    assert [one["embedding"][0] for one in again.json()["data"]] == [99.0, 98.0]
    assert again.json()["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    repeated = await ask(caching.port, many, path=EMBEDDINGS)
    assert repeated.json()["usage"] == mixed.json()["usage"]
    assert len(upstream.calls) == 2
    for other in ({"encoding_format": "base64"}, {"dimensions": 2}, {"x_foo": 1}):
        await ask(caching.port, {"model": "m-embed", "input": "a", **other}, path=EMBEDDINGS)
    assert len(upstream.calls) == 5
    await caching.counted("sluice_cache_saved_tokens_total", 6)
    await caching.counted("sluice_tokens_total", 6, type="input")


async def test_an_answer_that_does_not_fit_is_given_and_not_kept(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    upstream.always(replies.embeddings(1))
    body = {"model": "m-embed", "input": ["a", "b"]}
    for number in (1, 2):
        answer = await ask(caching.port, body, path=EMBEDDINGS)
        assert (answer.status, len(upstream.calls)) == (200, number)
    twice = await ask(caching.port, {"model": "m-embed", "input": ["a", "b", "a"]}, path=EMBEDDINGS)
    assert (twice.status, twice.error["code"]) == (502, "upstream_invalid_response")


async def test_merged_and_parted_embeddings_report_each_items_usage_again(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = merging(upstream.url, upstream={"max_inputs": 10}, cache={"enabled": True})
    gateway = await start_gateway(config)

    def listed(*numbers: int) -> dict[str, Any]:
        return {"model": "m-embed", "input": [f"text {number}" for number in numbers]}

    parted, *merged = range(300, 325), range(100, 104), range(200, 203)
    lists = [*merged, parted]
    alone = await ask(gateway.port, listed(*parted), path=EMBEDDINGS)
    assert len(upstream.calls) == 3
    engine.hold()
    tasks = [asyncio.create_task(ask(gateway.port, listed(0), path=EMBEDDINGS))]
    await upstream.received(4)
    tasks += [asyncio.create_task(ask(gateway.port, listed(*numbers), path=EMBEDDINGS)) for numbers in merged]
    await gathered(gateway, len(merged))
    engine.release()
    _, *together = await asyncio.gather(*tasks)
    assert len(upstream.calls) == 5
    first = [answer.json()["usage"] for answer in (*together, alone)]
    assert sum(used["prompt_tokens"] for used in first) == (4 + 3 + 25) * (len("text 100") // 3 + 1)
    sent = len(upstream.calls)
    again = [(await ask(gateway.port, listed(*numbers), path=EMBEDDINGS)).json()["usage"] for numbers in lists]
    assert again == first
    every = await ask(gateway.port, listed(*(number for numbers in lists for number in numbers)), path=EMBEDDINGS)
    total = sum(used["prompt_tokens"] for used in first)
    assert every.json()["usage"] == {"prompt_tokens": total, "total_tokens": total}
    assert len(upstream.calls) == sent
