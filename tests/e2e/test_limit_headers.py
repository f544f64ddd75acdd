"""RATE-10: what a limited key is told of its limits, on every answer, in OpenAI's words."""

import asyncio
import re
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.limited import OTHER, FrozenClock, asked, limited, used
from doubles.rawclient import Answer, RawClient, call
from doubles.script import NEVER, frame, piece, sse_head
from doubles.settings import AUTH
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0

LIMITS = {"rpm": 10, "tpm": 10_000}
WORDS = [f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")]


def told(answer: Answer) -> list[str | None]:
    """All six, the requests' first: limit, remaining, reset."""
    return [answer.header(name) for name in WORDS]


async def test_whole_answers_streams_and_refusals_have_all_six(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, LIMITS))
    upstream.always(used(100, 100))
    whole = await asked(gateway.port, {**C0, "max_tokens": 500})
    assert whole.status == 200
    # An answer is given before its call is over, so what it has reserved is not back yet.
    requests, tokens = told(whole)[:3], told(whole)[3:]
    assert requests == ["10", "9", "6s"]
    assert tokens[0] == "10000"
    assert 9480 <= int(tokens[1] or 0) < 9500
    upstream.always(replies.ordinary)
    stream = await asked(gateway.port, {**S0, "max_tokens": 500})
    assert stream.chunks
    assert told(stream)[:3] == ["10", "8", "12s"]
    assert 9280 <= int(told(stream)[4] or 0) < 9300
    missing = await asked(gateway.port, {**C0, "model": "nope"})
    assert missing.status == 404
    assert told(missing) == ["10", "8", "12s", "10000", "9793", "1.242s"]
    listing = await call(gateway.port, "GET", "/v1/models", None, [AUTH])
    assert told(listing) == told(missing)
    broken = await asked(gateway.port, b"{")
    assert (broken.status, told(broken)) == (400, told(missing))
    large = await asked(gateway.port, {**C0, "max_tokens": 20_000})
    assert (large.status, told(large)) == (429, told(missing))


async def test_remaining_goes_down_by_one_and_never_below_zero(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 7}))
    seen = []
    for _ in range(10):
        answer = await asked(gateway.port)
        seen.append((answer.status, answer.header("x-ratelimit-remaining-requests")))
    assert seen == [(200, str(left)) for left in range(6, -1, -1)] + [(429, "0")] * 3


async def test_a_debt_of_tokens_shows_as_zero(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, LIMITS))
    upstream.reply(used(10_000, 10_000))
    await asked(gateway.port)
    answer = await asked(gateway.port)
    assert answer.status == 429
    assert told(answer)[3:] == ["10000", "0", "2m0s"]


async def test_a_key_is_told_of_the_limits_that_it_has(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    limits: dict[str, Any] = {"tpm": 1000}
    gateway = await start_gateway(limited(upstream.url, limits, other={"concurrency": 3}))
    assert [value is not None for value in told(await asked(gateway.port))] == [False] * 3 + [True] * 3
    assert told(await asked(gateway.port, key=OTHER)) == [None] * 6
    stranger = await asked(gateway.port, key=("authorization", "Bearer nobody-00000"))
    assert (stranger.status, told(stranger)) == (401, [None] * 6)


@pytest.mark.parametrize("limits", [LIMITS, {}], ids=["limited", "unlimited"])
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize("status", [200, 429])
async def test_an_upstreams_own_do_not_leak(
    upstream: FaultUpstream, start_gateway: StartGateway, limits: dict[str, int], body, status: int
) -> None:
    gateway = await start_gateway(limited(upstream.url, limits))
    own = [(name, "777") for name in WORDS]
    if status == 429:
        upstream.reply(replies.error(429, headers=own))
    elif body is C0:
        upstream.reply(replies.chat(headers=own))
    else:
        upstream.reply([sse_head(own), *map(frame, replies.chat_events("hi")), b"0\r\n\r\n"])
    answer = await asked(gateway.port, body)
    assert answer.status == status
    assert "777" not in told(answer)
    assert (None in told(answer)) is (limits == {})


@pytest.mark.parametrize("limits", [{"rpm": 1}, {"tpm": 1000}, {"concurrency": 1}], ids=str)
async def test_a_refusal_says_when_in_both_units(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, limits: dict[str, int]
) -> None:
    gateway = await start_gateway(limited(upstream.url, limits))
    upstream.always([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, {**C0, "max_tokens": 900}, [AUTH])
        await upstream.received(1)
        answer = await asked(gateway.port, {**C0, "max_tokens": 900})
    assert answer.status == 429
    types = {"rpm": "requests", "tpm": "tokens", "concurrency": "concurrency"}
    assert {answer.error["type"]} == {types[name] for name in limits}
    ms = int(answer.header("retry-after-ms") or 0)
    assert ms > 0
    assert answer.header("retry-after") == str(max(1, -(-ms // 1000)))
    assert answer.header("x-should-retry") is None
    assert re.fullmatch(r"Try again in [0-9]+\.[0-9]{3} s\.", answer.error["message"].partition(". ")[2])


async def test_the_head_of_a_stream_that_goes_on_has_them(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10}))
    upstream.reply([sse_head(), frame(piece("x")), NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0, [AUTH])
        assert told(await client.head())[:3] == ["10", "9", "6s"]


async def test_time_brings_all_of_it_back(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10}))
    await asyncio.gather(*(asked(gateway.port) for _ in range(10)))
    seen = []
    for seconds in (0, 6, 30, 24):
        clock.passes(seconds)
        answer = await asked(gateway.port, {**C0, "model": "nope"})
        seen.append(told(answer)[1:3])
    assert seen == [["0", "1m0s"], ["1", "54s"], ["6", "24s"], ["10", "0s"]]
