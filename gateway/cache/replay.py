"""A stream's chunks put together to the whole answer that they tell, and a whole answer told in chunks.

Texts, logprobs and calls of tools stay what the upstream sent. What is not known here is not guessed at: a
stream that carries it is not put together, for the whole answer would lack it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from gateway.cache.stream_assembly import StreamedChoice, Unknown
from gateway.core.call import CHAT, TokenUsage
from gateway.wire.json.members import object_of

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_choices = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_encode = msgspec.json.encode

_NULL: Final = b"null"
# Of every chunk, the same in all of them.
_HEAD: Final = ("id", "created", "model", "system_fingerprint", "service_tier")
# Without a meaning for the whole: padding, and what all chunks have.
_NOISE: Final = ("object", "obfuscation")
_OBJECTS: Final = {True: b'"chat.completion"', False: b'"text_completion"'}
_CHUNK: Final = {True: b'"chat.completion.chunk"', False: b'"text_completion"'}
_DONE: Final = b"data: [DONE]\n\n"
_MOST_CHOICES: Final = 128

AnswerFields = Mapping[str, bytes | Raw]


class AnswerAssembler:
    """Sans-IO: feed whole events; `whole` is the answer, if all of it has come and been understood."""

    def __init__(self, endpoint: str, limit: int) -> None:
        """`limit` in bytes: of longer streams nothing is kept."""
        self._chat = endpoint == CHAT
        self._limit = limit
        self._size = 0
        self._head: dict[str, Raw] = {}
        self._choices: dict[int, StreamedChoice] = {}
        self._usage: bytes | Raw = _NULL
        self._done = False
        self._lost = False

    def feed(self, events: bytes) -> None:
        """Some more of it, as it goes to a client."""
        if self._lost:
            return
        self._size += len(events)
        try:
            for line in events.splitlines():
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        self._done = True
                    else:
                        self._chunk(_decode(data))
        except (msgspec.DecodeError, Unknown, RecursionError):
            self._give_up()
        if self._size > self._limit:
            self._give_up()

    def whole(self, tokens: TokenUsage | None) -> bytes | None:
        """The answer; `tokens` is what it has used where the stream itself does not tell."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        all_there = 0 < len(choices) == max(self._choices, default=0) + 1
        # Without `[DONE]` a choice of which nothing has come yet would not be missed.
        if self._lost or not self._done or not all_there or not all(one.finish for one in choices):
            return None
        usage = self._usage
        if usage is _NULL and tokens is not None:
            usage = _encode(_usage_of(tokens))
        fields: dict[str, bytes | Raw] = {}
        for name in ("id", "object", "created", "model"):
            value = _OBJECTS[self._chat] if name == "object" else self._head.get(name)
            if value is not None:
                fields[name] = value
        fields["choices"] = b"[%b]" % b",".join(one.rendered(index) for index, one in enumerate(choices))
        if usage is not _NULL:
            fields["usage"] = usage
        rest = {name: value for name, value in self._head.items() if name not in fields}
        return object_of({**fields, **rest})

    def _give_up(self) -> None:
        self._lost = True
        self._choices.clear()

    def _chunk(self, chunk: dict[str, Raw]) -> None:
        for name, value in chunk.items():
            if name == "choices":
                for choice in _decode_choices(value):
                    self._choice(choice)
            elif name == "usage":
                if bytes(value) != _NULL:
                    self._usage = value.copy()
            elif name in _HEAD:
                if bytes(value) != _NULL:
                    self._head.setdefault(name, value.copy())
            elif name not in _NOISE and bytes(value) != _NULL:
                raise Unknown(name)

    def _choice(self, choice: dict[str, Raw]) -> None:
        index = bytes(choice.pop("index", b"0"))
        if not index.isdigit() or len(index) > 3 or int(index) >= _MOST_CHOICES:
            raise Unknown("index")
        known = self._choices.get(int(index))
        if known is None:
            known = self._choices[int(index)] = StreamedChoice(chat=self._chat)
        known.add(choice)


def chunks(body: bytes, endpoint: str, *, usage: bool) -> bytes:
    """The events of the stream that tells this whole answer; with `usage` its last chunk tells that."""
    fields = _decode(body)
    chat = endpoint == CHAT
    head: dict[str, bytes | Raw] = {}
    rest: dict[str, bytes | Raw] = {}
    for name, value in fields.items():
        if name == "object":
            head[name] = _CHUNK[chat]
        elif name in _HEAD:
            head[name] = value
        elif name not in ("choices", "usage") and bytes(value) != _NULL:
            rest[name] = value  # of the whole answer: once is enough
    events = []
    for choice in _decode_choices(fields["choices"]):
        for part in _told(choice, chat=chat):
            events.append(_event({**head, "choices": b"[%b]" % part, **rest}))
            rest = {}
    if usage and "usage" in fields:
        events.append(_event({**head, "choices": b"[]", "usage": fields["usage"]}))
    return b"".join([*events, _DONE])


def _told(choice: Mapping[str, Raw], *, chat: bool) -> Iterator[bytes]:
    """One choice in chunks: who speaks, what is said, how it ends."""
    index = choice.get("index", Raw(b"0"))
    said: dict[str, bytes | Raw] = {}
    ended: dict[str, bytes | Raw] = {}
    for name, value in choice.items():
        if name in ("logprobs", "text"):
            said[name] = value
        elif name not in ("index", "message"):
            ended[name] = value
    unfinished: dict[str, bytes | Raw] = {"finish_reason": _NULL}
    if not chat:
        yield object_of({"index": index, **said, **unfinished})
        yield object_of({"index": index, "text": b'""', "logprobs": _NULL, **ended})
        return
    message = _decode(choice["message"])
    role: bytes | Raw = message.pop("role", Raw(b'"assistant"'))
    silent = bytes(message.get("content", _NULL)) == _NULL
    opening = object_of({"role": role, "content": _NULL if silent else b'""'})
    yield object_of({"index": index, "delta": opening, "logprobs": _NULL, **unfinished})
    delta: dict[str, bytes | Raw] = {
        name: _numbered(value) if name == "tool_calls" else value
        for name, value in message.items()
        if bytes(value) not in (_NULL, b"[]", b'""')
    }
    if delta or bytes(said.get("logprobs", _NULL)) != _NULL:
        yield object_of({"index": index, "delta": object_of(delta), **said, **unfinished})
    yield object_of({"index": index, "delta": b"{}", "logprobs": _NULL, **ended})


def _numbered(calls: Raw) -> bytes:
    """Calls of tools as a stream has them: each with its place."""
    numbered = [
        object_of({"index": b"%d" % at, **{name: value for name, value in call.items() if name != "index"}})
        for at, call in enumerate(_decode_choices(calls))
    ]
    return b"[%b]" % b",".join(numbered)


def _event(fields: AnswerFields) -> bytes:
    return b"data: %b\n\n" % object_of(fields)


def _usage_of(tokens: TokenUsage) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }
    if tokens.cached_input:
        usage["prompt_tokens_details"] = {"cached_tokens": tokens.cached_input}
    if tokens.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": tokens.reasoning}
    return usage
