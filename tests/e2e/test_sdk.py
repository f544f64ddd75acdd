"""The real openai SDK, with nothing changed but `base_url` and `api_key`."""

import base64
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.script import NEVER, RST, Step, full
from doubles.settings import KEY, OTHER_KEY, settings
from doubles.threaded import ThreadedUpstream
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, E0


@pytest.fixture
async def guarded(upstream: FaultUpstream, start_gateway: StartGateway) -> InProcessGateway:
    """A gateway with keys."""
    timeouts = {"timeouts": {"first_byte": "300ms"}}
    return await start_gateway(settings(upstream.url, keys=True, upstream=timeouts))


@pytest.fixture
async def sdk(guarded: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client as its users make it."""
    async with openai.AsyncOpenAI(base_url=f"{guarded.url}/v1", api_key=KEY) as client:
        yield client


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ThreadedUpstream, str]]:
    """A gateway process in front of an upstream in a thread: nothing here needs a loop."""
    with (
        ThreadedUpstream() as threaded,
        GatewayProcess(settings(threaded.upstream.url, keys=True), tmp_path) as gateway,
    ):
        yield threaded, gateway.url


def test_synchronous(served: tuple[ThreadedUpstream, str]) -> None:
    _, url = served
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        chat = client.chat.completions.create(**C0)
        assert chat.choices[0].message.content == "pong"
        assert chat.model == "m-small"
        assert chat.usage is not None
        assert chat.usage.total_tokens == 7
        chunks = list(client.chat.completions.create(**C0, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "pong"
        assert client.completions.create(model="m-small", prompt="x").choices[0].text == "pong"
        vector = client.embeddings.create(**E0).data[0].embedding
        assert tuple(vector) == replies.VECTOR
        assert [model.id for model in client.models.list()] == ["m-small", "m-embed"]
        assert client.models.retrieve("m-small").id == "m-small"
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong-key-00000")
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


async def test_chat_and_raw_headers(sdk: openai.AsyncOpenAI) -> None:
    raw = await sdk.chat.completions.with_raw_response.create(**C0)
    assert raw.headers["x-sluice-upstream"] == "local"
    assert raw.headers["x-sluice-upstream-model"] == "up-small"
    assert raw.parse().choices[0].message.content == "pong"
    assert raw.request_id


async def test_a_stream_with_usage(sdk: openai.AsyncOpenAI) -> None:
    reading = await sdk.chat.completions.create(**C0, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in reading]
    assert {chunk.model for chunk in chunks} == {"m-small"}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2
    assert chunks[-1].choices == []


async def test_compat_13_without_asking_every_chunk_has_a_choice(sdk: openai.AsyncOpenAI) -> None:
    reading = await sdk.chat.completions.create(**C0, stream=True)
    assert [chunk.choices[0].finish_reason async for chunk in reading][-1] == "stop"


async def test_the_sdks_stream_helper(sdk: openai.AsyncOpenAI) -> None:
    async with sdk.chat.completions.stream(**C0) as reading:
        async for _ in reading:
            pass
        assert (await reading.get_final_completion()).choices[0].message.content == "pong"


async def test_embeddings_are_base64_on_the_wire_and_floats_in_hand(
    sdk: openai.AsyncOpenAI, upstream: FaultUpstream
) -> None:
    one = await sdk.embeddings.create(**E0)
    assert upstream.calls[0].json()["encoding_format"] == "base64"
    assert tuple(one.data[0].embedding) == replies.VECTOR
    many = await sdk.embeddings.create(model="m-embed", input=["a", "b", "c"])
    assert [entry.index for entry in many.data] == [0, 1, 2]
    as_text = await sdk.embeddings.create(**E0, encoding_format="base64")
    text: Any = as_text.data[0].embedding
    assert struct.unpack("<3f", base64.b64decode(text)) == replies.VECTOR
    assert (await sdk.embeddings.create(**E0, encoding_format="float")).data[0].embedding == list(replies.VECTOR)


async def test_models(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["m-small", "m-embed"]


FROM_UPSTREAM: list[tuple[list[Step], type[openai.APIStatusError], int, str | None]] = [
    (replies.error(400, "too hot"), openai.BadRequestError, 400, "too hot"),
    (replies.error(404, "no such thing"), openai.NotFoundError, 404, "no such thing"),
    (replies.error(422, "not that"), openai.UnprocessableEntityError, 422, "not that"),
    (replies.error(413, "too long"), openai.APIStatusError, 413, "too long"),
    (replies.error(429, "slow down", headers=[("retry-after", "1")]), openai.RateLimitError, 429, None),
    (replies.error(401), openai.InternalServerError, 502, None),
    (replies.error(500), openai.InternalServerError, 502, None),
    (replies.error(503), openai.InternalServerError, 503, None),
    ([full(b"<html>", content_type="text/html")], openai.InternalServerError, 502, None),
    ([RST], openai.InternalServerError, 502, None),
    ([NEVER], openai.InternalServerError, 504, None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "kind", "status", "told"), FROM_UPSTREAM)
async def test_an_upstreams_failure_is_the_sdks_own_exception(
    sdk: openai.AsyncOpenAI, upstream: FaultUpstream, script, kind, status, told, stream: bool
) -> None:
    upstream.always(script)
    with pytest.raises(kind) as raised:
        await sdk.with_options(max_retries=0).chat.completions.create(**C0, stream=stream)
    error = raised.value
    assert error.status_code == status
    assert error.message
    assert told is None or told in error.message
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"}


async def test_a_clients_own_mistakes_are_the_sdks_own_exceptions(
    sdk: openai.AsyncOpenAI, guarded: InProcessGateway, upstream: FaultUpstream
) -> None:
    with pytest.raises(openai.NotFoundError, match="nope") as missing:
        await sdk.chat.completions.create(**{**C0, "model": "nope"})
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        await sdk.chat.completions.create(**{**C0, "model": ""})
    assert (wrong.value.param, wrong.value.code) == ("model", "invalid_value")
    with pytest.raises(openai.NotFoundError, match="does not serve"):
        await sdk.vector_stores.create(name="x")
    with pytest.raises(openai.APIStatusError) as large:
        await sdk.chat.completions.create(model="m-small", messages=[], extra_body={"x": "y" * 33 * 2**20})
    assert large.value.status_code == 413
    base = f"{guarded.url}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="wrong-key-00000") as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(**C0)
    async with openai.AsyncOpenAI(base_url=base, api_key=OTHER_KEY) as restricted:
        with pytest.raises(openai.PermissionDeniedError):
            await restricted.chat.completions.create(**C0)
        assert [model.id async for model in restricted.models.list()] == ["m-embed"]
    assert upstream.calls == []


async def test_a_refusal_that_no_retry_helps_is_asked_once(sdk: openai.AsyncOpenAI, upstream: FaultUpstream) -> None:
    """The SDK repeats a 502 by itself unless it is told not to."""
    upstream.always(replies.error(500))
    with pytest.raises(openai.InternalServerError):
        await sdk.chat.completions.create(**C0)
    assert len(upstream.calls) == 1


async def test_the_sdk_waits_as_long_as_the_upstream_asks(sdk: openai.AsyncOpenAI, upstream: FaultUpstream) -> None:
    upstream.reply(replies.error(429, headers=[("retry-after-ms", "20"), ("retry-after", "9")]))
    assert (await sdk.chat.completions.create(**C0)).choices[0].message.content == "pong"
    assert len(upstream.calls) == 2


@pytest.mark.parametrize("suffix", ["", "/v1/", "//v1"])
async def test_a_base_url_with_a_slip_works(guarded: InProcessGateway, suffix: str) -> None:
    async with openai.AsyncOpenAI(base_url=guarded.url + suffix, api_key=KEY) as client:
        assert (await client.chat.completions.create(**C0)).choices[0].message.content == "pong"


async def test_v1_twice_says_what_is_wrong(guarded: InProcessGateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{guarded.url}/v1/v1", api_key=KEY) as client:
        with pytest.raises(openai.NotFoundError, match="/v1"):
            await client.chat.completions.create(**C0)
