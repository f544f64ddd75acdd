"""Errors in the form of each wire, as its SDK reads them."""

import json
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.shared.error_response import ErrorResponse
from doubles.script import LAST_CHUNK, frame, full, sse_head
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.wires import messages, responses
from kit import openai_schema
from pydantic import TypeAdapter

from gateway.core import errors
from gateway.core.errors import ErrorKind, Rejection
from gateway.wire.anthropic.errors import AnthropicErrors
from gateway.wire.openai.responses import ResponsesErrors

ROWS = {name: row for name, row in vars(errors).items() if isinstance(row, ErrorKind) and not name.startswith("_")}
SHAPE = AnthropicErrors()
BROKE_OFF = Rejection(errors.UPSTREAM_ERROR, "it broke off")
SAID: Any = [{"role": "user", "content": "ping"}]


@pytest.mark.parametrize(
    ("status", "on_the_wire", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (403, 403, "permission_error"),
        (404, 404, "not_found_error"),
        (405, 405, "invalid_request_error"),
        (408, 408, "invalid_request_error"),
        (413, 413, "request_too_large"),
        (415, 415, "invalid_request_error"),
        (422, 422, "invalid_request_error"),
        (429, 429, "rate_limit_error"),
        (500, 500, "api_error"),
        (502, 502, "api_error"),
        (503, 529, "overloaded_error"),
        (504, 504, "timeout_error"),
        (507, 507, "api_error"),
    ],
)
def test_anthropics_status_and_type(status: int, on_the_wire: int, kind: str) -> None:
    row = ErrorKind(status, "x", "y", "ok")
    assert SHAPE.status(row) == on_the_wire
    assert json.loads(SHAPE.body(Rejection(row, "no"), "req-1"))["error"]["type"] == kind


@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_anthropics_shape(name: str) -> None:
    rejection = Rejection(ROWS[name], "what is wrong", details={"x": 1, "type": "y"})
    body = json.loads(SHAPE.body(rejection, "req-1"))
    assert (body["request_id"], body["error"]["message"], body["error"]["x"]) == ("req-1", "what is wrong", 1)
    if body["error"]["type"] != "request_too_large":  # its status tells the SDK's class, the types do not list it
        TypeAdapter(ErrorResponse).validate_python(body)


EXPECTED = {  # by OpenAI's status
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    413: anthropic.RequestTooLargeError,
    429: anthropic.RateLimitError,
    503: anthropic.OverloadedError,
    504: anthropic.DeadlineExceededError,
    502: anthropic.InternalServerError,
}


@pytest.mark.parametrize("status", EXPECTED)
async def test_anthropics_sdk_knows_each_error(upstream: FaultUpstream, status: int) -> None:
    row = ErrorKind(status, "x", "y", "ok")
    upstream.reply([full(SHAPE.body(Rejection(row, "what is wrong"), "req-1"), SHAPE.status(row))])
    base = upstream.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        with pytest.raises(EXPECTED[status], match="what is wrong") as caught:
            await client.messages.create(model="m", max_tokens=9, messages=SAID)
    assert caught.value.status_code == SHAPE.status(row)


async def test_a_broken_stream_raises_in_anthropics_sdk(upstream: FaultUpstream) -> None:
    begun = [frame(event) for event in messages.events(messages.message("m", messages.text("pong")))[:4]]
    upstream.reply([sse_head(), *begun, frame(SHAPE.event(BROKE_OFF, "req-1")), LAST_CHUNK])
    base = upstream.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        with pytest.raises(anthropic.APIError, match="it broke off"):
            async with client.messages.stream(model="m", max_tokens=9, messages=SAID) as reading:
                await reading.get_final_message()


async def test_a_broken_response_raises_in_openais_sdk(upstream: FaultUpstream) -> None:
    event = ResponsesErrors().event(BROKE_OFF, "req-1")
    [data] = map(json.loads, data_of(event))
    openai_schema.check(data, "ResponseErrorEvent")
    openai_schema.check({"error": data["error"]}, "ErrorResponse")
    begun = [frame(event) for event in responses.events(responses.response("m", responses.message("pong")))[:4]]
    upstream.reply([sse_head(), *begun, frame(event), LAST_CHUNK])
    async with openai.AsyncOpenAI(base_url=upstream.url, api_key="k", max_retries=0) as client:
        with pytest.raises(openai.APIError, match="it broke off"):
            async with client.responses.stream(model="m", input="ping") as reading:
                await reading.get_final_response()
