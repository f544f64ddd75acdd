"""A stream that breaks is told to the client as broken, on every level, and is never counted as a success."""

import asyncio
import gzip

import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import (
    DONE,
    FIN,
    LAST_CHUNK,
    NEVER,
    RST,
    Step,
    Until,
    delta,
    event,
    frame,
    full,
    head,
    piece,
    sse_head,
    stop,
    stream,
)
from doubles.settings import UPSTREAM_KEY, settings
from doubles.sse import final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask, public

BEGUN = [piece("one"), piece("two"), piece("three")]
HALF = piece("never whole")[:40]
OPEN = stream(*BEGUN, end=False)
CLOSE_DELIMITED = head(200, [("content-type", "text/event-stream"), ("connection", "close")])


def broken(answer: Answer, *, said: bytes) -> dict[str, object]:
    """The error at the end; asserts that the client got `said` before it, and no good end."""
    assert answer.status == 200
    assert (answer.complete, answer.end) == (False, "fin")
    assert answer.body.startswith(said)
    assert b"data: " in answer.body[len(said) :]
    assert answer.body.count(b"\n\n") == said.count(b"\n\n") + 1
    return final_error(answer.body)


ENDINGS: dict[str, tuple[list[Step], str]] = {
    "sse_12 clean end": ([*OPEN, LAST_CHUNK], "upstream_error"),
    "sse_14 reset": ([*OPEN, RST], "upstream_error"),
    "sse_14 end between chunks": ([*OPEN, FIN], "upstream_error"),
    "sse_14 end in a chunk": ([*OPEN, b"40\r\ndata: {", FIN], "upstream_error"),
    "end of a close-delimited body": ([CLOSE_DELIMITED, *BEGUN, FIN], "upstream_error"),
    "clean end in an event": ([*OPEN, frame(HALF), LAST_CHUNK], "upstream_error"),
    "reset in an event": ([*OPEN, frame(HALF), RST], "upstream_error"),
    "half a JSON object": ([*OPEN, frame(b'data: {"id":"c1","choi\n\n'), NEVER], "upstream_invalid_response"),
    "no chunk framing": ([*OPEN, b"zz\r\n", NEVER], "upstream_invalid_response"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_sse_12_sse_14_metr_05_a_stream_cut_short(
    gateway: InProcessGateway, upstream: FaultUpstream, ending: str
) -> None:
    script, code = ENDINGS[ending]
    upstream.reply(script)
    answer = await ask(gateway.port, {**S0, "tools": []})
    error = broken(answer, said=public(BEGUN))
    assert (error["type"], error["code"]) == ("upstream_error", code)
    for secret in ("127.0.0.1", str(upstream.port), "Errno", "Traceback"):
        assert secret not in str(error["message"])
    assert len(upstream.calls) == 1
    await gateway.outcome("truncated", status="200", model="m-small")
    await gateway.counted("sluice_upstream_attempts_total", 0, result="success")
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="local")


async def test_sse_12_half_a_tool_call_is_no_whole_one(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    parts = ('{"path"', ':"/tmp')
    said = [delta({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in parts]
    upstream.reply(stream(*said))
    error = broken(await ask(gateway.port, {**S0, "tools": []}), said=public(said))
    assert error["code"] == "upstream_error"


async def test_a_stall_is_a_timeout(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"timeouts": {"idle": "200ms"}}))
    upstream.reply([*OPEN, NEVER])
    error = broken(await ask(gateway.port, S0), said=public(BEGUN))
    assert (error["type"], error["code"]) == ("upstream_error", "upstream_timeout")
    await gateway.outcome("upstream_timeout", status="200")
    await upstream.peer_closed(1)


async def test_an_event_beyond_the_cap_is_refused(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    endless = [frame(b"data: {"), *[frame(b"x" * 2**20)] * 20]
    upstream.reply([*OPEN, *endless, NEVER])
    error = broken(await ask(gateway.port, S0), said=public(BEGUN))
    assert error["code"] == "upstream_invalid_response"
    await upstream.peer_closed(1)


IN_BAND = [
    {"error": {"message": "boom", "type": "server_error"}},
    {"error": "boom"},
    {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500},
    {
        "error": {"message": "boom", "code": 502},
        "choices": [{"index": 0, "finish_reason": "error", "delta": {}}],
    },
]


@pytest.mark.parametrize("named", [b"", b"event: error\n"])
@pytest.mark.parametrize("told", IN_BAND)
async def test_sse_17_an_error_in_any_dialect(
    gateway: InProcessGateway, upstream: FaultUpstream, told: dict[str, object], named: bytes
) -> None:
    upstream.reply([*OPEN, frame(named + event(told)), frame(DONE), LAST_CHUNK])
    error = broken(await ask(gateway.port, S0), said=public(BEGUN))
    assert "boom" in str(error["message"])
    await gateway.outcome("upstream_error", status="200")


@pytest.mark.parametrize("after", [[LAST_CHUNK], [frame(DONE), LAST_CHUNK], [frame(stop()), frame(DONE), LAST_CHUNK]])
async def test_sse_17_metr_05_an_error_after_content(
    upstream: FaultUpstream, start_gateway: StartGateway, after: list[Step]
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"api_key": UPSTREAM_KEY}))
    told = f"boom for {UPSTREAM_KEY} at http://10.1.2.3:8000/v1"
    upstream.always([*OPEN, frame(event({"error": {"message": told, "type": "server_error"}})), *after])
    error = broken(await ask(gateway.port, S0), said=public(BEGUN))
    assert "boom" in str(error["message"])
    assert UPSTREAM_KEY not in str(error["message"])
    assert "10.1.2.3" not in str(error["message"])
    await gateway.outcome("upstream_error", status="200")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        reading = await client.chat.completions.create(**S0)
        text = []
        with pytest.raises(openai.APIError, match="boom") as raised:
            text += [chunk.choices[0].delta.content async for chunk in reading]
    assert not isinstance(raised.value, openai.APIConnectionError)


async def test_what_came_before_the_break_is_at_the_client_before_it(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    """With half an event held back, the whole ones before it are not."""
    seen = asyncio.Event()
    upstream.reply([*OPEN, frame(HALF), Until(seen), RST])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.head()
        await client.until(answer, public(BEGUN))
        seen.set()
        await client.rest(answer)
    broken(answer, said=public(BEGUN))


STATUSES = [
    (401, [], 502, "upstream_auth_failed"),
    (403, [], 502, "upstream_auth_failed"),
    (429, [("retry-after", "7")], 429, "upstream_rate_limited"),
    (503, [("retry-after", "7")], 503, "upstream_unavailable"),
    (500, [], 502, "upstream_error"),
    (504, [], 504, "upstream_timeout"),
    (302, [("location", "/v1/elsewhere")], 502, "upstream_error"),
]


@pytest.mark.parametrize("body", [C0, S0], ids=["whole", "stream"])
@pytest.mark.parametrize(("status", "headers", "expected", "code"), STATUSES)
async def test_sse_15_an_error_status_is_a_status(
    gateway: InProcessGateway, upstream: FaultUpstream, body, status, headers, expected, code
) -> None:
    upstream.reply(replies.error(status, headers=headers))
    answer = await ask(gateway.port, body)
    assert answer.status == expected
    assert answer.error["code"] == code
    assert answer.header("retry-after") == ("7" if headers and status >= 400 else None)
    assert len(upstream.calls) == 1
    outcome = "upstream_timeout" if code == "upstream_timeout" else "upstream_error"
    await gateway.outcome(outcome, status=str(expected))


QUEUE_FULL = event(
    {
        "error": {
            "object": "error",
            "message": "The request queue is full.",
            "type": "SERVICE_UNAVAILABLE",
            "param": None,
            "code": 503,
        }
    }
)
FLAT = event({"object": "error", "message": "no", "type": "BadRequestError", "param": None, "code": 400})
NOT_BEGUN = {
    "sse_16 error, then done": (stream(QUEUE_FULL, DONE), 503, "upstream_unavailable"),
    "sse_16 error, then end": (stream(QUEUE_FULL), 503, "upstream_unavailable"),
    "error without a code": (stream(event({"error": {"message": "no"}})), 502, "upstream_error"),
    "error with a text for a code": (
        stream(event({"error": {"message": "no", "code": "busy"}})),
        502,
        "upstream_error",
    ),
    "flat error": (stream(FLAT), 400, None),
    "no event at all": (stream(), 502, "upstream_error"),
    "comments only": (stream(b": hi\n\n", b": hi\n\n"), 502, "upstream_error"),
    "half an event": (stream(HALF), 502, "upstream_error"),
    "reset before an event": ([sse_head(), RST], 502, "upstream_error"),
    "reset before the head": ([RST], 502, "upstream_error"),
    "garbage first": (stream(b"data: {nonsense\n\n"), 502, "upstream_invalid_response"),
    "a page": ([full(b"<html>login</html>", content_type="text/html")], 502, "upstream_invalid_response"),
    "a JSON error": (replies.error(200, "no", code=429), 429, "upstream_rate_limited"),
}


@pytest.mark.parametrize("name", NOT_BEGUN)
async def test_sse_16_a_stream_that_never_begins_is_a_status(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str
) -> None:
    script, status, code = NOT_BEGUN[name]
    upstream.reply(script)
    answer = await ask(gateway.port, S0)
    assert answer.status == status
    assert code is None or answer.error["code"] == code
    assert (answer.header("retry-after") is not None) == (status in (429, 503))
    assert set(answer.error) == {"message", "type", "param", "code"}
    await gateway.counted("sluice_requests_total", 1, status=str(status))
    await gateway.counted("sluice_requests_total", 0, outcome="ok")


async def test_sse_27_a_compressed_stream_is_relayed_as_plain_events(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    zipped = gzip.compress(b"".join([*BEGUN, stop(), DONE]))
    coded = sse_head([("content-encoding", "gzip")])
    upstream.reply([coded, *(frame(zipped[at : at + 7]) for at in range(0, len(zipped), 7)), LAST_CHUNK])
    answer = await ask(gateway.port, S0, [("accept-encoding", "gzip")])
    assert (answer.body, answer.header("content-encoding")) == (public([*BEGUN, stop(), DONE]), None)
    cut = gzip.compress(b"".join(BEGUN))[:-8]
    upstream.reply([coded, frame(cut), LAST_CHUNK], [coded, frame(b"\x1f\x8b" + b"no gzip"), LAST_CHUNK])
    assert final_error((await ask(gateway.port, S0)).body)["code"] == "upstream_invalid_response"
    refused = await ask(gateway.port, S0)
    assert (refused.status, refused.error["code"]) == (502, "upstream_invalid_response")
