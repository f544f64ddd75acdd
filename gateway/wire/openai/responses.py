"""`/v1/responses`: what its requests, answers and events mean."""

from typing import Any, Final

import msgspec

from gateway.core.endpoint import AnswerSummary, Endpoint, RequestHead
from gateway.core.errors import Rejection
from gateway.core.tokens import TokenUsage
from gateway.wire.openai import peek, usage
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.free import read_free
from gateway.wire.openai.token_weight import response_caps
from gateway.wire.openai.typed_events import Description, EventTypes, typed_reader

UNFINISHED: Final = ("queued", "in_progress")
"""A response in the background is not done yet."""


def finish_reason(description: Description) -> str:
    """The `finish_reason` that a chat would have: `stop`, `length` or why else the response is incomplete."""
    if description.status == "completed":
        return "stop"
    details = description.incomplete_details
    reason = details.get("reason") if description.status == "incomplete" and isinstance(details, dict) else None
    return "length" if reason == "max_output_tokens" else reason if isinstance(reason, str) else ""


EVENTS: Final = EventTypes(
    output=frozenset(
        (
            *("response.output_text.delta", "response.refusal.delta", "response.function_call_arguments.delta"),
            *("response.reasoning_text.delta", "response.reasoning_summary_text.delta"),
            *("response.custom_tool_call_input.delta", "response.mcp_call_arguments.delta"),
            *("response.code_interpreter_call_code.delta", "response.audio.delta", "response.audio.transcript.delta"),
        )
    ),
    last=frozenset(("response.completed", "response.incomplete")),
    failed=frozenset(("response.failed",)),
    describing=dict.fromkeys(
        (
            *("response.created", "response.queued", "response.in_progress"),
            *("response.completed", "response.incomplete", "response.failed"),
        ),
        "response",
    ),
    finish=finish_reason,
)


class _Response(Description, gc=False):
    object: Any = None
    error: msgspec.Raw = peek.NULL


_decode = msgspec.json.Decoder(_Response).decode


def read_response(body: bytes) -> AnswerSummary | None:
    """What is known of an answer. One that has failed holds an `error` and is an answer all the same."""
    answer = peek.decoded(_decode, body)
    if answer is None:
        return None
    error = answer.object != "response" and bytes(answer.error) not in peek.NO_ERROR
    tokens = None if answer.usage is peek.NULL else usage.tokens(answer.usage)
    if tokens is None and answer.status in UNFINISHED:
        tokens = TokenUsage()  # it runs in the background
    model = answer.model if isinstance(answer.model, str) else None
    failed, damaged = answer.status == "failed", not peek.is_utf8(body)
    return AnswerSummary(model, finish_reason(answer), tokens, error, damaged=damaged, failed=failed)


def read_stored(body: bytes) -> AnswerSummary | None:
    """What is known of a stored response: what it has used is paid for, and to show a failed one is no failure."""
    answer = read_response(body)
    if answer is not None:
        answer.tokens, answer.failed, answer.finish = TokenUsage(), False, ""
    return answer


class ResponsesErrors(OpenAIErrors):
    """OpenAI's shape; the error event in a stream is flat, and has the same as an `error` member, for SDKs to raise."""

    def event(self, rejection: Rejection, request_id: str) -> bytes:
        """The last event of a broken stream. Its place among the events is not known, so its number is 0."""
        kind = rejection.kind
        error = {"message": rejection.message, "type": kind.type, "param": rejection.param, "code": kind.code or None}
        event = {**error, "type": "error", "sequence_number": 0, "error": error}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(event)


def _no_body(body: bytes, content_type: str) -> RequestHead | Rejection:
    """What is known of a request by id: its model is that of the response."""
    return RequestHead("", stream=False, spans=())


RESPONSES: Final = Endpoint(
    "/v1/responses",
    "responses",
    errors=ResponsesErrors(),
    head=peek.read_head,
    answer=read_response,
    caps=response_caps,
    reader=typed_reader(EVENTS),
    keeps=True,
)
COMPACT: Final = Endpoint(
    "/v1/responses/compact",
    "responses",
    errors=ResponsesErrors(),
    head=peek.read_head,
    answer=read_response,
    caps=response_caps,
    keeps=True,
)
INPUT_TOKENS: Final = Endpoint(
    "/v1/responses/input_tokens",
    "responses",
    errors=ResponsesErrors(),
    head=peek.read_head,
    answer=read_free,
    keeps=True,
)


def _by_id(rest: str, *methods: str, streams: bool = False) -> Endpoint:
    return Endpoint(
        f"/v1/responses/{{id}}{rest}",
        "responses",
        errors=ResponsesErrors(),
        head=_no_body,
        answer=read_stored,
        reader=typed_reader(EVENTS, free=True) if streams else None,
        methods=methods,
        keeps=True,
        takes_query=True,
    )


STORED: Final = _by_id("", "GET", "DELETE", streams=True)
CANCEL: Final = _by_id("/cancel", "POST")
INPUT_ITEMS: Final = _by_id("/input_items", "GET")
