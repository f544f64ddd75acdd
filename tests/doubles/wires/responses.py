"""An upstream of OpenAI's Responses API: whole and streamed answers, stored ones, background mode."""

import itertools
import re
from typing import Any, Final

from doubles import replies
from doubles.call import Call
from doubles.script import Script, compact, full, stream
from doubles.wires.streams import Event, named

USAGE: Final[Event] = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 17,
}
ERROR: Final[Event] = {
    "type": "error",
    "code": "server_error",
    "message": "the engine has failed",
    "param": None,
    "sequence_number": 3,
}
_PATH: Final = re.compile(r"/v1/responses(?:/(?P<id>[^/]+)(?P<rest>/.*)?)?$")


def message(text: str, status: str = "completed") -> Event:
    """An output item with a text."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if text else []
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content}


def function_call(name: str, arguments: str) -> Event:
    """An output item that calls a tool."""
    call: Event = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"}
    return {**call, "name": name, "arguments": arguments}


def response(model: str, *output: Event, status: str = "completed", **more: Any) -> Event:
    """A response object; it has usage once it has ended."""
    body: Event = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": model,
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }
    ended = {} if status in ("in_progress", "queued") else {"usage": USAGE}
    return {**body, **ended, **more}


def event_list(final: Event) -> list[Event]:
    """The events of a stream that ends with this response."""
    events: list[Event] = []

    def add(kind: str, **members: Any) -> None:
        events.append({"type": kind, "sequence_number": len(events), **members})

    begun = {**final, "status": "in_progress", "output": [], "incomplete_details": None, "error": None}
    begun.pop("usage", None)
    add("response.created", response=begun)
    add("response.in_progress", response=begun)
    for at, item in enumerate(final["output"]):
        place = {"item_id": item["id"], "output_index": at}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            inside = {**place, "content_index": 0}
            add("response.output_item.added", output_index=at, item=message("", "in_progress"))
            add("response.content_part.added", **inside, part=part)
            for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                add("response.output_text.delta", **inside, delta=piece, logprobs=[])
            add("response.output_text.done", **inside, text=text, logprobs=[])
            add("response.content_part.done", **inside, part={**part, "text": text})
        else:
            empty = {**item, "arguments": "", "status": "in_progress"}
            add("response.output_item.added", output_index=at, item=empty)
            add("response.function_call_arguments.delta", **place, delta=item["arguments"])
            ended = {"name": item["name"], "arguments": item["arguments"]}
            add("response.function_call_arguments.done", **place, **ended)
        add("response.output_item.done", output_index=at, item=item)
    add(f"response.{final['status']}", response=final)
    return events


def events(final: Event) -> list[bytes]:
    """The same as bytes."""
    return [named(event) for event in event_list(final)]


class ResponsesEngine:
    """Answers `pong` or, to a request with tools and no tool's output, a call of `tool`; keeps what it made.

    A response is stored unless `store` is false. With `background` it stays queued until it is asked for again.
    """

    def __init__(self, tool: tuple[str, str] | None = None, prefix: str = "resp") -> None:
        self.stored: dict[str, Event] = {}
        self.inputs: dict[str, list[Event]] = {}
        self._tool = tool
        self._ids = (f"{prefix}_{number}" for number in itertools.count(1))

    def answer(self, call: Call) -> Script:
        """The steps for this call."""
        match = _PATH.fullmatch(call.target.partition("?")[0])
        if match is None:
            return replies.error(404, "Not Found")
        if match["id"] is None:
            return self._create(call.json())
        if match["id"] == "input_tokens":
            return [full(compact({"object": "response.input_tokens", "input_tokens": 12}))]
        if match["id"] == "compact":
            kept: Event = {"id": "resp_c", "object": "response.compaction", "created_at": 1, "usage": USAGE}
            return [full(compact({**kept, "output": []}))]
        return self._stored(call.method, match["id"], match["rest"] or "")

    def _create(self, request: Event) -> Script:
        previous = request.get("previous_response_id")
        if previous is not None and previous not in self.stored:
            return self._unknown(previous)
        item = message("pong")
        given = request["input"] if isinstance(request["input"], list) else []
        if self._tool is not None and request.get("tools") and not any("output" in one for one in given):
            item = function_call(*self._tool)
        made = response(request["model"], item, id=next(self._ids), previous_response_id=previous)
        if request.get("store", True):
            self.stored[made["id"]] = made
            self.inputs[made["id"]] = given
        if request.get("background"):
            waiting = {**made, "status": "queued", "output": []}
            waiting.pop("usage")
            return [full(compact(waiting))]
        return stream(*events(made)) if request.get("stream") else [full(compact(made))]

    def _stored(self, method: str, name: str, rest: str) -> Script:
        if name not in self.stored:
            return self._unknown(name)
        if method == "DELETE":
            del self.stored[name]
            return [full(compact({"id": name, "object": "response", "deleted": True}))]
        if rest == "/input_items":
            text = {"id": "msg_in", "type": "message", "role": "user", "status": "completed"}
            items = [{**text, "content": [{"type": "input_text", "text": "ping"}]}]
            page = {"object": "list", "has_more": False, "first_id": "msg_in", "last_id": "msg_in"}
            return [full(compact({**page, "data": items}))]
        if rest == "/cancel":
            self.stored[name] = {**self.stored[name], "status": "cancelled"}
        return [full(compact(self.stored[name]))]

    def _unknown(self, name: str) -> Script:
        return replies.error(404, f"Response with id '{name}' not found.", kind="invalid_request_error")
