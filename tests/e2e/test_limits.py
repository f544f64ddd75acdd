"""Requests and tokens a minute: exact, charged for what was used, and never for ever."""

import asyncio
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import StartGateway
from doubles.limited import OTHER, FrozenClock, asked, limited, used, used_stream
from doubles.rawclient import RawClient, request_bytes
from doubles.script import NEVER, RST, compact, frame, piece, sse_head
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, COMPLETIONS, E0, EMBEDDINGS, S0


async def test_rate_01_of_200_at_once_exactly_the_limit_passes(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10}))
    answers = await asyncio.gather(*(asked(gateway.port) for _ in range(200)))
    assert sorted(answer.status for answer in answers) == [200] * 10 + [429] * 190
    assert len(upstream.calls) == 10
    refused = [answer for answer in answers if answer.status == 429]
    assert {(one.error["type"], one.error["code"]) for one in refused} == {("requests", "rate_limit_exceeded")}
    assert {one.header("retry-after-ms") for one in refused} == {"6000"}
    await gateway.counted("sluice_limit_rejections_total", 190, key="team-a", limit="rpm")
    await gateway.counted("sluice_requests_total", 190, outcome="limited", status="429")


async def test_the_sdk_waits_as_long_as_it_is_told_and_succeeds(
    clock: FrozenClock,
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 7}))
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.passes(seconds)

    monkeypatch.setattr("anyio.sleep", wait)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as sdk:
        for _ in range(7):
            await sdk.chat.completions.create(**C0)
        with pytest.raises(openai.RateLimitError, match="7 requests a minute") as raised:
            await sdk.chat.completions.create(**C0)
        assert (raised.value.type, raised.value.code) == ("requests", "rate_limit_exceeded")
        patient = sdk.with_options(max_retries=1)
        assert (await patient.chat.completions.create(**C0)).choices[0].message.content == "pong"
    assert waited == [pytest.approx(60 / 7, abs=0.001)]


@pytest.mark.parametrize("limits", [{"rpm": 7}, {"tpm": 7000}], ids=str)
async def test_a_wait_is_exact(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, limits: dict[str, int]
) -> None:
    gateway = await start_gateway(limited(upstream.url, limits))
    upstream.always(used(0, 1000))
    body = {**C0, "max_tokens": 900}
    for _ in range(7):
        assert (await asked(gateway.port)).status == 200
    wait = int((await asked(gateway.port, body)).header("retry-after-ms") or 0) / 1000
    clock.passes(wait - 0.002)
    assert (await asked(gateway.port, body)).status == 429
    clock.passes(0.002)
    assert (await asked(gateway.port, body)).status == 200


async def test_rate_13_refused_calls_cost_nothing_and_keep_nobody_shut(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1000, "tpm": 600}))
    upstream.reply(used(300, 300))
    assert (await asked(gateway.port)).status == 200
    body = {**C0, "max_tokens": 140}
    told = (await asked(gateway.port, body)).header("retry-after-ms")
    seconds = -(-int(told or 0) // 1000)
    assert 14 <= seconds <= 16  # 600 a minute bring 140 and the input in that time
    for _ in range(seconds):
        assert (await asked(gateway.port, body)).status == 429
        clock.passes(1)
    answer = await asked(gateway.port, body)
    assert answer.status == 200
    # Of so many calls only the two that passed were counted.
    assert answer.header("x-ratelimit-remaining-requests") == "999"


async def test_rate_06_larger_than_the_whole_limit_is_told_so_at_once(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10, "tpm": 600}))
    answer = await asked(gateway.port, {**C0, "max_tokens": 800})
    assert answer.status == 429
    assert (answer.error["type"], answer.error["code"]) == ("tokens", "request_too_large")
    assert "600" in answer.error["message"]
    assert answer.header("x-should-retry") == "false"
    assert answer.header("retry-after") is None
    assert answer.header("retry-after-ms") is None
    assert answer.header("x-ratelimit-remaining-requests") == "10"
    assert upstream.calls == []
    assert (await asked(gateway.port)).status == 200
    await gateway.counted("sluice_limit_rejections_total", 1, key="team-a", limit="too_large")


OPTIONS: list[dict[str, Any]] = [{}, {"stream_options": {"include_usage": True}}]


@pytest.mark.parametrize("options", OPTIONS, ids=["unasked", "asked"])
async def test_rate_03_streams_are_charged_what_their_usage_says(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, options: dict[str, Any]
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1000}))
    upstream.always(used_stream(100, 300))
    for _ in range(3):  # the third fits when it comes, and goes into debt
        assert (await asked(gateway.port, {**S0, **options})).status == 200
    answer = await asked(gateway.port, {**S0, **options})
    assert answer.status == 429
    assert (answer.error["type"], answer.error["code"]) == ("tokens", "rate_limit_exceeded")
    # 200 above the limit, which twelve seconds bring back.
    assert answer.header("x-ratelimit-reset-tokens") == "1m12s"
    assert answer.header("x-ratelimit-remaining-tokens") == "0"


