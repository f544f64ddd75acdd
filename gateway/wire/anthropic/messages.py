"""`/v1/messages` and `/v1/messages/count_tokens`: what their requests, answers and events mean."""

from typing import Any, Final

import msgspec

from gateway.core.endpoint import AnswerSummary, Endpoint
from gateway.wire.anthropic.errors import AnthropicErrors
from gateway.wire.openai import peek, usage
from gateway.wire.openai.free import read_free
from gateway.wire.openai.token_weight import chat_caps
from gateway.wire.openai.typed_events import Description, EventTypes, typed_reader

_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def finish_reason(description: Description) -> str:
    """The `finish_reason` that a chat would have for a `stop_reason`; one that is new here stays as it is."""
    reason = description.stop_reason
    return _FINISH.get(reason, reason) if isinstance(reason, str) else ""


EVENTS: Final = EventTypes(
    output=frozenset(("content_block_delta",)),
    last=frozenset(("message_stop",)),
    describing={"message_start": "message", "message_delta": "delta"},
    finish=finish_reason,
)


class _Message(Description, gc=False):
    type: Any = None
    error: msgspec.Raw = peek.NULL


_decode = msgspec.json.Decoder(_Message).decode


def read_message(body: bytes) -> AnswerSummary | None:
    """What is known of an answer; None if it is not a JSON object."""
    answer = peek.decoded(_decode, body)
    if answer is None:
        return None
    error = answer.type == "error" or bytes(answer.error) not in peek.NO_ERROR
    tokens = None if answer.usage is peek.NULL else usage.tokens(answer.usage)
    model = answer.model if isinstance(answer.model, str) else None
    return AnswerSummary(model, finish_reason(answer), tokens, error, damaged=not peek.is_utf8(body))


HEADERS: Final = (("anthropic-version", "2023-06-01"),)
"""What Anthropic wants with every call."""
_TRAVELLING: Final = (*HEADERS, ("anthropic-beta", ""))

MESSAGES: Final = Endpoint(
    "/v1/messages",
    "messages",
    errors=AnthropicErrors(),
    head=peek.read_head,
    answer=read_message,
    caps=chat_caps,
    reader=typed_reader(EVENTS),
    travelling=_TRAVELLING,
)
COUNT_TOKENS: Final = Endpoint(
    "/v1/messages/count_tokens",
    "messages",
    errors=AnthropicErrors(),
    head=peek.read_head,
    answer=read_free,
    travelling=_TRAVELLING,
)
UNKNOWN_MESSAGES: Final = Endpoint(
    "other", "other", errors=AnthropicErrors(), head=peek.read_head, answer=read_free, methods=(), ours=True
)
"""Stands in for a path below that of the messages which is unknown."""
