"""One bad member, one broken answer: the others of the batch do not notice."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.limited import OTHER, asked, limited
from doubles.listing_engine import (
    Gathering,
    ListingEngine,
    at_rest,
    gathering,
    merging,
    own,
    refusal,
    text,
)
from doubles.rawclient import call
from doubles.script import RST, Script, compact, full
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import EMBEDDINGS, ask

NAMES = tuple("abcdefgh")
FEW = NAMES[:3]


async def test_batch_03_a_poison_input_fails_its_own_caller_only(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    given = [*NAMES[:4], "poison of e", *NAMES[5:]]
    batch = await gathering(given, engine, start_gateway)
    answers = await batch.ends()
    for answer, one in zip(answers, given, strict=True):
        if one in NAMES:
            own(answer, one)
        else:
            assert answer.status == 400
            assert answer.error["message"] == "input[0] is poisonous: poison of e"
        assert answer.header("x-sluice-batch-size") is None
        assert answer.header("x-sluice-attempts") == "2"
    assert len(batch.sent()) == 9
    assert batch.sent()[0] == given
    assert (await batch.gateway.metrics()).value("sluice_upstream_breaker_state") == 0


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_batch_03_a_busy_or_failing_upstream_gets_no_storm(
    start_gateway: StartGateway, engine: ListingEngine, status: int
) -> None:
    batch = await gathering(list(NAMES), engine, start_gateway)
    engine.upstream.always(refusal(status, "slow down", **{"retry-after": "7"}))
    answers = await batch.ends()
    assert len(batch.sent()) == 1
    assert {one.status for one in answers} == {502 if status == 500 else status}
    assert {one.header("x-sluice-batch-size") for one in answers} == {"8"}
    if status != 500:
        assert {one.header("retry-after") for one in answers} == {"7"}


async def test_a_wrong_path_is_told_to_all_by_one_call(start_gateway: StartGateway, engine: ListingEngine) -> None:
    batch = await gathering(list(NAMES), engine, start_gateway)
    engine.upstream.always(refusal(404, "Not Found"))
    answers = await batch.ends()
    assert batch.sent() == [list(NAMES)]
    assert {(one.status, one.error["code"]) for one in answers} == {(404, "upstream_error")}
    assert {one.header("x-sluice-batch-size") for one in answers} == {"8"}


async def test_a_retried_batch_counts_once(start_gateway: StartGateway, engine: ListingEngine) -> None:
    config = merging(engine.upstream.url, retry={"attempts": 2, "backoff_base": "1ms"})
    batch = await gathering(list(NAMES), engine, start_gateway, config)
    engine.upstream.reply(replies.error(502))
    for answer, one in zip(await batch.ends(), NAMES, strict=True):
        own(answer, one)
        assert answer.header("x-sluice-attempts") == "2"
    assert batch.sent() == [list(NAMES)] * 2
    assert (await batch.gateway.metrics()).value("sluice_retries_total") == 1


def without(at: int, data: list[Any]) -> list[Any]:
    return [one for one in data if one["index"] != at]


BROKEN: dict[str, Callable[[list[Any]], Any]] = {
    "one is missing": lambda data: without(1, data),
    "one comes twice": lambda data: [*without(1, data), data[0]],
    "one too many": lambda data: [*data, {**data[0], "index": len(data)}],
    "out of range": lambda data: [*without(1, data), {**data[1], "index": 99}],
    "negative": lambda data: [*without(1, data), {**data[1], "index": -1}],
    "an index twice": lambda data: [{**one, "index": max(one["index"], 1)} for one in data],
    "no vector": lambda data: [{**one, "embedding": None} for one in data],
    "no list": lambda data: None,
}


@pytest.mark.parametrize("how", BROKEN)
async def test_an_answer_that_does_not_fit_is_not_used_at_all(
    start_gateway: StartGateway, engine: ListingEngine, how: str
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)

    def broken(one: Call) -> Script:
        (step,) = engine.said(one)
        assert isinstance(step, bytes)
        answer = json.loads(step.partition(b"\r\n\r\n")[2])
        return [full(compact({**answer, "data": BROKEN[how](answer["data"])}))]

    engine.upstream.reply(broken)
    for answer, one in zip(await batch.ends(), FEW, strict=True):
        own(answer, one)
    assert batch.sent()[0] == list(FEW)
    assert sorted(batch.sent()[1:]) == list(FEW)


async def test_a_call_that_is_sent_alone_again_is_judged_like_one_that_never_was_merged(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    engine.upstream.always(replies.embeddings(2))
    answers = [*await batch.ends(), await ask(batch.gateway.port, text("alone"), path=EMBEDDINGS)]
    assert {(one.status, one.body) for one in answers} == {(200, answers[-1].body)}
    assert batch.sent()[0] == list(FEW)


INDEXES: dict[str, Callable[[int], dict[str, Any]]] = {
    "left out": lambda at: {},
    "left out where 0": lambda at: {"index": at} if at else {},
    "null": lambda at: {"index": None},
    "all 0": lambda at: {"index": 0},
    "from 1": lambda at: {"index": at + 1},
    "a text": lambda at: {"index": str(at)},
    "a float": lambda at: {"index": float(at)},
    "by parts": lambda at: {"index": at % 2},
}


@pytest.mark.parametrize("how", INDEXES)
async def test_embeddings_without_a_useful_index_are_merged_by_position(
    start_gateway: StartGateway, engine: ListingEngine, how: str
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)

    def unnumbered(one: Call) -> Script:
        (step,) = engine.said(one)
        assert isinstance(step, bytes)
        answer = json.loads(step.partition(b"\r\n\r\n")[2])
        items = [
            {name: value for name, value in item.items() if name != "index"} | INDEXES[how](at)
            for at, item in enumerate(answer["data"])
        ]
        return [full(compact({**answer, "data": items}))]

    engine.upstream.always(unnumbered)
    for answer, one in zip(await batch.ends(), FEW, strict=True):
        own(answer, one)
        assert [item["index"] for item in answer.json()["data"]] == [0]
    assert batch.sent() == [list(FEW)]


BAD = {
    "null": b'{"model":"m-embed","input":null}',
    "an object": b'{"model":"m-embed","input":{"a":1}}',
    "NaN": b'{"model":"m-embed","input":NaN}',
    "deep": b'{"model":"m-embed","input":' + b"[" * 200 + b"]" * 200 + b"}",
    "empty": b'{"model":"m-embed","input":[]}',
    "mixed": b'{"model":"m-embed","input":["a",1]}',
}


@pytest.mark.parametrize("name", BAD)
async def test_batch_12_no_input_stops_the_next_ones(
    upstream: FaultUpstream, start_gateway: StartGateway, name: str
) -> None:
    upstream.always(lambda one: replies.error(400) if b'"good"' not in one.body else replies.ordinary(one))
    gateway = await start_gateway(merging(upstream.url, {"policy": "window", "max_wait": "20ms"}))
    bad, *good = await asyncio.gather(
        ask(gateway.port, BAD[name], path=EMBEDDINGS),
        *(ask(gateway.port, text("good"), path=EMBEDDINGS) for _ in range(3)),
    )
    assert bad.status == 400
    assert {one.status for one in good} == {200}
    await at_rest(gateway)


async def test_batch_12_a_bug_ends_one_batch_and_no_more(
    monkeypatch: pytest.MonkeyPatch, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    with monkeypatch.context() as patch:
        patch.setattr("gateway.wire.openai.demerge.split", lambda *_: 1 / 0)
        answers = await batch.ends()
    assert {(one.status, one.error["code"]) for one in answers} == {(500, "internal_error")}
    again = Gathering(batch.gateway, engine)
    await again.gather(list(FEW))
    for answer, one in zip(await again.ends(), FEW, strict=True):
        own(answer, one)
    await batch.gateway.counted("sluice_upstream_inflight", 0)


async def test_batch_10_usage_limits_and_cost_are_each_members_share(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = limited(engine.upstream.url, {"tpm": 1000}, other={"tpm": 500})
    config["batching"] = {"policy": "window", "max_wait": "50ms"}
    config["models"]["m-embed"]["candidates"][0]["price"] = {"input": 1000, "output": 0}
    gateway = await start_gateway(config)
    given = ["x" * 12, "x" * 20, "x" * 32]
    keys = [AUTH, AUTH, OTHER]
    answers = await asyncio.gather(
        *(asked(gateway.port, text(one), (), EMBEDDINGS, key) for one, key in zip(given, keys, strict=True))
    )
    shares = [one.json()["usage"]["prompt_tokens"] for one in answers]
    assert sum(shares) == 5 + 7 + 11
    assert shares == sorted(shares)
    assert shares[0] > 0
    costs = [float(one.header("x-sluice-cost-usd") or 0) for one in answers]
    assert costs == [pytest.approx(share / 1000) for share in shares]
    metrics = await gateway.metrics()
    for key, cost in (("team-a", costs[0] + costs[1]), ("team-b", costs[2])):
        await gateway.counted("sluice_tokens_total", 23, type="input")
        metrics = await gateway.metrics()
        assert metrics.value("sluice_cost_usd_total", key=key) == pytest.approx(cost)
    usage = (await call(gateway.admin_port, "GET", "/admin/usage")).json()
    assert usage is not None
    after = await asked(gateway.port, text("y"), (), EMBEDDINGS, OTHER)
    assert 500 - shares[2] - 10 <= int(after.header("x-ratelimit-remaining-tokens") or 0) <= 500


async def test_an_upstream_that_breaks_off_fails_the_batch_once(
    start_gateway: StartGateway, engine: ListingEngine
) -> None:
    batch = await gathering(list(FEW), engine, start_gateway)
    engine.upstream.always([b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", RST])
    answers = await batch.ends()
    assert {(one.status, one.error["code"]) for one in answers} == {(502, "upstream_error")}
    assert len(batch.sent()) == 1
