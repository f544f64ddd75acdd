"""Ready-made answers of a well-behaved OpenAI-compatible upstream, and its errors."""

import base64
import struct
from typing import TYPE_CHECKING, Any

from doubles.script import DONE, Headers, Script, Step, compact, delta, full, piece, stop, stream, usage

if TYPE_CHECKING:
    from doubles.call import Call

VECTOR = (0.25, -0.5, 1.0)


def chat(text: str = "pong", model: str = "up-small", headers: Headers = ()) -> list[Step]:
    """A chat completion with one choice."""
    message = {"role": "assistant", "content": text}
    return [
        full(
            compact(
                {
                    "id": "c1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": model,
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
                }
            ),
            headers=headers,
        )
    ]


def completion(text: str = "pong", model: str = "up-small") -> list[Step]:
    """A legacy completion with one choice."""
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    return [full(compact({"id": "t1", "object": "text_completion", "created": 1, "model": model, "choices": [choice]}))]


def chat_events(*texts: str, model: str = "up-small", with_usage: bool = False) -> list[bytes]:
    """The events of a normal stream: role, contents, stop, usage if requested, done."""
    return [
        delta({"role": "assistant", "content": ""}, model=model),
        *(piece(text, model) for text in texts),
        stop(model),
        *([usage(5, 2, model)] if with_usage else []),
        DONE,
    ]


def chat_stream(*texts: str, model: str = "up-small", with_usage: bool = False) -> list[Step]:
    """A normal stream, one write per event."""
    return stream(*chat_events(*texts, model=model, with_usage=with_usage))


def embeddings(inputs: int = 1, encoding: str | None = None, model: str = "up-embed") -> list[Step]:
    """One vector per input, in the requested encoding."""
    floats: Any = list(VECTOR)
    packed = base64.b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
    vector = packed if encoding == "base64" else floats
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(inputs)]
    counts = {"prompt_tokens": inputs, "total_tokens": inputs}
    return [full(compact({"object": "list", "model": model, "data": data, "usage": counts}))]


def models(*names: str) -> list[Step]:
    """The list of models."""
    data = [{"id": name, "object": "model", "created": 1, "owned_by": "engine"} for name in names]
    return [full(compact({"object": "list", "data": data}))]


def error(
    status: int,
    message: str = "no",
    *,
    kind: str = "server_error",
    code: str | int | None = None,
    headers: Headers = (),
) -> list[Step]:
    """An error in OpenAI's shape."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return [full(compact(body), status, headers=headers)]


def ordinary(call: "Call") -> Script:
    """What a healthy engine answers to this call."""
    path = call.target.partition("?")[0]
    if path.endswith("/models"):
        return models("up-small", "up-embed")
    request = call.json()
    if path.endswith("/embeddings"):
        inputs = request["input"]
        count = len(inputs) if isinstance(inputs, list) else 1
        return embeddings(count, request.get("encoding_format"), request["model"])
    if request.get("stream"):
        wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        return chat_stream("po", "ng", model=request["model"], with_usage=wants_usage)
    if path.endswith("/chat/completions"):
        return chat(model=request["model"])
    return completion(model=request["model"])
