"""Images and audio: OpenAI's SDK through the gateway, forms whose files pass untouched, answers of any kind."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.rawclient import Answer, call
from doubles.routed import routed
from doubles.script import FIN, compact, event, full, stream
from doubles.settings import AUTH, KEY, settings
from doubles.sse import data_of
from doubles.threaded import ThreadedUpstream
from doubles.upstream import FaultUpstream
from doubles.wires import audio, forms, images
from doubles.wires.engine import EveryWire
from doubles.wires.streams import broken_bodies, broken_streams, named
from kit import openai_schema

MODEL = forms.Part("model", b"m-small")
FILE = forms.Part("file", bytes(range(256)) * 4 + b"\r\n--", "a.wav", "audio/wav")
ERROR = {"type": "error", "error": {"type": "server_error", "message": "it broke", "code": None, "param": None}}


@pytest.fixture
async def engine(upstream: FaultUpstream) -> EveryWire:
    """The upstream, serving every wire."""
    return EveryWire(upstream)


@pytest.fixture
async def guarded(engine: EveryWire, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys and a price."""
    config = settings(engine.upstream.url, keys=True)
    config["models"]["m-small"]["candidates"][0]["price"] = {"input": 100, "output": 1000}
    return await start_gateway(config)


@pytest.fixture
async def sdk(guarded: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client as its users make it."""
    async with openai.AsyncOpenAI(base_url=f"{guarded.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


async def send(gateway: InProcessGateway, path: str, *parts: forms.Part) -> Answer:
    """Send a form."""
    return await call(gateway.port, "POST", path, forms.form(*parts), [AUTH, forms.CONTENT_TYPE])


async def test_images(engine: EveryWire, sdk: openai.AsyncOpenAI, guarded: InProcessGateway) -> None:
    made = await sdk.images.generate(model="m-small", prompt="a cat", n=2)
    assert made.data is not None
    assert len(made.data) == 2
    picture = ("a.png", b"\x89PNG\r\n--x", "image/png")
    edited = await sdk.images.edit(model="m-small", image=[picture, picture], prompt="a cat")
    assert edited.usage is not None
    streamed = [one async for one in await sdk.images.generate(model="m-small", prompt="a cat", stream=True)]
    assert streamed[-1].type == "image_generation.completed"
    kinds = [one.type async for one in await sdk.images.edit(model="m-small", image=picture, prompt="p", stream=True)]
    assert kinds[-1] == "image_edit.completed"
    received = engine.upstream.calls[1]
    assert forms.fields_of(received) == {"model": "up-small", "prompt": "a cat"}
    assert [part.data for part in forms.parts_of(received) if part.file] == [picture[1]] * 2
    await guarded.counted("sluice_tokens_total", 4 * 10, type="input")
    await guarded.counted("sluice_tokens_total", 4 * 20, type="output")
    await guarded.outcome("ok", 4)


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
async def test_audio(engine: EveryWire, sdk: openai.AsyncOpenAI, guarded: InProcessGateway) -> None:
    spoken = await sdk.audio.speech.create(model="m-small", voice="alloy", input="hello")
    assert await spoken.aread() == audio.SOUND
    sound = ("a.wav", b"RIFF\x00\xff", "audio/wav")
    heard = await sdk.audio.transcriptions.create(model="m-small", file=sound)
    assert heard.text == "pong"
    words = await sdk.audio.transcriptions.create(model="m-small", file=sound, response_format="text")
    assert str(words) == "pong\n"
    events = [one.type async for one in await sdk.audio.transcriptions.create(model="m-small", file=sound, stream=True)]
    assert events[-1] == "transcript.text.done"
    assert (await sdk.audio.translations.create(model="m-small", file=sound)).text == "pong"
    assert {forms.fields_of(one)["model"] for one in engine.upstream.calls[1:]} == {"up-small"}
    await guarded.counted("sluice_tokens_total", 3 * 14, type="input", source="upstream")
    await guarded.outcome("ok", 5)


@pytest.mark.parametrize("model_first", [True, False])
async def test_a_form_reaches_the_upstream_byte_for_byte(
    engine: EveryWire, guarded: InProcessGateway, model_first: bool
) -> None:
    parts = [MODEL, FILE, forms.Part("x", b"1")]
    if not model_first:
        parts.reverse()
    assert (await send(guarded, "/v1/audio/transcriptions", *parts)).status == 200
    [received] = engine.upstream.calls
    assert received.body == forms.form(*parts).replace(b"m-small", b"up-small")
    assert received.header("content-type") == [forms.CONTENT_TYPE[1]]
    assert received.header("content-length") == [str(len(received.body))]
    for name in ("authorization", "x-api-key", "cookie"):
        assert received.header(name) == []


@pytest.mark.parametrize("form", ["json", "text", "srt", "vtt", "verbose_json"])
async def test_a_transcript_passes_as_it_came(guarded: InProcessGateway, form: str) -> None:
    answer = await send(guarded, "/v1/audio/transcriptions", MODEL, FILE, forms.Part("response_format", form.encode()))
    assert answer.body == audio.transcript(form)
    assert answer.header("content-type") == ("application/json" if "json" in form else "text/plain; charset=utf-8")


async def test_sound_passes_as_it_came(guarded: InProcessGateway) -> None:
    body = {"model": "m-small", "input": "x", "voice": "v"}
    answer = await call(guarded.port, "POST", "/v1/audio/speech", body, [AUTH])
    assert (answer.body, answer.header("content-type")) == (audio.SOUND, "audio/mpeg")
    streamed = await call(guarded.port, "POST", "/v1/audio/speech", {**body, "stream_format": "sse"}, [AUTH])
    assert streamed.body == b"".join(audio.speech_events())


async def test_the_transcripts_of_vllm_end_with_a_marker(upstream: FaultUpstream, guarded: InProcessGateway) -> None:
    chunk = {"object": "transcription.chunk", "choices": [{"delta": {"content": "hi"}, "finish_reason": None}]}
    events = [event(chunk), b"data: [DONE]\n\n"]
    upstream.reply(stream(*events), stream(*events[:1]))
    parts = MODEL, FILE, forms.Part("stream", b"true")
    whole = await send(guarded, "/v1/audio/transcriptions", *parts)
    assert (whole.complete, whole.body) == (True, b"".join(events))
    cut = await send(guarded, "/v1/audio/transcriptions", *parts)
    assert not cut.complete
    assert json.loads(data_of(cut.body)[-1])["type"] == "error"


STREAMS: dict[str, tuple[list[bytes], str, list[forms.Part] | dict[str, Any]]] = {
    "images": (images.events(), "/v1/images/generations", {"model": "m-small", "prompt": "p", "stream": True}),
    "edits": (images.events("image_edit"), "/v1/images/edits", [MODEL, FILE, forms.Part("stream", b"true")]),
    "speech": (
        audio.speech_events(),
        "/v1/audio/speech",
        {"model": "m-small", "input": "x", "voice": "v", "stream_format": "sse"},
    ),
    "transcripts": (
        audio.transcript_events(),
        "/v1/audio/transcriptions",
        [MODEL, FILE, forms.Part("stream", b"true")],
    ),
}
DEATHS = [(wire, how) for wire, (events, _, _) in STREAMS.items() for how in broken_streams(events, named(ERROR))]


@pytest.mark.parametrize(("wire", "how"), DEATHS)
async def test_a_broken_stream_ends_with_an_error(
    upstream: FaultUpstream, guarded: InProcessGateway, wire: str, how: str
) -> None:
    events, path, asked = STREAMS[wire]
    upstream.reply(broken_streams(events, named(ERROR))[how])
    if isinstance(asked, dict):
        answer = await call(guarded.port, "POST", path, asked, [AUTH])
    else:
        answer = await send(guarded, path, *asked)
    if answer.status == 200:
        assert not answer.complete
        *passed, last = map(json.loads, data_of(answer.body))
        assert not any(one["type"].endswith((".done", ".completed", "error")) for one in passed)
        assert last["type"] == "error"
        openai_schema.check({"error": last["error"]}, "ErrorResponse")
    else:
        openai_schema.check(answer.json(), "ErrorResponse")
    await guarded.counted("sluice_requests_total", 0, outcome="ok")


async def test_a_broken_stream_raises_in_the_sdk(upstream: FaultUpstream, sdk: openai.AsyncOpenAI) -> None:
    upstream.reply(broken_streams(images.events(), named(ERROR))["ended without the last event"])
    with pytest.raises(openai.APIError, match="ended the stream before it was complete"):
        async for _ in await sdk.images.generate(model="m-small", prompt="p", stream=True):
            pass


SOUNDS = {how: one for how, one in broken_bodies(audio.SOUND, "audio/mpeg").items() if "silent" not in how}


@pytest.mark.parametrize("how", SOUNDS)
async def test_a_broken_sound_is_an_error(upstream: FaultUpstream, guarded: InProcessGateway, how: str) -> None:
    upstream.reply(SOUNDS[how])
    answer = await call(guarded.port, "POST", "/v1/audio/speech", {"model": "m-small", "input": "x"}, [AUTH])
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(
    "told", [full(b"<!DOCTYPE html><html>", content_type="text/html"), full(compact({"error": {"message": "x"}}))]
)
async def test_what_is_no_sound_is_an_error(upstream: FaultUpstream, guarded: InProcessGateway, told: bytes) -> None:
    upstream.reply([told])
    answer = await call(guarded.port, "POST", "/v1/audio/speech", {"model": "m-small", "input": "x"}, [AUTH])
    assert answer.status == 502


async def test_a_form_is_sent_again_whole(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    EveryWire(other)
    upstream.always([FIN])
    gateway = await start_gateway(routed(upstream.url, other.url))
    answer = await call(gateway.port, "POST", "/v1/audio/transcriptions", forms.form(MODEL, FILE), [forms.CONTENT_TYPE])
    assert (answer.status, answer.header("x-sluice-upstream")) == (200, "b")
    assert other.calls[0].body == forms.form(MODEL, FILE).replace(b"m-small", b"up-b")


async def test_refusals(upstream: FaultUpstream, guarded: InProcessGateway) -> None:
    as_json = await call(guarded.port, "POST", "/v1/audio/transcriptions", {"model": "m-small"}, [AUTH])
    assert (as_json.status, as_json.error["code"]) == (415, "unsupported_media_type")
    assert "multipart/form-data" in as_json.error["message"]
    assert (await send(guarded, "/v1/audio/transcriptions", FILE)).error["param"] == "model"
    unknown = await send(guarded, "/v1/images/edits", forms.Part("model", b"m-none"), FILE)
    assert unknown.error["code"] == "model_not_found"
    upstream.reply(replies.error(400, "bad sound"))
    assert (await send(guarded, "/v1/audio/translations", MODEL, FILE)).error["message"] == "bad sound"


@pytest.mark.parametrize("transport", ["httptools", "aiohttp"])
def test_large_files_are_held_once(tmp_path: Path, transport: str) -> None:
    size = 25 * 2**20
    with ThreadedUpstream() as threaded:
        EveryWire(threaded.upstream)
        config = settings(threaded.upstream.url, keys=True, upstream={"transport": transport})
        with (
            GatewayProcess(config, tmp_path) as gateway,
            openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            client.audio.transcriptions.create(model="m-small", file=("a.wav", b"RIFF", "audio/wav"))
            before = gateway.peak_rss()
            sound = ("a.wav", bytes(size), "audio/wav")
            assert client.audio.transcriptions.create(model="m-small", file=sound).text == "pong"
            assert len(threaded.upstream.calls[-1].body) > size
            assert gateway.peak_rss() - before < 1.2 * size
            too_large = ("a.wav", bytes(33 * 2**20), "audio/wav")
            with pytest.raises(openai.APIStatusError) as caught:
                client.audio.transcriptions.create(model="m-small", file=too_large)
            assert caught.value.status_code == 413
