"""A list that is longer than its upstream takes is sent in parts, and answered as one (BATCH-09)."""

import asyncio
import json
from typing import Any

import pytest
from doubles import replies
from doubles.call import Call
from doubles.gateway import StartGateway
from doubles.limited import asked, limited
from doubles.listing_engine import ListingEngine, at_rest, gathered, merging, refusal, vector
from doubles.rawclient import RawClient
from doubles.script import NEVER, Script, compact, full
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import COMPLETIONS, E0, EMBEDDINGS, ask

TEN = {"max_inputs": 10}


def listed(count: int, **more: Any) -> dict[str, Any]:
    return {**E0, "input": [f"text {number}" for number in range(count)], **more}


@pytest.mark.parametrize("policy", ["eager", "window", "off"])
async def test_parts_are_joined_in_the_clients_numbering(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine, policy: str
) -> None:
    engine.shuffled = True
    config = settings(upstream.url, upstream={"max_inputs": 100}, batching={"policy": policy})
    gateway = await start_gateway(config)
    body = listed(1260, dimensions=5, user="u")
    answer = await ask(gateway.port, body, path=EMBEDDINGS)
    assert answer.status == 200
    said = answer.json()
    assert said["data"] == [
        {"object": "embedding", "index": number, "embedding": vector(text)[:5]}
        for number, text in enumerate(body["input"])
    ]
    assert (said["object"], said["model"]) == ("list", "m-embed")
    sent = [call.json() for call in upstream.calls]
    assert sorted(len(one["input"]) for one in sent) == [60, *[100] * 12]
    assert sorted(text for one in sent for text in one["input"]) == sorted(body["input"])
    assert {(one["model"], one["dimensions"], one["user"]) for one in sent} == {("up-embed", 5, "u")}
    total = sum(len(text) // 3 + 1 for text in body["input"])
    assert said["usage"] == {"prompt_tokens": total, "total_tokens": total}
    assert answer.header("x-sluice-attempts") == "13"
    await gateway.outcome("ok")
    await gateway.counted("sluice_tokens_total", total, type="input")
    await at_rest(gateway)


async def test_a_list_of_too_many_tokens_is_cut_by_them(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(settings(upstream.url, batching={"max_tokens": 1000}))
    texts = [f"{number} " + "water and mills " * 50 for number in range(20)] + ["mill " * 2000]
    answer = await ask(gateway.port, {**E0, "input": texts}, path=EMBEDDINGS)
    assert answer.status == 200
    assert [one["embedding"] for one in answer.json()["data"]] == [vector(text) for text in texts]
    sent = [call.json()["input"] for call in upstream.calls]
    assert sorted(text for part in sent for text in part) == sorted(texts)
    assert max(len(part) for part in sent) < 10
    assert [texts[-1]] in sent  # larger than the bound by itself: nobody can make it smaller


@pytest.mark.parametrize("count", [10, 11])
async def test_the_bound_itself_fits(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine, count: int
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream=TEN))
    answer = await ask(gateway.port, listed(count), path=EMBEDDINGS)
    assert [one["index"] for one in answer.json()["data"]] == list(range(count))
    assert len(upstream.calls) == (1 if count == 10 else 2)


async def test_small_lists_are_never_merged_over_the_bound(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(merging(upstream.url, upstream=TEN))
    engine.hold()
    tasks = [asyncio.create_task(ask(gateway.port, E0, path=EMBEDDINGS))]
    await upstream.received(1)
    for number, count in enumerate((6, 5, 3, 4)):
        tasks.append(asyncio.create_task(ask(gateway.port, listed(count), path=EMBEDDINGS)))
        if number == 0:
            await gathered(gateway, 1)
    engine.release()
    answers = await asyncio.gather(*tasks)
    assert [len(one.json()["data"]) for one in answers] == [1, 6, 5, 3, 4]
    assert all(isinstance(given := call.json()["input"], str) or len(given) <= 10 for call in upstream.calls)
    await at_rest(gateway)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("input[{at}] is too long", "input[{at}] is too long"),
        ("'input', {at}: empty", "'input', {at}: empty"),
        ("bad item at index {at}.", "bad item at index {at}."),
        ("no position", "no position"),
    ],
)
async def test_positions_in_errors_are_the_clients(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine, message: str, told: str
) -> None:
    def answer(call: Call) -> Script:
        given = call.json()["input"]
        if "text 17" not in given:
            return engine.answer(call)
        return refusal(400, message.format(at=given.index("text 17")))

    upstream.always(answer)
    gateway = await start_gateway(settings(upstream.url, upstream=TEN))
    refused = await ask(gateway.port, listed(35), path=EMBEDDINGS)
    assert (refused.status, refused.error["message"]) == (400, told.format(at=17))
    await gateway.outcome("client_error")


