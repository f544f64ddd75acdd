"""`/v1/responses`: OpenAI's SDK through the gateway, its streams and their ends, its usage."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, call
from doubles.script import compact, full, stream
from doubles.settings import AUTH, KEY, settings
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.wires import responses
from doubles.wires.engine import EveryWire
from doubles.wires.responses import ResponsesEngine
from doubles.wires.streams import broken_bodies, broken_streams, named, silent_streams
from kit import openai_schema

PATH = "/v1/responses"
ASKED: dict[str, Any] = {"model": "m-small", "input": "ping"}
PONG = responses.response("up-small", responses.message("pong"))
TOOLS: Any = [{"type": "function", "name": "look", "parameters": {}, "strict": False}]


@pytest.fixture
async def engine(upstream: FaultUpstream) -> EveryWire:
    """The upstream, serving every wire."""
    return EveryWire(upstream)


@pytest.fixture
async def guarded(engine: EveryWire, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys and a price."""
    config = settings(engine.upstream.url, keys=True)
    price = {"input": 100, "output": 1000, "cached_input": 10}
    config["models"]["m-small"]["candidates"][0]["price"] = price
    return await start_gateway(config)


@pytest.fixture
async def sdk(guarded: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client as its users make it."""
    async with openai.AsyncOpenAI(base_url=f"{guarded.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


async def ask(gateway: InProcessGateway, **more: Any) -> Answer:
    """One call with a raw client."""
    return await call(gateway.port, "POST", PATH, {**ASKED, **more}, [AUTH])


async def test_a_response_and_its_price(engine: EveryWire, sdk: openai.AsyncOpenAI) -> None:
    raw = await sdk.responses.with_raw_response.create(**ASKED)
    made = raw.parse()
    assert (made.output_text, made.model) == ("pong", "m-small")
    # 12 of input, 4 of them cached; 5 of output, 2 of them reasoning.
    assert float(raw.headers["x-sluice-cost-usd"]) == pytest.approx((8 * 100 + 4 * 10 + 5 * 1000) / 10**6)
    assert engine.upstream.calls[0].json() == {**ASKED, "model": "up-small"}


async def test_streams(engine: EveryWire, sdk: openai.AsyncOpenAI, guarded: InProcessGateway) -> None:
    engine.responses = ResponsesEngine(("look", '{"at":1}'))
    async with sdk.responses.stream(**ASKED) as reading:
        final = await reading.get_final_response()
    assert (final.output_text, final.model) == ("pong", "m-small")
    async with sdk.responses.stream(**ASKED, tools=TOOLS) as reading:
        kinds = [event.type async for event in reading]
        called = (await reading.get_final_response()).output[0]
    assert called.type == "function_call"
    assert called.arguments == '{"at":1}'
    assert kinds[-1] == "response.completed"
    await guarded.counted("sluice_tokens_total", 24, type="input")
    await guarded.counted("sluice_tokens_total", 8, type="cached_input")
    await guarded.counted("sluice_tokens_total", 10, type="output")
    await guarded.counted("sluice_tokens_total", 4, type="reasoning")
    await guarded.outcome("ok", 2, endpoint=PATH)


async def test_events_pass_byte_for_byte_but_for_the_name(upstream: FaultUpstream, guarded: InProcessGateway) -> None:
    events = responses.events(PONG)
    odd = b'event: response.new_kind\ndata: {"type":"response.new_kind","model":"up-small", "x": 1.0}\n\n'
    upstream.reply(stream(*events[:3], odd, *events[3:]))
    answer = await ask(guarded, stream=True)
    head, tail = b"".join(events[:3]), b"".join(events[3:])
    renamed = [part.replace(b'"model":"up-small"', b'"model":"m-small"') for part in (head, tail)]
    assert answer.body == odd.join(renamed)


@pytest.mark.parametrize(
    ("status", "outcome"), [("completed", "ok"), ("incomplete", "ok"), ("failed", "upstream_error")]
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_how_a_response_ends(
    upstream: FaultUpstream, guarded: InProcessGateway, status: str, outcome: str, streamed: bool
) -> None:
    error = {"code": "server_error", "message": "it broke"} if status == "failed" else None
    final = responses.response("up-small", responses.message("pong"), status=status, error=error)
    upstream.reply(stream(*responses.events(final)) if streamed else [full(compact(final))])
    answer = await ask(guarded, stream=streamed)
    assert (answer.status, answer.complete) == (200, True)
    body = json.loads(data_of(answer.body)[-1])["response"] if streamed else answer.json()
    assert body == {**final, "model": "m-small"}
    await guarded.outcome(outcome, status="200")
    await guarded.counted("sluice_tokens_total", 12, type="input")


async def test_background_work_costs_nothing_until_it_is_done(guarded: InProcessGateway) -> None:
    answer = await ask(guarded, background=True)
    assert (answer.json()["status"], answer.header("x-sluice-cost-usd")) == ("queued", "0")
    await guarded.counted("sluice_tokens_total", 0)


BROKEN = broken_streams(responses.events(PONG), named(responses.ERROR))


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_stream_ends_with_an_error(
    upstream: FaultUpstream, guarded: InProcessGateway, sdk: openai.AsyncOpenAI, how: str
) -> None:
    upstream.reply(BROKEN[how], BROKEN[how])
    answer = await ask(guarded, stream=True)
    if answer.status == 200:
        assert not answer.complete
        *passed, last = map(json.loads, data_of(answer.body))
        ends = ("error", "response.completed", "response.incomplete", "response.failed")
        assert [event["type"] for event in passed if event["type"] in ends] == []
        openai_schema.check(last, "ResponseErrorEvent")
        assert last["error"]["message"] == last["message"]
    else:
        openai_schema.check(answer.json(), "ErrorResponse")
    with pytest.raises(openai.APIError):
        async with sdk.responses.stream(**ASKED) as reading:
            await reading.get_final_response()
    await guarded.counted("sluice_requests_total", 0, outcome="ok")


WHOLE = {how: script for how, script in broken_bodies(compact(PONG)).items() if "silent" not in how}


@pytest.mark.parametrize("how", WHOLE)
async def test_a_broken_answer_is_an_error(upstream: FaultUpstream, guarded: InProcessGateway, how: str) -> None:
    upstream.reply(WHOLE[how])
    answer = await ask(guarded)
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")


SILENT = silent_streams(responses.events(PONG))


@pytest.mark.parametrize("how", SILENT)
async def test_silence_is_a_timeout(upstream: FaultUpstream, start_gateway: StartGateway, how: str) -> None:
    timeouts = {"timeouts": {"first_byte": "200ms", "idle": "200ms"}}
    gateway = await start_gateway(settings(upstream.url, upstream=timeouts))
    upstream.reply(SILENT[how])
    answer = await ask(gateway, stream=True)
    error = json.loads(data_of(answer.body)[-1])["error"] if answer.status == 200 else answer.error
    assert error["code"] == "upstream_timeout"
    await gateway.outcome("upstream_timeout")