@pytest.mark.parametrize(("path", "body"), [(EMBEDDINGS, E0), (COMPLETIONS, {"model": "m-small", "prompt": "x"})])
async def test_rate_04_every_endpoint_is_charged(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, path: str, body: dict[str, Any]
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 100}))
    upstream.always(used(50, 10))
    statuses = [(await asked(gateway.port, body, path=path)).status for _ in range(3)]
    assert statuses == [200, 200, 429]


async def test_rate_03_who_leaves_a_stream_pays_for_what_has_passed(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10, "tpm": 1000}))
    upstream.reply([sse_head(), *[frame(piece("word"))] * 100, NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, {**S0, "max_tokens": 900}, [AUTH])
    answer = await client.head()
    while answer.body.count(b"data:") < 100:
        await client.chunk(answer)
    assert answer.header("x-ratelimit-remaining-tokens") is not None
    await client.close()
    await gateway.outcome("client_gone")
    left = await asked(gateway.port, {**C0, "model": "nope"})
    assert left.header("x-ratelimit-remaining-requests") == "9"
    assert 870 <= int(left.header("x-ratelimit-remaining-tokens") or 0) <= 900


async def test_a_stream_that_breaks_is_charged_for_what_has_passed(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1000}))
    upstream.reply([sse_head(), *[frame(piece("word"))] * 100, RST])
    answer = await asked(gateway.port, {**S0, "max_tokens": 900})
    assert not answer.complete
    left = await asked(gateway.port, {**C0, "model": "nope"})
    assert 870 <= int(left.header("x-ratelimit-remaining-tokens") or 0) <= 900


async def test_who_leaves_before_the_answer_pays_for_the_input(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10, "tpm": 1000}))
    upstream.reply([NEVER])
    text = "word " * 400
    body = {"model": "m-small", "messages": [{"role": "user", "content": text}], "max_tokens": 400}
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, body, [AUTH])
    await upstream.received(1)
    await client.close()
    await gateway.outcome("client_gone")
    left = await asked(gateway.port, {**C0, "model": "nope"})
    assert left.header("x-ratelimit-remaining-requests") == "9"
    assert 500 <= int(left.header("x-ratelimit-remaining-tokens") or 0) <= 700


@pytest.mark.parametrize(
    "script",
    [[RST], replies.error(500), replies.error(429), replies.error(400)],
    ids=["rst", "500", "429", "400"],
)
@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
async def test_what_an_upstream_did_not_answer_costs_the_request_alone(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, script, body
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 10, "tpm": 1000}))
    upstream.reply(script)
    assert (await asked(gateway.port, {**body, "max_tokens": 500})).status >= 400
    left = await asked(gateway.port, {**C0, "model": "nope"})
    assert left.header("x-ratelimit-remaining-requests") == "9"
    assert left.header("x-ratelimit-remaining-tokens") == "1000"


async def test_five_at_once_with_a_cap_spend_no_more_than_the_limit(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 100}))
    upstream.always(used(5, 30))
    answers = await asyncio.gather(*(asked(gateway.port, {**C0, "max_tokens": 30}) for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
    assert len(upstream.calls) == 2


async def test_a_small_limit_refuses_no_first_call_for_a_guess(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 20}))
    assert (await asked(gateway.port)).status == 200


async def test_what_was_reserved_and_not_used_comes_back(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1000}))
    for _ in range(10):  # 900 are reserved for each, 7 are used
        assert (await asked(gateway.port, {**C0, "max_tokens": 900})).status == 200
    answer = await asked(gateway.port, {**C0, "model": "nope"})
    assert answer.header("x-ratelimit-remaining-tokens") == "930"


async def test_one_keys_limits_are_not_anothers(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"rpm": 1}, other={"rpm": 1}))
    assert (await asked(gateway.port)).status == 200
    assert (await asked(gateway.port)).status == 429
    assert (await asked(gateway.port, key=OTHER)).status == 200
    assert (await asked(gateway.port, key=OTHER)).status == 429


PARTS = [
    {"type": "text", "text": "what is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}},
]
ODD: dict[str, bytes] = {
    "image": compact({"model": "m-small", "messages": [{"role": "user", "content": PARTS}], "max_tokens": 300}),
    "content-is-a-number": compact({**C0, "messages": [{"role": "user", "content": 7}], "max_tokens": 700}),
}


@pytest.mark.parametrize("body", ODD.values(), ids=list(ODD))
async def test_rate_16_what_cannot_be_read_well_is_limited_all_the_same(
    clock: FrozenClock, upstream: FaultUpstream, start_gateway: StartGateway, body: bytes
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1200}))
    upstream.always([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.send(request_bytes("POST", CHAT, body, [AUTH]))
        await upstream.received(1)
        answer = await asked(gateway.port, body)
    assert answer.status == 429
    assert answer.error["code"] == "rate_limit_exceeded"


async def test_rate_16_two_megabytes_are_too_large_for_a_small_limit(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 100_000}))
    text = "한국어 " * 200_000
    answer = await asked(gateway.port, {"model": "m-small", "messages": [{"role": "user", "content": text}]})
    assert (answer.status, answer.error["code"]) == (429, "request_too_large")
    assert upstream.calls == []


async def test_rate_16_half_a_character_is_no_bug_of_ours(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {"tpm": 1000}))
    body = compact(C0).replace(b"ping", b"\\ud800")
    assert (await asked(gateway.port, body)).status == 200
