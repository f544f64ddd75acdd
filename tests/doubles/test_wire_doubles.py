"""The fake upstreams of the wires have the shapes that OpenAI and Anthropic document, and their SDKs read them."""

import json
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared.error_response import ErrorResponse
from kit import openai_schema
from pydantic import TypeAdapter

from doubles.rawclient import Answer, call
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.wires import audio, forms, images, lists, messages, responses
from doubles.wires.engine import EveryWire
from doubles.wires.responses import ResponsesEngine
from doubles.wires.streams import Event, broken_streams, named

MODEL = {"model": "m"}
JSON = [("content-type", "application/json")]


@pytest.fixture
async def engine(upstream: FaultUpstream) -> EveryWire:
    """An upstream that serves every wire."""
    return EveryWire(upstream)


async def ask(engine: EveryWire, path: str, body: Any = b"", method: str = "POST") -> Answer:
    """One call of an upstream."""
    answer = await call(engine.upstream.port, method, path, body, JSON if method == "POST" else ())
    assert answer.complete
    return answer


async def send_form(engine: EveryWire, path: str, **fields: str) -> Answer:
    """One call of an upstream with a form that has a file."""
    parts = [forms.Part(name, value.encode()) for name, value in fields.items()]
    body = forms.form(*parts, forms.Part("file", b"\x00\r\n--\xff", "a.wav", "audio/wav"))
    return await call(engine.upstream.port, "POST", path, body, [forms.CONTENT_TYPE])


def strict(kind: Any, value: object) -> None:
    """Assert that a value has every required member of an SDK's type."""
    TypeAdapter(kind).validate_python(value)


ITEMS = [responses.message("pong"), responses.function_call("look", '{"at":1}')]


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
@pytest.mark.parametrize("item", ITEMS, ids=["text", "call"])
def test_a_response_and_its_events_have_openais_shape(item: Event, status: str) -> None:
    final = responses.response("m", item, status=status)
    openai_schema.check(final, "Response")
    for event in responses.event_list(final):
        openai_schema.check(event, "ResponseStreamEvent")
    openai_schema.check(responses.ERROR, "ResponseErrorEvent")


async def test_what_is_kept_of_a_response_has_openais_shape(engine: EveryWire) -> None:
    made = (await ask(engine, "/v1/responses", {**MODEL, "input": "ping"})).json()
    place, path = f"/v1/responses/{made['id']}", "/responses/{response_id}"
    for method, where, shape in (
        ("get", place, path),
        ("get", f"{place}/input_items?limit=2", f"{path}/input_items"),
        ("post", f"{place}/cancel", f"{path}/cancel"),
        ("post", "/v1/responses/input_tokens", "/responses/input_tokens"),
        ("post", "/v1/responses/compact", "/responses/compact"),
    ):
        openai_schema.check_answer((await ask(engine, where, method=method.upper())).json(), method, shape)
    assert (await ask(engine, place, method="DELETE")).json()["deleted"] is True
    unknown = await ask(engine, place, method="GET")
    assert unknown.status == 404
    openai_schema.check(unknown.json(), "ErrorResponse")
    with pytest.raises(AssertionError, match="no Response"):  # the schema does tell
        openai_schema.check({**made, "status": "done"}, "Response")


async def test_openais_sdk_reads_responses(engine: EveryWire) -> None:
    engine.responses = ResponsesEngine(("look", '{"at":1}'))
    async with openai.AsyncOpenAI(base_url=engine.upstream.url, api_key="k") as client:
        async with client.responses.stream(model="m", input="ping") as reading:
            assert (await reading.get_final_response()).output_text == "pong"
        tools: Any = [{"type": "function", "name": "look", "parameters": {}, "strict": False}]
        called = await client.responses.create(model="m", input="ping", tools=tools)
        assert called.output[0].type == "function_call"
        waiting = await client.responses.create(model="m", input="ping", background=True)
        assert (waiting.status, waiting.usage) == ("queued", None)
        assert (await client.responses.retrieve(waiting.id)).status == "completed"


@pytest.mark.parametrize("block", [messages.text("pong"), messages.tool_use("look", {"at": 1})], ids=["text", "tool"])
def test_a_message_and_its_events_have_anthropics_shape(block: Event) -> None:
    final = messages.message("m", block)
    strict(Message, final)
    for event in messages.event_list(final):
        if event != messages.PING:
            strict(RawMessageStreamEvent, event)
    strict(ErrorResponse, {**messages.ERROR, "request_id": None})


