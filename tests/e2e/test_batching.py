"""Callers whose calls are alike share an upstream call, and get what they would have got alone."""

import asyncio
import json
from typing import Any

import pytest
from doubles.gateway import StartGateway
from doubles.limited import OTHER, asked
from doubles.listing_engine import ListingEngine, at_rest, gathered, merging, own, packed, text, vector
from doubles.rawclient import Answer
from doubles.settings import AUTH, KEY, OTHER_KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, EMBEDDINGS, ask

TEXTS = ("alpha", "beta", "gamma")


async def together(
    port_of: Any, engine: ListingEngine, bodies: list[Any], headers: Any = (), path: str = EMBEDDINGS
) -> list[Answer]:
    """All of these while one call is under way; answers in their order."""
    gateway, upstream = port_of, engine.upstream
    before = len(upstream.calls)
    engine.hold()
    first = asyncio.create_task(ask(gateway.port, bodies[0], headers, path))
    await upstream.received(before + 1)
    tasks = [asyncio.create_task(ask(gateway.port, body, headers, path)) for body in bodies[1:]]
    await gathered(gateway, len(tasks))
    engine.release()
    return list(await asyncio.gather(first, *tasks))


@pytest.mark.parametrize("shuffled", [False, True])
async def test_batch_01_everybody_gets_his_own_by_index(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine, shuffled: bool
) -> None:
    engine.shuffled = shuffled
    gateway = await start_gateway(merging(upstream.url))
    given = ["first", *TEXTS, "delta", "epsilon"]
    answers = await together(gateway, engine, [text(one) for one in given])
    for answer, one in zip(answers, given, strict=True):
        own(answer, one)
    assert upstream.calls[0].json()["input"] == "first"
    assert sorted(upstream.calls[1].json()["input"]) == sorted(given[1:])
    assert len(upstream.calls) == 2
    assert [one.header("x-sluice-batch-size") for one in answers] == [None, *["5"] * 5]
    assert {one.header("x-sluice-attempts") for one in answers} == {"1"}
    assert float(answers[0].header("x-sluice-queue-ms") or 1) == 0.0
    assert all(float(one.header("x-sluice-queue-ms") or 0) > 0 for one in answers[1:])
    metrics = await gateway.metrics()
    assert metrics.value("sluice_batch_size_count", model="m-embed", endpoint=EMBEDDINGS) == 2
    assert metrics.value("sluice_batch_size_sum", model="m-embed", endpoint=EMBEDDINGS) == 6
    assert metrics.value("sluice_batch_wait_seconds_count", model="m-embed", flush_reason="idle") == 1
    assert metrics.value("sluice_batch_wait_seconds_count", model="m-embed", flush_reason="slot") == 5
    await gateway.outcome("ok", 6)
    await at_rest(gateway)


async def test_who_finds_the_upstream_free_travels_alone_and_byte_for_byte(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(upstream.url))
    body = b'{ "input" : ["al\\u0070ha"],"x":1.50, "model":"m-embed" }'
    answer = await ask(gateway.port, body, path=EMBEDDINGS)
    own(answer, "alpha")
    assert answer.header("x-sluice-batch-size") is None
    assert upstream.calls[0].body == body.replace(b"m-embed", b"up-embed")
    await at_rest(gateway)


