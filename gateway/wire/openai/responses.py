"""The Responses API: what its events mean, and the event that ends a broken stream."""

from typing import Final

import msgspec

from gateway.core.errors import ErrorKind
from gateway.wire.openai.typed_events import Description, EventTypes

_LENGTH: Final = "max_output_tokens"


def finish_reason(description: Description) -> str:
    """The `finish_reason` that a chat would have: `stop`, `length` or why else the response is incomplete."""
    if description.status == "completed":
        return "stop"
    details = description.incomplete_details
    reason = details.get("reason") if description.status == "incomplete" and isinstance(details, dict) else None
    return "length" if reason == _LENGTH else reason if isinstance(reason, str) else ""


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


def error_event(kind: ErrorKind, message: str, param: str | None, sequence: int) -> bytes:
    """The event that ends a broken stream: OpenAI's, and the same as an `error` member, on which SDKs raise.

    `sequence` is the number of events before it.
    """
    error = {"message": message, "type": kind.type, "param": param, "code": kind.code or None}
    event = {**error, "type": "error", "sequence_number": sequence, "error": error}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(event)
