"""`/v1/messages`: Anthropic's SDK through the gateway, its errors, its streams, its usage."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient, call
from doubles.script import NEVER, frame, full, sse_head
from doubles.settings import KEY, OTHER_KEY, UPSTREAM_KEY, settings
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.wires import messages
from doubles.wires.engine import EveryWire
from doubles.wires.streams import broken_bodies, broken_streams, named, silent_streams

PATH = "/v1/messages"
SAID: Any = [{"role": "user", "content": "ping"}]
ASKED: dict[str, Any] = {"model": "m-small", "max_tokens": 9, "messages": SAID}
PONG = messages.message("up-small", messages.text("pong"))


@pytest.fixture
async def engine(upstream: FaultUpstream) -> EveryWire:
    """The upstream, serving every wire."""
    return EveryWire(upstream)


@pytest.fixture
async def guarded(engine: EveryWire, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys and a price."""
    return await start_gateway(priced(engine.upstream.url))


@pytest.fixture
async def sdk(guarded: InProcessGateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """A client as its users make it."""
    async with anthropic.AsyncAnthropic(base_url=guarded.url, api_key=KEY, max_retries=0) as client:
        yield client


def priced(url: str, **more: Any) -> dict[str, Any]:
    """A config with keys, in which every kind of token has a price of its own."""
    config = settings(url, keys=True, **more)
    price = {"input": 1, "output": 100, "cached_input": 10, "cache_write": 1000}
    config["models"]["m-small"]["candidates"][0]["price"] = price
    return config


async def ask(
    gateway: InProcessGateway, body: Any = ASKED, headers: Any = (("x-api-key", KEY),), path: str = PATH
) -> Answer:
    """One call with a raw client."""
    return await call(gateway.port, "POST", path, body, headers)


def refusal(answer: Answer) -> dict[str, Any]:
    """The error of an answer; asserts Anthropic's shape."""
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert (body["type"], body["request_id"]) == ("error", answer.header("x-request-id"))
    assert set(body["error"]) == {"type", "message"}
    return dict(body["error"])


async def test_a_message_and_its_price(engine: EveryWire, sdk: anthropic.AsyncAnthropic) -> None:
    raw = await sdk.messages.with_raw_response.create(**ASKED)
    message = await raw.parse()
    assert (message.content[0].to_dict()["text"], message.model) == ("pong", "m-small")
    assert message.usage.cache_read_input_tokens == 4
    # 8 of input, 4 read from the cache, 3 written, 5 of output: each counted once.
    assert raw.headers["x-sluice-cost-usd"] == f"{(8 * 1 + 4 * 10 + 3 * 1000 + 5 * 100) / 10**6:.6f}".rstrip("0")
    assert engine.upstream.calls[0].json() == {**ASKED, "model": "up-small"}


async def test_a_stream(sdk: anthropic.AsyncAnthropic, guarded: InProcessGateway) -> None:
    async with sdk.messages.stream(**ASKED) as reading:
        events = [event.type async for event in reading]
        final = await reading.get_final_message()
    assert (final.content[0].to_dict()["text"], final.model) == ("pong", "m-small")
    assert events[-1] == "message_stop"
    for kind, count in (("input", 15), ("cached_input", 4), ("cache_write", 3), ("output", 5)):
        await guarded.counted("sluice_tokens_total", count, type=kind)
    await guarded.outcome("ok", endpoint=PATH)


async def test_counting_tokens_costs_nothing(sdk: anthropic.AsyncAnthropic, guarded: InProcessGateway) -> None:
    counted = await sdk.messages.with_raw_response.count_tokens(model="m-small", messages=SAID)
    assert (await counted.parse()).input_tokens == 15
    assert counted.headers["x-sluice-cost-usd"] == "0"
    await guarded.counted("sluice_tokens_total", 0)


async def test_what_travels_and_what_does_not(engine: EveryWire, guarded: InProcessGateway) -> None:
    sent = [("anthropic-version", "2024-01-01"), ("anthropic-beta", "a,b"), ("x-app", "cli"), ("cookie", "c=1")]
    assert (await ask(guarded, headers=[("x-api-key", KEY), *sent], path=f"{PATH}?beta=true")).status == 200
    assert (await ask(guarded, headers=[("authorization", f"Bearer {KEY}")])).status == 200
    first, second = engine.upstream.calls
    assert (first.header("anthropic-version"), first.header("anthropic-beta")) == (["2024-01-01"], ["a,b"])
    assert (second.header("anthropic-version"), second.header("anthropic-beta")) == (["2023-06-01"], [])
    for name in ("x-api-key", "authorization", "x-app", "cookie"):
        assert first.header(name) == second.header(name) == []


async def test_a_header_of_the_config_is_sent_once(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    EveryWire(upstream)
    own = {"headers": {"Anthropic-Version": "2025-05-05"}, "forward_headers": ["anthropic-beta"]}
    gateway = await start_gateway(priced(upstream.url, upstream=own))
    sent = [("x-api-key", KEY), ("anthropic-version", "2024-01-01"), ("anthropic-beta", "a")]
    assert (await ask(gateway, headers=sent)).status == 200
    [received] = upstream.calls
    assert (received.header("anthropic-version"), received.header("anthropic-beta")) == (["2025-05-05"], ["a"])


async def test_our_refusals_have_anthropics_shape(guarded: InProcessGateway) -> None:
    wrong, restricted = [("x-api-key", "wrong-key-00000")], [("x-api-key", OTHER_KEY)]
    for answer, status, kind in (
        (await ask(guarded, headers=wrong), 401, "authentication_error"),
        (await ask(guarded, headers=restricted), 403, "permission_error"),
        (await ask(guarded, {**ASKED, "model": "m-none"}), 404, "not_found_error"),
        (await ask(guarded, b"{"), 400, "invalid_request_error"),
        (await ask(guarded, path=f"{PATH}/batches"), 404, "not_found_error"),
        (await call(guarded.port, "GET", PATH), 405, "invalid_request_error"),
        (await ask(guarded, headers=[("content-type", "text/plain"), *restricted]), 415, "invalid_request_error"),
    ):
        assert (answer.status, refusal(answer)["type"]) == (status, kind)


@pytest.mark.parametrize(
    ("status", "kind", "told", "told_kind"),
    [
        (400, "invalid_request_error", 400, "invalid_request_error"),
        (401, "authentication_error", 502, "api_error"),
        (404, "not_found_error", 404, "not_found_error"),
        (413, "request_too_large", 413, "request_too_large"),
        (429, "rate_limit_error", 429, "rate_limit_error"),
        (500, "api_error", 502, "api_error"),
        (529, "overloaded_error", 529, "overloaded_error"),
    ],
)
async def test_an_upstreams_error(
    upstream: FaultUpstream, guarded: InProcessGateway, status: int, kind: str, told: int, told_kind: str
) -> None:
    upstream.reply(messages.error(status, kind, "the model is `up-small`"))
    answer = await ask(guarded)
    assert (answer.status, refusal(answer)["type"]) == (told, told_kind)
    if status in (400, 404, 413):
        assert refusal(answer)["message"] == "the model is `up-small`"
    assert (answer.header("retry-after") is not None) == (told in (429, 529))


@pytest.mark.parametrize("told", [messages.ERROR, {"error": {"type": "overloaded_error", "message": "x"}}])
async def test_an_error_in_a_200(upstream: FaultUpstream, guarded: InProcessGateway, told: Any) -> None:
    upstream.reply([full(json.dumps(told).encode())])
    answer = await ask(guarded)
    assert answer.status == (529 if "type" in told else 502)
    refusal(answer)


BROKEN = broken_streams(messages.events(PONG), named(messages.ERROR))


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_stream_ends_with_an_error(
    upstream: FaultUpstream, guarded: InProcessGateway, sdk: anthropic.AsyncAnthropic, how: str
) -> None:
    upstream.reply(BROKEN[how], BROKEN[how])
    answer = await ask(guarded, {**ASKED, "stream": True})
    if answer.status == 200:
        assert not answer.complete
        *passed, last = map(json.loads, data_of(answer.body))
        assert [event["type"] for event in passed if event["type"] in ("error", "message_stop")] == []
        assert set(last) == {"type", "error"}
        assert set(last["error"]) == {"type", "message"}
        assert answer.body.rpartition(b"event: error\n")[2].startswith(b"data: ")
    else:
        refusal(answer)
    with pytest.raises(anthropic.APIError):
        async with sdk.messages.stream(**ASKED) as reading:
            await reading.get_final_message()
    await guarded.counted("sluice_requests_total", 0, outcome="ok")


WHOLE = broken_bodies(json.dumps(PONG).encode())


@pytest.mark.parametrize("how", [how for how in WHOLE if "silent" not in how])
async def test_a_broken_answer_is_an_error(upstream: FaultUpstream, guarded: InProcessGateway, how: str) -> None:
    upstream.reply(WHOLE[how])
    answer = await ask(guarded)
    assert (answer.status, refusal(answer)["type"]) == (502, "api_error")


SILENT = silent_streams(messages.events(PONG))


@pytest.mark.parametrize("how", SILENT)
async def test_silence_is_a_timeout(upstream: FaultUpstream, start_gateway: StartGateway, how: str) -> None:
    timeouts = {"timeouts": {"first_byte": "200ms", "idle": "200ms"}}
    gateway = await start_gateway(priced(upstream.url, upstream=timeouts))
    upstream.reply(SILENT[how])
    answer = await ask(gateway, {**ASKED, "stream": True})
    error = json.loads(data_of(answer.body)[-1])["error"] if answer.status == 200 else refusal(answer)
    assert error["type"] == "timeout_error"
    await gateway.outcome("upstream_timeout")


async def test_pings_keep_a_silent_stream_alive(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = priced(upstream.url, server={"heartbeat": "50ms"}, upstream={"timeouts": {"first_byte": "300ms"}})
    gateway = await start_gateway(config)
    upstream.reply(SILENT["silent before an event"])
    answer = await ask(gateway, {**ASKED, "stream": True})
    kinds = [json.loads(data)["type"] for data in data_of(answer.body)]
    assert kinds[0] == "ping"
    assert kinds[-1] == "error"
    assert b"event: ping\n" in answer.body


async def test_a_client_that_leaves_pays_for_what_was_made(upstream: FaultUpstream, guarded: InProcessGateway) -> None:
    begun, _, _, delta, *_ = messages.events(PONG)
    upstream.reply([sse_head(), frame(begun), *[frame(delta)] * 50, NEVER])
    async with await RawClient.open(guarded.port) as client:
        await client.request("POST", PATH, {**ASKED, "stream": True}, [("x-api-key", KEY)])
        answer = await client.head()
        while answer.body.count(b"content_block_delta") < 100:  # twice in each
            await client.chunk(answer)
    await guarded.outcome("client_gone")
    await guarded.counted("sluice_tokens_total", 15, type="input")
    await guarded.counted("sluice_tokens_total", 50, type="output")


async def test_an_anthropic_upstream_gets_its_own_key(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    EveryWire(upstream)
    paid = {"kind": "anthropic", "api_key": UPSTREAM_KEY}
    gateway = await start_gateway(priced(upstream.url, upstream=paid))
    assert (await ask(gateway)).status == 200
    [received] = upstream.calls
    assert (received.header("x-api-key"), received.header("authorization")) == ([UPSTREAM_KEY], [])
    steering = {**ASKED, "priority": 1}  # a provider is no engine of our own
    assert (await ask(gateway, steering)).status == 200
    upstream.reply(messages.error(400, "invalid_request_error", f"{UPSTREAM_KEY} is no model"))
    assert UPSTREAM_KEY.encode() not in (await ask(gateway)).body
