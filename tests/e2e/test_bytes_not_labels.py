"""What an answer is, is decided by its bytes: headers that describe a good answer oddly do no harm."""

import gzip
import json
import zlib

import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.script import DONE, LAST_CHUNK, NEVER, Headers, compact, frame, full, head, piece, stop
from doubles.settings import settings
from doubles.sse import final_error
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, S0, ask, public

EVENTS = [piece("one"), piece("two"), stop(), DONE]
SSE = "text/event-stream"
CHUNKED = ("transfer-encoding", "chunked")
LABELS: dict[str, Headers] = {
    "identity": [("content-type", SSE), ("content-encoding", "identity")],
    "none": [("content-type", SSE), ("content-encoding", "none")],
    "empty": [("content-type", SSE), ("content-encoding", "")],
    "utf-8": [("content-type", SSE), ("content-encoding", "UTF-8")],
    "a list of nothing": [("content-type", SSE), ("content-encoding", "identity, none")],
    "gzip, but plain": [("content-type", SSE), ("content-encoding", "gzip")],
    "deflate, but plain": [("content-type", SSE), ("content-encoding", "deflate")],
    "br, but plain": [("content-type", SSE), ("content-encoding", "br")],
    "no type": [],
    "an empty type": [("content-type", "")],
    "text": [("content-type", "text/plain; charset=utf-8")],
    "html": [("content-type", "text/html")],
    "bytes": [("content-type", "application/octet-stream")],
    "json": [("content-type", "application/json")],
    "json lines": [("content-type", "application/x-ndjson")],
    "in capitals": [("content-type", "Text/Event-Stream;Charset=UTF-8")],
    "a blank before it": [("content-type", "  text/event-stream")],
    "twice": [("content-type", "text/plain"), ("content-type", SSE)],
}
PREFIXES = {
    "": b"",
    "comment": b": hi\n\n",
    "blank": b"\r\n\n",
    "mark": b"\xef\xbb\xbf",
    "event": b"event: x\n",
}


@pytest.mark.parametrize("transport", ["httptools", "aiohttp"])
async def test_a_good_stream_passes_whatever_its_headers_say(
    upstream: FaultUpstream, start_gateway: StartGateway, transport: str
) -> None:
    section = {"transport": transport, "breaker": {"failures": 1}}
    gateway = await start_gateway(settings(upstream.url, upstream=section))
    for name, headers in LABELS.items():
        upstream.reply([head(200, [*headers, CHUNKED]), *map(frame, EVENTS), LAST_CHUNK])
        answer = await ask(gateway.port, S0)
        assert (name, answer.status, answer.body) == (name, 200, public(EVENTS))
        assert answer.header("content-encoding") is None
        assert (answer.header("content-type") or "").startswith(SSE)
    await gateway.outcome("ok", len(LABELS))


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_however_it_begins_and_was_cut(
    gateway: InProcessGateway, upstream: FaultUpstream, prefix: str, size: int
) -> None:
    sent = PREFIXES[prefix] + b"".join(EVENTS)
    pieces = [frame(sent[at : at + size]) for at in range(0, len(sent), size)]
    upstream.reply([head(200, [("content-type", "text/plain"), CHUNKED]), *pieces, LAST_CHUNK])
    answer = await ask(gateway.port, S0)
    assert answer.status == 200
    assert answer.body.endswith(public(EVENTS)[8:])


@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15), ("deflate", -15), (None, 31)])
async def test_a_compressed_stream_is_read(
    gateway: InProcessGateway, upstream: FaultUpstream, coding: str | None, bits: int
) -> None:
    packer = zlib.compressobj(wbits=bits)
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in EVENTS] + [packer.flush()]
    label = [("content-encoding", coding)] if coding else []
    kind = SSE if coding else "text/plain"
    upstream.reply([head(200, [("content-type", kind), *label, CHUNKED]), *map(frame, pieces), LAST_CHUNK])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        chunks = await client.chat.completions.create(model="m-small", messages=S0["messages"], stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "onetwo"


NO_STREAMS = {
    "a page": (b"<html>no</html>", 502),
    "a text": (b"not today", 502),
    "a whole answer": (compact({"object": "chat.completion", "choices": []}), 502),
    "an error": (compact({"error": {"message": "busy", "code": 429}}), 429),
    "an error in a choice": (compact({"choices": [{"finish_reason": "error", "error": {"code": 503}}]}), 503),
    "nothing": (b"", 502),
    "bytes": (b"\x00\x01\x02\x03", 502),
}


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json", "application/problem+json"])
@pytest.mark.parametrize("name", NO_STREAMS)
async def test_what_is_no_stream_is_none(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str, kind: str | None
) -> None:
    body, status = NO_STREAMS[name]
    headers = [("content-length", str(len(body))), *([("content-type", kind)] if kind else [])]
    upstream.reply([head(200, headers) + body])
    assert (await ask(gateway.port, S0)).status == status


async def test_a_page_without_end_does_not_hold_the_call(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    upstream.reply([head(200, [("content-type", "text/html"), CHUNKED]), frame(b"<html>"), NEVER])
    assert (await ask(gateway.port, S0)).status == 502
    await upstream.peer_closed(1)


async def test_a_damaged_stream_ends_with_an_error(gateway: InProcessGateway, upstream: FaultUpstream) -> None:
    packed = gzip.compress(b"".join(EVENTS[:2]) * 50)
    coded = head(200, [("content-type", SSE), ("content-encoding", "gzip"), CHUNKED])
    upstream.reply([coded, frame(packed[:-20]), frame(b"\x00" * 40), LAST_CHUNK])
    final_error((await ask(gateway.port, S0)).body)
    await gateway.outcome("truncated")


WHOLE: dict[str, tuple[str | None, int | None]] = {
    "identity": ("identity", None),
    "none": ("none", None),
    "utf-8": ("utf-8", None),
    "gzip, but plain": ("gzip", None),
    "br, but plain": ("br", None),
    "gzip without a label": (None, 31),
    "gzip called identity": ("identity", 31),
    "gzip called deflate": ("deflate", 31),
    "deflate called gzip": ("gzip", 15),
    "raw deflate": ("deflate", -15),
    "gzip in a list": ("gzip, identity", 31),
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_and_an_error_too(
    gateway: InProcessGateway, upstream: FaultUpstream, name: str, status: int
) -> None:
    coding, bits = WHOLE[name]
    plain = replies.chat()[0] if status == 200 else replies.error(400, "too hot")[0]
    assert isinstance(plain, bytes)
    body = plain.partition(b"\r\n\r\n")[2]
    sent = body
    if bits is not None:
        packer = zlib.compressobj(wbits=bits)
        sent = packer.compress(body) + packer.flush()
    label = [("content-encoding", coding)] if coding else []
    upstream.reply([full(sent, status, "application/octet-stream", label)])
    answer = await ask(gateway.port, C0)
    assert answer.status == status
    assert answer.header("content-encoding") is None
    if status == 200:
        assert answer.body == body.replace(b"up-small", b"m-small")
    else:
        assert json.loads(answer.body)["error"]["message"] == "too hot"