async def test_anthropics_sdk_reads_messages(engine: EveryWire) -> None:
    said: Any = [{"role": "user", "content": "ping"}]
    base = engine.upstream.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        async with client.messages.stream(model="m", max_tokens=9, messages=said) as reading:
            final = await reading.get_final_message()
        assert (final.content[0].to_dict()["text"], final.usage.output_tokens) == ("pong", 5)
        whole = await client.messages.create(model="m", max_tokens=9, messages=said)
        assert whole.usage.cache_read_input_tokens == 4
        assert (await client.messages.count_tokens(model="m", messages=said)).input_tokens == 15
        engine.upstream.reply(messages.error(529, "overloaded_error"))
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(model="m", max_tokens=9, messages=said)
        assert caught.value.status_code == 529
    strict(MessageTokensCount, (await ask(engine, "/v1/messages/count_tokens", MODEL)).json())


LISTS: dict[str, Event] = {
    "/v1/rerank": {"query": "q", "documents": ["a", "bcd"], "top_n": 1},
    "/v2/rerank": {"query": "q", "documents": ["a", "bcd"]},
    "/score": {"text_1": "q", "text_2": ["a", "b"]},
    "/pooling": {"input": ["a", "b"]},
    "/classify": {"input": "a"},
    "/tokenize": {"prompt": "ab"},
    "/v1/moderations": {"input": ["a", "b"]},
}


@pytest.mark.parametrize("path", LISTS)
async def test_lists_answer_each_item(engine: EveryWire, path: str) -> None:
    answer = (await ask(engine, path, {**MODEL, **LISTS[path]})).json()
    if path.endswith("rerank"):
        assert [one["index"] for one in answer["results"]] == ([1] if path == "/v1/rerank" else [1, 0])
    elif path == "/v1/moderations":
        openai_schema.check(answer, "CreateModerationResponse")
        assert len(answer["results"]) == 2
    elif path == "/tokenize":
        assert answer == lists.tokenize({"prompt": "ab"})
        back = await ask(engine, "/detokenize", {**MODEL, "tokens": answer["tokens"]})
        assert back.json() == {"prompt": "ab"}
    else:
        assert [one["index"] for one in answer["data"]] == [0, 1][: len(answer["data"])]
        assert answer["usage"]["prompt_tokens"] > 0


async def test_images_have_openais_shape(engine: EveryWire) -> None:
    made = await ask(engine, "/v1/images/generations", {**MODEL, "prompt": "p", "n": 2})
    openai_schema.check_answer(made.json(), "post", "/images/generations")
    assert len(made.json()["data"]) == 2
    edited = await send_form(engine, "/v1/images/edits", model="m", prompt="p", n="3")
    openai_schema.check_answer(edited.json(), "post", "/images/edits")
    assert len(edited.json()["data"]) == 3
    for kind, shape in (("image_generation", "ImageGenStreamEvent"), ("image_edit", "ImageEditStreamEvent")):
        for event in images.event_list(kind):
            openai_schema.check(event, shape)


async def test_audio_has_openais_shape(engine: EveryWire) -> None:
    spoken = await ask(engine, "/v1/audio/speech", {**MODEL, "input": "x", "voice": "v"})
    assert (spoken.body, spoken.header("content-type")) == (audio.SOUND, "audio/mpeg")
    streamed = await ask(engine, "/v1/audio/speech", {**MODEL, "input": "x", "voice": "v", "stream_format": "sse"})
    for data in data_of(streamed.body):
        openai_schema.check(json.loads(data), "CreateSpeechResponseStreamEvent")
    for path in ("transcriptions", "translations"):
        whole = await send_form(engine, f"/v1/audio/{path}", model="m")
        openai_schema.check_answer(whole.json(), "post", f"/audio/{path}")
        verbose = await send_form(engine, f"/v1/audio/{path}", model="m", response_format="verbose_json")
        openai_schema.check(verbose.json(), f"Create{path.title()[:-1]}ResponseVerboseJson")
    heard = await send_form(engine, "/v1/audio/transcriptions", model="m", stream="true")
    for data in data_of(heard.body):
        openai_schema.check(json.loads(data), "CreateTranscriptionResponseStreamEvent")
    plain = await send_form(engine, "/v1/audio/transcriptions", model="m", response_format="text")
    assert (plain.body, plain.header("content-type")) == (b"pong\n", "text/plain; charset=utf-8")


async def test_a_form_is_read_as_it_was_written(engine: EveryWire) -> None:
    await send_form(engine, "/v1/audio/transcriptions", model="m", language="de")
    [received] = engine.upstream.calls
    assert forms.fields_of(received) == {"model": "m", "language": "de"}
    assert forms.parts_of(received)[-1] == forms.Part("file", b"\x00\r\n--\xff", "a.wav", "audio/wav")


BROKEN = broken_streams(responses.events(responses.response("m", ITEMS[0])), named(responses.ERROR))


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_stream_never_completes(engine: EveryWire, how: str) -> None:
    engine.upstream.reply(BROKEN[how])
    kinds = []
    async with openai.AsyncOpenAI(base_url=engine.upstream.url, api_key="k", max_retries=0) as client:
        try:
            async for event in await client.responses.create(model="m", input="ping", stream=True):
                kinds.append(event.type)
        except openai.OpenAIError:
            pass
    assert "response.completed" not in kinds
