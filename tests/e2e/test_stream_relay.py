"""A stream that goes well reaches the client whole, unchanged and at once, however it was cut on the way."""

import asyncio
import json

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import Answer, RawClient
from doubles.script import (
    DONE,
    LAST_CHUNK,
    NEVER,
    Drip,
    Pause,
    Step,
    Until,
    delta,
    event,
    frame,
    head,
    piece,
    sse_head,
    stop,
    stream,
    usage,
)
from doubles.settings import settings
from doubles.sse import contents, data_of
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, S0, ask, public


async def relayed(gateway: InProcessGateway, upstream: FaultUpstream, script: list[Step]) -> Answer:
    """The answer to S0; asserts a good end on every level."""
    upstream.reply(script)
    answer = await ask(gateway.port, S0)
    assert answer.status == 200, answer.body
    assert answer.complete
    await gateway.outcome("ok", len(upstream.calls))
    return answer


@pytest.mark.parametrize("size", [1, 6, 7, 1000])
async def test_sse_01_utf8_cut_by_chunks(gateway: InProcessGateway, upstream: FaultUpstream, size: int) -> None:
    events = replies.chat_events("안녕🙂ß", with_usage=True)
    whole = b"".join(events)
    # Chunks of one byte are six bytes long, so the sizes cut between chunks, inside them, and hardly at all.
    chunks = b"".join(frame(whole[at : at + 1]) for at in range(len(whole)))
    answer = await relayed(gateway, upstream, [sse_head(), Drip(chunks, size), LAST_CHUNK])
    assert answer.body == public(events)
    assert "�" not in answer.body.decode()
    await gateway.counted("sluice_tokens_total", 5, type="input")
    await gateway.counted("sluice_tokens_total", 2, type="output")


