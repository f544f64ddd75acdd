"""A kept call as a conversation: system, user, tools, thoughts and answer, each masked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.inspector.bodies import LONGEST_BODY, Bodies, BodyMask

_MOST_TURNS: Final = 500
_LONGEST_TURN: Final = 64 * 1024  # characters
Part = Literal["text", "tool_call", "thought", "image", "audio", "file"]


class Turn(Struct, frozen=True):
    """One part of one message. `role` is the message's own, `tools` for the tools on offer."""

    role: str
    part: Part
    text: str


class Conversation(Struct, frozen=True):
    """The request as turns and as masked JSON text, and the answer as turns.

    `cut`: the request or the answer was longer than what is kept.
    """

    turns: list[Turn]
    answer: list[Turn]
    request: str
    cut: bool


def conversation(bodies: Bodies, mask: BodyMask) -> Conversation:
    """Read what is kept of a call."""
    answer = b"".join(bodies.pieces)
    request_text = bodies.request.decode(errors="replace")
    asked = _decoded(bodies.request)
    turns = _asked(asked) if isinstance(asked, dict) else [Turn("", "text", request_text)]
    return Conversation(
        [_masked(turn, mask) for turn in turns][:_MOST_TURNS],
        [_masked(turn, mask) for turn in _answered(answer)][:_MOST_TURNS],
        mask(request_text),
        bodies.request_cut or bodies.answered > LONGEST_BODY,
    )


def _masked(turn: Turn, mask: BodyMask) -> Turn:
    return Turn(mask(turn.role[:64]), turn.part, mask(turn.text)[:_LONGEST_TURN])


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _asked(body: Mapping[str, Any]) -> list[Turn]:
    turns = []
    for name in ("system", "instructions"):
        turns += list(_content("system", body.get(name)))
    if tools := body.get("tools"):
        turns.append(Turn("tools", "text", _json(tools)))
    messages = body.get("messages", body.get("input", body.get("prompt")))
    for message in messages if isinstance(messages, list) else [messages]:
        turns += list(_message(message, "user"))
    return turns


def _answered(answer: bytes) -> list[Turn]:
    """The turns of a whole answer, or of a stream's events put together."""
    whole = _decoded(answer)
    if isinstance(whole, dict):
        return list(_whole(whole))
    parts: dict[tuple[int, Part], list[str]] = {}
    for line in answer.split(b"\n"):
        event = _decoded(line[5:]) if line.startswith(b"data:") else None
        if isinstance(event, dict):
            for number, part, text in _delta(event):
                parts.setdefault((number, part), []).append(text)
    joined = [Turn("assistant", part, "".join(texts)) for (_, part), texts in parts.items()]
    if not joined and answer and not answer.startswith((b"data:", b"event:", b":")):
        return [Turn("", "text", answer.decode(errors="replace"))]
    return joined


def _whole(answer: Mapping[str, Any]) -> Iterator[Turn]:
    for choice in _items(answer.get("choices")):
        if isinstance(choice, dict):
            message = choice.get("message", choice.get("text"))
            yield from _message(message, "assistant")
    for name in ("content", "output"):  # messages, responses
        for item in _items(answer.get(name)):
            yield from _message(item, "assistant")
    if (error := answer.get("error")) is not None:
        yield Turn("error", "text", _json(error))
    if isinstance(data := answer.get("data"), list):
        yield Turn("assistant", "text", f"{len(data)} items")


def _delta(event: Mapping[str, Any]) -> Iterator[tuple[int, Part, str]]:
    """The pieces of text in one event: of which choice, of which kind."""
    for choice in _items(event.get("choices")):
        if not isinstance(choice, dict):
            continue
        number = choice.get("index", 0)
        number = number if isinstance(number, int) else 0
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        for name in ("reasoning_content", "reasoning"):
            if isinstance(text := delta.get(name), str) and text:
                yield number, "thought", text
                break
        if isinstance(text := delta.get("content"), str) and text:
            yield number, "text", text
        for call in _items(delta.get("tool_calls")):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield number, "tool_call", f"{function.get('name') or ''}{function.get('arguments') or ''}"
    delta = event.get("delta")
    if isinstance(delta, str):  # responses
        yield 0, "thought" if "reasoning" in str(event.get("type")) else "text", delta
    elif isinstance(delta, dict):  # messages
        for name, part in _DELTAS:
            if isinstance(text := delta.get(name), str):
                yield 0, part, text
    if (error := event.get("error")) is not None:
        yield 0, "text", _json(error)


_DELTAS: Final[Sequence[tuple[str, Part]]] = (("thinking", "thought"), ("text", "text"), ("partial_json", "tool_call"))
_PARTS: Final[Mapping[str, Part]] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "audio",
    "file": "file",
    "document": "file",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "tool_result": "text",
    "thinking": "thought",
    "reasoning": "thought",
}


def _message(message: object, role: str) -> Iterator[Turn]:
    if not isinstance(message, dict):
        yield from _content(role, message)
        return
    role = str(message.get("role") or role)
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str) and text:
            yield Turn(role, "thought", text)
            break
    if "content" in message:
        yield from _content(role, message["content"])
    elif "role" not in message:
        yield from _content(role, [message])
    for call in _items(message.get("tool_calls")):
        yield Turn(role, "tool_call", _json(call))


def _content(role: str, content: object) -> Iterator[Turn]:
    """A text, or a list of parts."""
    if content is None:
        return
    if isinstance(content, str):
        yield Turn(role, "text", content)
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield Turn(role, "text", part)
        elif isinstance(part, dict):
            kind = _PARTS.get(str(part.get("type")), "text")
            text = part.get("text", part.get("thinking"))
            yield Turn(role, kind, text if isinstance(text, str) else _json(part))
        else:
            yield Turn(role, "text", _json(part))


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode(errors="replace")
