"""The Messages API: what its events mean."""

from typing import Final

from gateway.wire.openai.typed_events import Description, EventTypes

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
