"""Callers who want the same at the same time: one upstream call, whoever leaves, lags or fails."""

import asyncio
from typing import Any

import pytest
from doubles import replies
from doubles.flights import joined
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import DONE, LAST_CHUNK, RST, Until, frame, piece, sse_head, stop
from doubles.settings import AUTH, settings
from doubles.sse import contents, final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS, S0, ask

C = {**C0, "temperature": 0}
S = {**S0, "temperature": 0}
MANY = 100


@pytest.fixture
async def caching(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway that keeps answers, before an upstream of few slots."""
    return await start_gateway(settings(upstream.url, cache={"enabled": True}, upstream={"max_concurrency": 2}))


@pytest.mark.parametrize("body", [C, S, {**E0}], ids=["whole", "stream", "embeddings"])
async def test_a_hundred_at_once_make_one_call(
    upstream: FaultUpstream, caching: InProcessGateway, body: dict[str, Any]
) -> None:
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    path = EMBEDDINGS if "input" in body else CHAT
    asking = [asyncio.ensure_future(ask(caching.port, body, path=path)) for _ in range(MANY)]
    await joined(caching, MANY - 1)
    gate.set()
    answers = await asyncio.gather(*asking)
    assert {(one.status, one.complete) for one in answers} == {(200, True)}
    assert len({one.body for one in answers}) == 1
    assert {one.header("x-cache-hit") for one in answers} == {"false"}
    assert sum((one.header("cache-status") or "").endswith("; collapsed") for one in answers) == MANY - 1
    assert len({one.header("x-request-id") for one in answers}) == MANY
    assert {one.header("x-sluice-upstream") for one in answers} == {"local"}
    assert all(float(one.header("x-sluice-queue-ms") or -1) >= 0 for one in answers)
    assert all(float(one.header("x-sluice-overhead-ms") or -1) >= 0 for one in answers)
    assert len(upstream.calls) == 1
    await caching.outcome("ok", MANY)
    sent = 1 if path == EMBEDDINGS else 5
    await caching.counted("sluice_tokens_total", sent, type="input")
    await caching.counted("sluice_cache_saved_tokens_total", sent * (MANY - 1), type="input")
    await caching.counted("sluice_cache_requests_total", MANY - 1, result="collapsed")
    await caching.counted("sluice_cache_requests_total", 1, result="miss")
    assert (await ask(caching.port, body, path=path)).header("x-cache-hit") == "true"


async def test_streams_and_whole_answers_fly_apart(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    told = {**S, "stream_options": {"include_usage": True}}
    asking = [asyncio.ensure_future(ask(caching.port, body)) for body in (C, C, S, S)]
    await joined(caching, 2)
    asking.append(asyncio.ensure_future(ask(caching.port, told)))
    await caching.counted("sluice_cache_requests_total", 3, result="miss")
    gate.set()
    answers = await asyncio.gather(*asking)
    assert {one.status for one in answers} == {200}
    assert len(upstream.calls) == 3


async def test_who_wants_it_fresh_does_not_share_what_holds_older_parts(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    await ask(caching.port, {"model": "m-embed", "input": "a"}, path=EMBEDDINGS)
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    both = {"model": "m-embed", "input": ["a", "b"]}
    usual = asyncio.ensure_future(ask(caching.port, both, path=EMBEDDINGS))
    await caching.counted("sluice_cache_requests_total", 2, result="miss")
    fresh = asyncio.ensure_future(ask(caching.port, both, [("cache-control", "max-age=0")], path=EMBEDDINGS))
    await caching.counted("sluice_cache_requests_total", 3, result="miss")
    gate.set()
    assert [one.status for one in await asyncio.gather(usual, fresh)] == [200, 200]
    assert [one.json()["input"] for one in upstream.calls] == ["a", ["b"], ["a", "b"]]


async def test_who_comes_late_gets_a_stream_from_its_beginning(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    gate = asyncio.Event()
    upstream.always([sse_head(), frame(piece("a")), frame(piece("b")), Until(gate), *_end(piece("c"))])
    async with await RawClient.open(caching.port) as first, await RawClient.open(caching.port) as late:
        answer = await _begin(first, b'"b"')
        late_one = await _begin(late, b'"b"')
        assert late_one.header("cache-status") == "sluice; fwd=miss; collapsed"
        gate.set()
        for client, one in ((first, answer), (late, late_one)):
            await client.rest(one)
            assert (one.complete, contents(one.body)) == (True, "abc")
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("body", [C, S], ids=["whole", "stream"])
async def test_the_first_may_leave_and_the_last_ends_it(
    upstream: FaultUpstream, caching: InProcessGateway, body: dict[str, Any]
) -> None:
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    async with await RawClient.open(caching.port) as first:
        await first.request("POST", CHAT, body)
        await upstream.received(1)
        other = asyncio.ensure_future(ask(caching.port, body))
        await joined(caching, 1)
    await caching.counted("sluice_requests_total", 1, outcome="client_gone")
    assert upstream.calls[0].closed is None
    gate.set()
    answer = await other
    assert (answer.status, answer.complete) == (200, True)
    assert len(upstream.calls) == 1
    await caching.counted("sluice_tokens_total", 5, type="input")
    gate.clear()
    async with await RawClient.open(caching.port) as one, await RawClient.open(caching.port) as two:
        await one.request("POST", CHAT, {**body, "seed": 2})
        await two.request("POST", CHAT, {**body, "seed": 2})
        await joined(caching, 1)
        await upstream.received(2)
    await upstream.peer_closed(2)
    await caching.counted("sluice_requests_total", 3, outcome="client_gone")
    await caching.counted("sluice_upstream_inflight", 0)
    gate.set()


async def test_who_leaves_a_stream_disturbs_nobody_and_the_last_ends_it(
    upstream: FaultUpstream, caching: InProcessGateway
) -> None:
    gate = asyncio.Event()
    upstream.always([sse_head(), frame(piece("a")), Until(gate), frame(piece("b")), Until(asyncio.Event())])
    async with await RawClient.open(caching.port) as second:
        async with await RawClient.open(caching.port) as first:
            await _begin(first, b'"a"')
            answer = await _begin(second, b'"a"')
        await caching.counted("sluice_requests_total", 1, outcome="client_gone")
        gate.set()
        await second.until(answer, b'"b"')
        assert upstream.calls[0].closed is None
    await upstream.peer_closed(1)
    await caching.outcome("client_gone", 2)
    await caching.counted("sluice_cache_entries", 0)


@pytest.mark.parametrize(("script", "status"), [(replies.error(500), 502), (replies.error(429), 429), ([RST], 502)])
@pytest.mark.parametrize("body", [C, S], ids=["whole", "stream"])
async def test_a_failure_is_told_to_all(
    upstream: FaultUpstream, caching: InProcessGateway, body: dict[str, Any], script: Any, status: int
) -> None:
    gate = asyncio.Event()
    upstream.always([Until(gate), *script])
    asking = [asyncio.ensure_future(ask(caching.port, body)) for _ in range(5)]
    await joined(caching, 4)
    gate.set()
    answers = await asyncio.gather(*asking)
    assert {one.status for one in answers} == {status}
    assert len({one.body for one in answers}) == 1
    assert len(upstream.calls) == 1
    upstream.always(replies.ordinary)
    assert (await ask(caching.port, body)).header("x-cache-hit") == "false"


async def test_a_broken_stream_breaks_for_all(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    gate = asyncio.Event()
    upstream.always([sse_head(), frame(piece("a")), Until(gate), RST])
    async with await RawClient.open(caching.port) as first, await RawClient.open(caching.port) as second:
        answers = [await _begin(first, b'"a"'), await _begin(second, b'"a"')]
        gate.set()
        for client, answer in zip((first, second), answers, strict=True):
            await client.rest(answer)
            assert final_error(answer.body)["type"] == "upstream_error"
            assert (answer.complete, answer.end) == (False, "fin")
    await caching.outcome("truncated", 2)


BIG = piece("x" * 64 * 1024)
PIECES = 96  # six times what a follower may lag behind


async def test_who_lags_is_not_waited_for(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    gate = asyncio.Event()
    upstream.always([sse_head(), frame(piece("a")), Until(gate), *([frame(BIG)] * PIECES), *_end(piece("c"))])
    async with (
        await RawClient.open(caching.port, receive_buffer=4096) as slow,
        await RawClient.open(caching.port) as fast,
    ):
        lagging, answer = await _begin(slow, b'"a"'), await _begin(fast, b'"a"')
        gate.set()
        await fast.rest(answer)
        assert answer.complete
        assert len(contents(answer.body)) == PIECES * 64 * 1024 + 2
        await slow.rest(lagging)
        await caching.counted("sluice_requests_total", 1, outcome="truncated")
        assert (lagging.complete, lagging.end) == (False, "fin")
        assert "too far behind" in final_error(lagging.body)["message"]
    assert len(upstream.calls) == 1


async def test_who_is_alone_is_waited_for(upstream: FaultUpstream, caching: InProcessGateway) -> None:
    sent = [sse_head(), frame(piece("a")), *([frame(BIG)] * PIECES * 4), *_end(piece("c"))]
    upstream.always(sent)
    async with await RawClient.open(caching.port, receive_buffer=4096) as slow:
        answer = await _begin(slow, b'"a"')
        before = -1
        while before != upstream.calls[0].sent:  # until nothing moves any more
            before = upstream.calls[0].sent
            await caching.metrics()
        assert before < sum(map(len, sent)) / 2
        while len(answer.body) < 2 * 1024 * 1024:  # more than anybody may lag behind
            assert await slow.chunk(answer)
        assert b'"error"' not in answer.body


async def test_what_a_follower_had_reserved_comes_back(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = settings(upstream.url, keys=True, cache={"enabled": True})
    config["keys"][0]["limits"] = {"tpm": 1000}
    gateway = await start_gateway(config)
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    body = {**C, "max_tokens": 50}
    asking = [asyncio.ensure_future(ask(gateway.port, body, [AUTH])) for _ in range(8)]
    await joined(gateway, 7)
    gate.set()
    assert {one.status for one in await asyncio.gather(*asking)} == {200}
    hit = await ask(gateway.port, body, [AUTH])
    left = int(hit.header("x-ratelimit-remaining-tokens") or 0)
    assert 990 <= left <= 1000


async def _begin(client: RawClient, seen: bytes) -> Answer:
    await client.request("POST", CHAT, S)
    answer = await client.head()
    await client.until(answer, seen)
    return answer


def _end(*events: bytes) -> list[bytes]:
    return [*map(frame, events), frame(stop()), frame(DONE), LAST_CHUNK]
