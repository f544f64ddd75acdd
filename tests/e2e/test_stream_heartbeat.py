"""Heartbeats: signs of life that no client trips over, and none where none are wanted."""

import json

import openai
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import RawClient
from doubles.script import LAST_CHUNK, NEVER, Pause, frame, sse_head
from doubles.settings import settings
from doubles.sse import final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, S0, ask, public

BEAT = b": keep-alive\n\n"
EVENTS = replies.chat_events("hi", "you")
FIELDS = [b"id: 7\n\n", b"retry: 1000\n\n", b"id: 8\nretry: 5\ndata: \n\n"]


async def test_sse_09_the_sdk_reads_through_silence_and_stray_fields(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"heartbeat": "50ms"}))
    quiet = Pause(0.2)
    marked = b"id: 9\nretry: 2\n" + EVENTS[1]
    first, *rest = map(frame, [EVENTS[0], *FIELDS, marked, *EVENTS[2:]])
    upstream.always([quiet, sse_head(), quiet, first, quiet, *rest, LAST_CHUNK])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        reading = await client.chat.completions.create(**S0)
        text = [chunk.choices[0].delta.content or "" async for chunk in reading]
    assert "".join(text) == "hiyou"
    answer = await ask(gateway.port, S0)
    assert answer.body.startswith(BEAT)
    assert answer.body.count(BEAT) >= 3
    assert answer.body.replace(BEAT, b"") == public(EVENTS)


async def test_sse_10_off_sends_no_byte_of_its_own(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"heartbeat": "off"}))
    quiet = Pause(0.3)
    first, *rest = map(frame, EVENTS)
    upstream.reply([quiet, sse_head(), quiet, first, quiet, *rest, LAST_CHUNK])
    answer = await ask(gateway.port, S0)
    assert answer.body == public(EVENTS)
    for line in filter(None, answer.body.split(b"\n")):
        data = line.removeprefix(b"data: ")
        assert data == b"[DONE]" or json.loads(data)


async def test_a_heartbeat_commits_and_failure_is_then_in_the_stream(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"heartbeat": "50ms"}))
    upstream.reply([Pause(0.3), *replies.error(500, "boom")])
    answer = await ask(gateway.port, S0)
    assert answer.status == 200
    assert (answer.complete, answer.end) == (False, "fin")
    assert answer.body.startswith(BEAT)
    assert final_error(answer.body)["code"] == "upstream_error"


async def test_with_heartbeats_off_failure_is_a_status_however_late(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, server={"heartbeat": "off"}))
    upstream.reply([Pause(0.3), *replies.error(500, "boom")])
    answer = await ask(gateway.port, S0)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_error"


async def test_a_first_byte_that_does_not_come_is_a_timeout_in_the_stream(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(
        settings(upstream.url, server={"heartbeat": "50ms"}, upstream={"timeouts": {"first_byte": "300ms"}})
    )
    upstream.reply([NEVER])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, S0)
        answer = await client.response()
    assert (answer.status, answer.complete, answer.end) == (200, False, "fin")
    assert final_error(answer.body)["code"] == "upstream_timeout"
    await gateway.outcome("upstream_timeout", status="200")