async def test_sse_02_nothing_is_put_into_half_an_event(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    event = piece("abcdef")
    cut = event.index(b"def")
    rest = [stop(), usage(5, 2), DONE]
    halves = [frame(event[:cut]), Pause(0.05), frame(event[cut:])]
    answer = await relayed(gateway, upstream, [sse_head(), *halves, *map(frame, rest), LAST_CHUNK])
    assert answer.body == public([event, *rest])


async def test_sse_05_no_space_after_data(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = [one.replace(b"data: ", b"data:") for one in replies.chat_events("hi", with_usage=True)]
    answer = await relayed(gateway, upstream, stream(*events))
    assert answer.body == public(events)
    await gateway.counted("sluice_tokens_total", 2, type="output")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
async def test_every_line_end_is_understood(gateway: InProcessGateway, upstream: FaultUpstream, newline: bytes) -> None:
    events = [one.replace(b"\n", newline) for one in replies.chat_events("hi", "you")]
    answer = await relayed(gateway, upstream, [sse_head(), Drip(frame(b"".join(events))), LAST_CHUNK])
    assert contents(answer.body) == "hiyou"
    assert b"up-small" not in answer.body


async def test_several_events_in_one_packet(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = replies.chat_events(*"abcdefgh")
    whole = b"".join([sse_head(), frame(b"".join(events)), LAST_CHUNK])
    answer = await relayed(gateway, upstream, [whole])
    assert answer.body == public(events)


async def test_sse_08_comments_stay_comments_and_are_a_sign_of_life(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"timeouts": {"idle": "800ms"}}))
    comment = frame(b": PROCESSING\n\n")
    events = replies.chat_events("hi")
    silence = [step for _ in range(4) for step in (comment, Pause(0.3))]
    answer = await relayed(gateway, upstream, [sse_head(), *silence, *map(frame, events), LAST_CHUNK])
    assert [json.loads(data)["model"] for data in data_of(answer.body)[:-1]] == ["m-small"] * 3
    assert answer.body.replace(b": PROCESSING\n\n", b"") == public(events)
    # Four pauses lie before the first token.
    first_token = (await gateway.metrics()).value("sluice_time_to_first_token_seconds_sum")
    assert first_token > 1.1


async def test_sse_11_data_that_is_no_json_is_dropped(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = replies.chat_events("hi")
    noise = [b"data: : keepalive\n\n"] * 2 + [b"data:\n\n", b"data\n\n", b"event: ping\n\n"]
    answer = await relayed(gateway, upstream, stream(*noise, events[0], *noise, *events[1:]))
    assert answer.body == public(events)


@pytest.mark.parametrize("asked", [True, False])
async def test_sse_18_compat_13_usage_only_where_asked_and_where_it_stood(
    gateway: InProcessGateway, upstream: FaultUpstream, asked: bool
) -> None:
    body = {**S0, "stream_options": {"include_usage": True}} if asked else S0
    answer = await ask(gateway.port, body)
    assert answer.body == public(replies.chat_events("po", "ng", with_usage=asked))
    chunks = [json.loads(data) for data in data_of(answer.body)[:-1]]
    assert [bool(chunk["choices"]) for chunk in chunks] == [True] * 4 + [False] * asked


async def test_sse_27_sse_28_each_event_at_once_and_uncompressed(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    events = replies.chat_events("a" * 250, "b" * 250)
    read = [asyncio.Event() for _ in events]
    # The upstream goes on only when the client has read what was sent before.
    script = [step for event, ready in zip(events, read, strict=True) for step in (frame(event), Until(ready))]
    upstream.reply([sse_head(), *script, LAST_CHUNK])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0, [("accept-encoding", "gzip, br, zstd")])
        answer = await client.head()
        for event, ready in zip(events, read, strict=True):
            await client.until(answer, public([event]))
            ready.set()
        await client.rest(answer)
    assert answer.complete
    assert answer.body == public(events)
    assert answer.header("content-type") == "text/event-stream; charset=utf-8"
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("x-accel-buffering") == "no"
    assert answer.header("content-length") is None
    assert answer.header("content-encoding") is None
    assert upstream.calls[0].header("accept-encoding") == ["identity"]


async def test_sse_29_a_line_of_3_mib(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = [piece("x" * 3 * 2**20), stop(), DONE]
    answer = await relayed(gateway, upstream, [sse_head(), frame(b"".join(events)), LAST_CHUNK])
    assert answer.body == public(events)


async def test_compat_05_reasoning_and_other_deltas_pass(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    deltas = [
        {"reasoning": "think"},
        {"reasoning_content": "more", "reasoning_details": [{"type": "x"}]},
        {"content": "hi"},
        {"refusal": "no"},
        {"audio": {"id": "a"}},
        {},
    ]
    events = [*map(delta, deltas), stop(), DONE]
    answer = await relayed(gateway, upstream, stream(*events))
    assert answer.body == public(events)


def tool(index: int | None, **fields: object) -> bytes:
    """A chunk with one tool-call delta."""
    place = {} if index is None else {"index": index}
    return delta({"tool_calls": [{**place, **fields}]})


INTERLEAVED = [
    *(tool(n, id=f"call_{n}", type="function", function={"name": f"f{n}", "arguments": ""}) for n in range(3)),
    *(
        tool(n, function={"arguments": part})
        for n, part in [(0, '{"model":'), (2, "{}"), (1, "{}"), (0, '"up-small"}')]
    ),
]
IN_ONE = [tool(0, id="call_0", type="function", function={"name": "f", "arguments": '{"a":1}'})]
WITHOUT_INDEX = [tool(None, id="call_0", function={"name": "f", "arguments": "{}"})]


@pytest.mark.parametrize("calls", [INTERLEAVED, IN_ONE, WITHOUT_INDEX])
async def test_compat_06_tool_calls_byte_for_byte(
    gateway: InProcessGateway, upstream: FaultUpstream, calls: list[bytes]
) -> None:
    events = [*calls, stop(finish="tool_calls"), DONE]
    answer = await relayed(gateway, upstream, stream(*events))
    assert answer.body == public(events)


async def test_an_error_that_is_null_is_none(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    chunk = {"model": "up-small", "error": None, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    events = [event(chunk), stop(), DONE]
    answer = await relayed(gateway, upstream, stream(*events))
    assert answer.body == public(events)


async def test_an_event_of_several_data_lines(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    lines = b'data: {"model": "up-small",\ndata: "choices": [{"index": 0,\ndata:"delta": {"content": "a"}}]}\n\n'
    answer = await relayed(gateway, upstream, stream(lines, stop(), DONE))
    assert contents(answer.body) == "a"
    assert b"up-small" not in answer.body


@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "Text/Event-Stream;charset=UTF-8"])
async def test_every_spelling_of_the_content_type(
    gateway: InProcessGateway, upstream: FaultUpstream, kind: str
) -> None:
    start = head(200, [("content-type", kind), ("transfer-encoding", "chunked")])
    await relayed(gateway, upstream, [start, *replies.chat_stream("a")[1:]])


async def test_total_ends_with_the_first_event(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, upstream={"timeouts": {"total": "300ms"}}))
    script = replies.chat_stream("a", "b")
    await relayed(gateway, upstream, [*script[:2], Pause(0.6), *script[2:]])


async def test_done_ends_the_stream_though_the_upstream_does_not(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    events = replies.chat_events("a")
    answer = await relayed(gateway, upstream, [*stream(*events, end=False), NEVER])
    assert answer.body == public(events)


@pytest.mark.parametrize("last", [[stop()], [DONE]])
async def test_a_finish_reason_or_done_alone_is_a_good_end(
    gateway: InProcessGateway, upstream: FaultUpstream, last: list[bytes]
) -> None:
    events = [piece("hi"), *last]
    answer = await relayed(gateway, upstream, stream(*events))
    assert answer.body == public(events)


async def test_nothing_passes_after_done(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    events = replies.chat_events("hi")
    answer = await relayed(gateway, upstream, stream(*events, piece("late"), DONE))
    assert answer.body == public(events)


async def test_a_stream_leaves_the_connection_usable(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    async with await RawClient.open(gateway.port) as client:
        for _ in range(3):
            await client.request("POST", CHAT, S0)
            answer = await client.response()
            assert answer.complete
            assert contents(answer.body) == "pong"
    assert {one.connection for one in upstream.calls} == {upstream.calls[0].connection}


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection(
    gateway: InProcessGateway, upstream: FaultUpstream
) -> None:
    body = json.dumps(S0).encode()
    async with await RawClient.open(gateway.port) as client:
        await client.send(
            b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        answer = await client.response()
    assert answer.header("transfer-encoding") is None
    assert answer.end == "fin"
    assert contents(answer.body) == "pong"