async def test_lists_ids_and_texts_in_turn(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    """Texts merge with lists of texts, ids with lists of ids, and neither with the other."""
    gateway = await start_gateway(merging(upstream.url))
    inputs: list[Any] = ["x", [1, 2, 3], ["a", "bc"], "d", [[4], [5, 6]], [7, 8]]
    answers = await together_by_kind(gateway, engine, inputs)
    for answer, given in zip(answers, inputs, strict=True):
        items = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        assert [one["embedding"] for one in answer.json()["data"]] == [vector(one) for one in items]
        assert [one["index"] for one in answer.json()["data"]] == list(range(len(items)))
    merged = [call.json()["input"] for call in upstream.calls[2:]]
    assert sorted(merged, key=str) == [["a", "bc", "d"], [[4], [5, 6], [7, 8]]]


async def together_by_kind(gateway: Any, engine: ListingEngine, inputs: list[Any]) -> list[Answer]:
    """The first two are of two groups, and go at once."""
    engine.hold()
    tasks = []
    for number, given in enumerate(inputs):
        tasks.append(asyncio.create_task(ask(gateway.port, text(given), path=EMBEDDINGS)))
        if number < 2:
            await engine.upstream.received(number + 1)
        else:
            await gathered(gateway, number - 1)
    engine.release()
    return list(await asyncio.gather(*tasks))


async def test_batch_04_encodings_are_never_mixed(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(upstream.url))
    kinds: list[dict[str, Any]] = [{"encoding_format": "base64"}, {}, {"encoding_format": "float"}]
    engine.hold()
    tasks = [asyncio.create_task(ask(gateway.port, text("x", **kind), path=EMBEDDINGS)) for kind in kinds]
    await upstream.received(3)
    tasks += [
        asyncio.create_task(ask(gateway.port, text(f"{kind}{name}", **kind), path=EMBEDDINGS))
        for kind in kinds
        for name in "ab"
    ]
    await gathered(gateway, 6)
    engine.release()
    answers = await asyncio.gather(*tasks)
    for answer, (kind, name) in zip(answers[3:], ((kind, name) for kind in kinds for name in "ab"), strict=True):
        wanted: Any = vector(f"{kind}{name}")
        if kind.get("encoding_format") == "base64":
            wanted = packed(wanted)
        assert answer.json()["data"][0]["embedding"] == wanted
    assert len(upstream.calls) == 6
    for call in upstream.calls[3:]:
        shape = {name: value for name, value in call.json().items() if name == "encoding_format"}
        assert call.json()["input"] == [f"{shape}a", f"{shape}b"]


ALONE: dict[str, dict[str, Any]] = {
    "dimensions 256": {"dimensions": 256},
    "dimensions 512": {"dimensions": 512},
    "an unknown field": {"input_type": "query"},
    "a user": {"user": "u1"},
    "another user": {"user": "u2"},
    "metadata": {"metadata": {"a": 1}},
    "an encoding nobody knows (BATCH-05)": {"encoding_format": "int8"},
}


async def test_batch_06_other_parameters_never_share_a_call(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(upstream.url, {"policy": "window", "max_wait": "50ms"}))
    bodies = [text("a", **more) for more in ({}, *ALONE.values())]
    answers = await asyncio.gather(*(ask(gateway.port, body, path=EMBEDDINGS) for body in bodies))
    assert {one.status for one in answers} == {200}
    sent = [{**call.json(), "model": "m-embed"} for call in upstream.calls]
    assert sorted(sent, key=str) == sorted(bodies, key=str)
    assert (await gateway.metrics()).value("sluice_batch_size_sum") == len(bodies)
    await at_rest(gateway)


async def test_batch_18_other_forwarded_headers_never_share_a_call(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    window = {"policy": "window", "max_wait": "50ms"}
    config = merging(upstream.url, window, upstream={"forward_headers": ["x-tenant"]})
    gateway = await start_gateway(config)
    given = [("a", [("x-tenant", "1")]), ("b", [("x-tenant", "2")]), ("c", [("x-tenant", "1")]), ("d", [])]
    given = [(one, [*headers, ("x-request-id", f"id-{one}")]) for one, headers in given]
    await asyncio.gather(*(ask(gateway.port, text(one), headers, EMBEDDINGS) for one, headers in given))
    sent = {tuple(call.header("x-tenant")): call.json()["input"] for call in upstream.calls}
    assert {key: sorted(value) for key, value in sent.items()} == {
        ("1",): ["a", "c"],
        ("2",): ["b"],
        (): ["d"],
    }


async def test_batch_18_calls_of_different_keys_may_share_one_and_nothing_of_a_key_travels(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = merging(upstream.url, {"policy": "window", "max_wait": "50ms"}, keys=True)
    gateway = await start_gateway(config)
    both = await asyncio.gather(
        asked(gateway.port, text("mine"), path=EMBEDDINGS, key=AUTH),
        asked(gateway.port, text("yours"), path=EMBEDDINGS, key=OTHER),
    )
    own(both[0], "mine")
    own(both[1], "yours")
    assert [one.header("x-sluice-batch-size") for one in both] == ["2", "2"]
    assert len(upstream.calls) == 1
    for secret in (KEY, OTHER_KEY, "team-a", "team-b"):
        assert secret.encode() not in upstream.calls[0].head + upstream.calls[0].body


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**C0, "stream": True, "max_tokens": 4}, CHAT),
        ({**C0, "max_tokens": 4, "tools": [{"type": "function", "function": {"name": "f"}}]}, CHAT),
        ({**C0, "max_tokens": 4, "n": 2}, CHAT),
        (C0, CHAT),
        (
            {"model": "m-small", "prompt": "p", "max_tokens": 1, "echo": True, "logprobs": 5, "n": 2},
            COMPLETIONS,
        ),
        ({"model": "m-small", "prompt": ["p0", "p1"], "n": 2, "logprobs": 2, "echo": True}, COMPLETIONS),
    ],
)
async def test_batch_15_and_16_what_no_list_can_hold_travels_as_it_came(
    upstream: FaultUpstream, start_gateway: StartGateway, body: dict[str, Any], path: str
) -> None:
    """Whatever the engine offers, and whoever waits."""
    window = {"policy": "window", "max_wait": "50ms"}
    gateway = await start_gateway(merging(upstream.url, window, upstream={"kind": "vllm"}))
    raw = json.dumps(body).encode()
    answers = await asyncio.gather(*(ask(gateway.port, raw, path=path) for _ in range(3)))
    assert {one.status for one in answers} == {200}
    assert {one.header("x-sluice-batch-size") for one in answers} == {None}
    sent = [call for call in upstream.calls if call.target == path]
    wanted = raw.replace(b'"m-small"', b'"up-small"')
    assert [json.loads(call.body) | {"stream_options": None} for call in sent] == [
        json.loads(wanted) | {"stream_options": None}
    ] * 3


async def test_off_is_off(upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine) -> None:
    gateway = await start_gateway(merging(upstream.url, {"policy": "off"}))
    engine.hold()
    tasks = [asyncio.create_task(ask(gateway.port, text(one), path=EMBEDDINGS)) for one in TEXTS]
    await upstream.holding(3)
    engine.release()
    for answer, one in zip(await asyncio.gather(*tasks), TEXTS, strict=True):
        own(answer, one)
    assert (await gateway.metrics()).value("sluice_batch_size_count") == 0


async def test_admin_shows_what_has_been_learned(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(upstream.url, {"max_size": 7, "max_inflight": 1}))
    await together(gateway, engine, [text(one * 9) for one in TEXTS])
    from doubles.rawclient import call

    answer = await call(gateway.admin_port, "GET", "/admin/upstreams")
    (shown,) = answer.json()["local"]["batching"]
    assert (shown["model"], shown["endpoint"], shown["size"], shown["inflight"]) == (
        "m-embed",
        EMBEDDINGS,
        7,
        1,
    )
    assert shown["call_ms"] > 0