async def test_parts_that_all_fail_are_told_once(
    caplog: pytest.LogCaptureFixture, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    upstream.always(refusal(400, "input[0] is wrong"))
    gateway = await start_gateway(settings(upstream.url, upstream=TEN))
    for _ in range(3):
        refused = await ask(gateway.port, listed(35), path=EMBEDDINGS)
        assert refused.status == 400
    await gateway.outcome("client_error", 3)
    assert [one for one in caplog.records if one.name == "asyncio"] == []


async def test_a_part_that_does_not_fit_fails_all(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream=TEN))
    upstream.always(
        lambda call: engine.answer(call) if "text 17" not in call.json()["input"] else replies.embeddings(9)
    )
    answer = await ask(gateway.port, listed(35), path=EMBEDDINGS)
    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


async def test_who_leaves_takes_all_parts_along(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    upstream.always([NEVER])
    gateway = await start_gateway(settings(upstream.url, upstream={**TEN, "max_concurrency": 2}))
    client = await RawClient.open(gateway.port)
    await client.request("POST", EMBEDDINGS, listed(35))
    await upstream.received(2)
    await gateway.counted("sluice_upstream_queue_depth", 2)
    await client.close()
    for number in (1, 2):
        await upstream.peer_closed(number)
    await gateway.outcome("client_gone")
    assert len(upstream.calls) == 2
    assert (await gateway.metrics()).value("sluice_upstream_queue_depth") == 0


async def test_parts_are_retried_by_themselves(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = settings(upstream.url, upstream=TEN, retry={"attempts": 2, "backoff_base": "1ms"})
    gateway = await start_gateway(config)
    upstream.reply(replies.error(502))
    answer = await ask(gateway.port, listed(25), path=EMBEDDINGS)
    assert [one["index"] for one in answer.json()["data"]] == list(range(25))
    assert answer.header("x-sluice-attempts") == "4"


async def test_limits_and_cost_are_those_of_the_whole(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    config = limited(upstream.url, {"rpm": 10}, upstream=TEN)
    config["models"]["m-embed"]["candidates"][0]["price"] = {"input": 1000, "output": 0}
    gateway = await start_gateway(config)
    answer = await asked(gateway.port, listed(25), path=EMBEDDINGS)
    used = answer.json()["usage"]["prompt_tokens"]
    assert float(answer.header("x-sluice-cost-usd") or 0) == pytest.approx(used / 1000)
    assert answer.header("x-ratelimit-remaining-requests") == "9"


@pytest.mark.parametrize("ids", [False, True])
async def test_token_ids_and_base64(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine, ids: bool
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"max_inputs": 2}))
    given = [[1, 2], [3], [4, 5]] if ids else ["a", "b", "c"]
    body = {**E0, "input": given, "encoding_format": "base64"}
    answer = await ask(gateway.port, body, path=EMBEDDINGS)
    assert [isinstance(one["embedding"], str) for one in answer.json()["data"]] == [True] * 3
    assert [call.json()["input"] for call in sorted(upstream.calls, key=lambda call: call.body)] == [
        given[:2],
        given[2:],
    ]


async def test_lists_of_prompts_are_split_whatever_their_length(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    """Also where the upstream's kind is not known to merge well: it is the client's own list."""
    gateway = await start_gateway(settings(upstream.url, upstream={"max_inputs": 2}))
    body = {"model": "m-small", "prompt": ["a", "b", "c"], "max_tokens": 500}
    answer = await ask(gateway.port, body, path=COMPLETIONS)
    assert [(one["index"], one["text"]) for one in answer.json()["choices"]] == [(0, "A"), (1, "B"), (2, "C")]
    assert answer.json()["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    assert len(upstream.calls) == 2


async def test_a_list_of_tokens_is_one_input(
    upstream: FaultUpstream, start_gateway: StartGateway, engine: ListingEngine
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"max_inputs": 2}))
    body = {**E0, "input": [1, 2, 3, 4]}
    answer = await ask(gateway.port, body, path=EMBEDDINGS)
    assert len(answer.json()["data"]) == 1
    assert json.loads(upstream.calls[0].body)["input"] == [1, 2, 3, 4]


async def test_unknown_members_of_the_answer_stay(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    def answer(call: Call) -> Script:
        data = [{"embedding": [1.50], "index": at, "x": {"y": 1}} for at in range(len(call.json()["input"]))]
        return [full(compact({"id": "e1", "data": data, "model": "up-embed", "z": [1]}))]

    upstream.always(answer)
    gateway = await start_gateway(settings(upstream.url, upstream={"max_inputs": 2}))
    said = (await ask(gateway.port, listed(3), path=EMBEDDINGS)).json()
    assert (said["id"], said["z"], said["model"]) == ("e1", [1], "m-embed")
    assert said["data"] == [{"embedding": [1.5], "index": at, "x": {"y": 1}} for at in range(3)]
