"""A complete answer as the events of a stream.

Texts, logprobs and tool calls stay as the upstream sent them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from gateway.cache.stream_assembly import HEAD_FIELDS, NULL
from gateway.core.endpoint import Endpoint
from gateway.wire.json.members import object_of

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[dict[str, Raw]]).decode

_OBJECT: Final = {True: b'"chat.completion.chunk"', False: b'"text_completion"'}
_DONE: Final = b"data: [DONE]\n\n"


def chunks(body: bytes, endpoint: Endpoint, *, usage: bool) -> bytes:
    """Return the events of a stream with this answer; with `usage` the last chunk carries it.

    Raises KeyError or msgspec.DecodeError for an answer that has no stream form.
    """
    fields = _decode(body)
    chat = endpoint.conversation
    head: dict[str, bytes | Raw] = {}
    extras: dict[str, bytes | Raw] = {}
    for name, value in fields.items():
        if name == "object":
            head[name] = _OBJECT[chat]
        elif name in HEAD_FIELDS:
            head[name] = value
        elif name not in ("choices", "usage") and bytes(value) != NULL:
            extras[name] = value  # about the whole answer: sent once, with the first chunk
    events = []
    for choice in _decode_list(fields["choices"]):
        for part in _choice_chunks(choice, chat=chat):
            events.append(_event({**head, "choices": b"[%b]" % part, **extras}))
            extras = {}
    if usage and "usage" in fields:
        events.append(_event({**head, "choices": b"[]", "usage": fields["usage"]}))
    return b"".join([*events, _DONE])


def _choice_chunks(choice: Mapping[str, Raw], *, chat: bool) -> Iterator[bytes]:
    """Yield one choice in chunks: the role, the content, the finish reason."""
    index = choice.get("index", Raw(b"0"))
    content: dict[str, bytes | Raw] = {}
    end: dict[str, bytes | Raw] = {}
    for name, value in choice.items():
        if name in ("logprobs", "text"):
            content[name] = value
        elif name not in ("index", "message"):
            end[name] = value
    unfinished: dict[str, bytes | Raw] = {"finish_reason": NULL}
    if not chat:
        yield object_of({"index": index, **content, **unfinished})
        yield object_of({"index": index, "text": b'""', "logprobs": NULL, **end})
        return
    message = _decode(choice["message"])
    role: bytes | Raw = message.pop("role", Raw(b'"assistant"'))
    silent = bytes(message.get("content", NULL)) == NULL
    opening = object_of({"role": role, "content": NULL if silent else b'""'})
    yield object_of({"index": index, "delta": opening, "logprobs": NULL, **unfinished})
    delta: dict[str, bytes | Raw] = {
        name: _numbered(value) if name == "tool_calls" else value
        for name, value in message.items()
        if bytes(value) not in (NULL, b"[]", b'""')
    }
    if delta or bytes(content.get("logprobs", NULL)) != NULL:
        yield object_of({"index": index, "delta": object_of(delta), **content, **unfinished})
    yield object_of({"index": index, "delta": b"{}", "logprobs": NULL, **end})


def _numbered(calls: Raw) -> bytes:
    """Return tool calls in stream form: each with its index."""
    numbered = [
        object_of({"index": b"%d" % at, **{name: value for name, value in call.items() if name != "index"}})
        for at, call in enumerate(_decode_list(calls))
    ]
    return b"[%b]" % b",".join(numbered)


def _event(fields: Mapping[str, bytes | Raw]) -> bytes:
    return b"data: %b\n\n" % object_of(fields)
