"""An upstream of Anthropic's Messages API: whole and streamed answers, counts of tokens, errors."""

from typing import Any, Final

from doubles.call import Call
from doubles.script import Headers, Script, Step, compact, full, stream
from doubles.wires.streams import Event, named

USAGE: Final[Event] = {
    "input_tokens": 8,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 4,
    "output_tokens": 5,
}
ERROR: Final[Event] = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
PING: Final[Event] = {"type": "ping"}


def text(given: str) -> Event:
    """A content block with a text."""
    return {"type": "text", "text": given}


def tool_use(name: str, given: Event) -> Event:
    """A content block that calls a tool."""
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}


def message(model: str, *content: Event, **more: Any) -> Event:
    """A whole message."""
    called = any(block["type"] == "tool_use" for block in content)
    body: Event = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(content),
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }
    return {**body, **more}


def event_list(final: Event) -> list[Event]:
    """The events of a stream of this message: usage grows from `message_start` to `message_delta`."""
    begun = {**final, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events: list[Event] = [{"type": "message_start", "message": begun}, PING]
    for at, block in enumerate(final["content"]):
        if block["type"] == "text":
            words = block["text"]
            empty = {**block, "text": ""}
            deltas = [
                {"type": "text_delta", "text": piece} for piece in (words[: len(words) // 2], words[len(words) // 2 :])
            ]
        else:
            empty = {**block, "input": {}}
            given = compact(block["input"]).decode()
            deltas = [{"type": "input_json_delta", "partial_json": given}]
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": at})
    ended = {"stop_reason": final["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": final["usage"]["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]


def events(final: Event) -> list[bytes]:
    """The same as bytes."""
    return [named(event) for event in event_list(final)]


def error(
    status: int, kind: str, words: str = "no", request_id: str | None = "req_1", headers: Headers = ()
) -> list[Step]:
    """An error in Anthropic's shape."""
    body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": request_id}
    return [full(compact(body), status, headers=headers)]


class MessagesEngine:
    """Answers `pong` or, to a request with this tool and no tool's result, a call of the tool."""

    def __init__(self, tool: tuple[str, Event] | None = None) -> None:
        self._tool = tool

    def answer(self, call: Call) -> Script:
        """The steps for this call."""
        path, request = call.target.partition("?")[0], call.json()
        if path == "/v1/messages/count_tokens":
            return [full(compact({"input_tokens": 15}))]
        if path != "/v1/messages":
            return error(404, "not_found_error", "Not Found")
        final = message(request["model"], self._block(request))
        return stream(*events(final)) if request.get("stream") else [full(compact(final))]

    def _block(self, request: Event) -> Event:
        blocks = [block for one in request["messages"] if isinstance(one["content"], list) for block in one["content"]]
        offered = {tool.get("name") for tool in request.get("tools", ())}
        if self._tool is None or self._tool[0] not in offered or any(one["type"] == "tool_result" for one in blocks):
            return text("pong")
        return tool_use(*self._tool)
