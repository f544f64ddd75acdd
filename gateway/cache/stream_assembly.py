"""A complete answer assembled from the events of a stream.

Texts, logprobs and tool calls stay as the upstream sent them. A stream with members that are not known here
is not assembled, because the answer would lack them.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from gateway.core.endpoint import Endpoint
from gateway.core.tokens import TokenUsage
from gateway.wire.json.members import object_of
from gateway.wire.openai.finish_reason import is_final

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode

NULL: Final = b"null"
HEAD_FIELDS: Final = ("id", "created", "model", "system_fingerprint", "service_tier")
"""Members of every chunk, equal in all of them."""

_IGNORED: Final = ("object", "obfuscation")  # no content: the type, and padding
_OBJECT: Final = {True: b'"chat.completion"', False: b'"text_completion"'}
_MAX_CHOICES: Final = 128
_EMPTY: Final = (NULL, b"[]", b'""')
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_TOOL_CALL_FIELDS: Final = ("id", "type", "name")  # complete in one chunk


class Unsupported(Exception):
    """A chunk holds something that the complete answer could not carry."""


class AnswerAssembler:
    """Sans-IO: feed whole events; `answer` returns the answer if the stream was complete and understood."""

    def __init__(self, endpoint: Endpoint, limit: int) -> None:
        """`limit` in bytes: longer streams are not assembled."""
        self._chat = endpoint.conversation
        self._limit = limit
        self._size = 0
        self._head: dict[str, Raw] = {}
        self._choices: dict[int, _StreamedChoice] = {}
        self._usage: bytes | Raw = NULL
        self._done = False
        self._failed = False

    def feed(self, events: bytes) -> None:
        """Add events as they are sent to a client."""
        if self._failed:
            return
        self._size += len(events)
        try:
            for line in events.splitlines():
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        self._done = True
                    else:
                        self._add_chunk(_decode(data))
        except (msgspec.DecodeError, Unsupported, RecursionError):
            self._fail()
        if self._size > self._limit:
            self._fail()

    def answer(self, tokens: TokenUsage | None) -> bytes | None:
        """Return the answer; `tokens` is its usage if the stream does not carry it."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        all_present = 0 < len(choices) == max(self._choices, default=0) + 1
        # Only `[DONE]` shows that no further choice was to follow.
        if self._failed or not self._done or not all_present or not all(choice.finish for choice in choices):
            return None
        usage = self._usage
        if usage is NULL and tokens is not None:
            usage = _encode(_usage_of(tokens))
        fields: dict[str, bytes | Raw] = {}
        for name in ("id", "object", "created", "model"):
            value = _OBJECT[self._chat] if name == "object" else self._head.get(name)
            if value is not None:
                fields[name] = value
        rendered = [choice.rendered(index) for index, choice in enumerate(choices)]
        fields["choices"] = b"[%b]" % b",".join(rendered)
        if usage is not NULL:
            fields["usage"] = usage
        return object_of({**fields, **{k: value for k, value in self._head.items() if k not in fields}})

    def _fail(self) -> None:
        self._failed = True
        self._choices.clear()

    def _add_chunk(self, chunk: dict[str, Raw]) -> None:
        for name, value in chunk.items():
            if name == "choices":
                for choice in _decode_objects(value):
                    self._add_choice(choice)
            elif name == "usage":
                if bytes(value) != NULL:
                    self._usage = value.copy()
            elif name in HEAD_FIELDS:
                if bytes(value) != NULL:
                    self._head.setdefault(name, value.copy())
            elif name not in _IGNORED and bytes(value) != NULL:
                raise Unsupported(name)

    def _add_choice(self, choice: dict[str, Raw]) -> None:
        index = bytes(choice.pop("index", b"0"))
        if not index.isdigit() or len(index) > 3 or int(index) >= _MAX_CHOICES:
            raise Unsupported("index")
        streamed = self._choices.get(int(index))
        if streamed is None:
            streamed = self._choices[int(index)] = _StreamedChoice(chat=self._chat)
        streamed.add(choice)


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


class _StreamedChoice:
    """One choice: `add` the chunks' parts of it; `rendered` is its complete form."""

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._texts: dict[str, list[str]] = {}
        self._role = b'"assistant"'
        self._calls: dict[int, _ToolCall] = {}
        self._logprobs: dict[str, list[bytes]] = {}
        self._end: dict[str, bytes] = {}
        self.finish = ""
        """The finish reason, once it has arrived."""

    def add(self, members: dict[str, Raw]) -> None:
        """Add the members of one chunk, without `index`. Raises Unsupported or DecodeError."""
        for name, raw in members.items():
            value = bytes(raw)
            if name == "delta" and self._chat:
                if value != NULL:
                    self._delta(_decode(value))
            elif name == "text" and not self._chat:
                self._texts.setdefault(name, []).append(_decode_text(value))
            elif value == NULL:
                continue
            elif name == "logprobs":
                self._add_logprobs(_decode(value))
            elif name == "finish_reason":
                reason = _decode_text(value)
                self.finish = reason if is_final(reason) else self.finish
            elif name == "stop_reason":
                self._end[name] = value
            elif value not in _EMPTY:
                raise Unsupported(name)

    def rendered(self, index: int) -> bytes:
        """Return the complete choice as JSON."""
        logprobs = NULL
        if self._logprobs:
            logprobs = object_of({name: b"[%b]" % b",".join(parts) for name, parts in self._logprobs.items()})
        content = {"message": self._message()} if self._chat else {"text": self._text("text")}
        end = {"logprobs": logprobs, "finish_reason": _encode(self.finish), **self._end}
        return object_of({"index": b"%d" % index, **content, **end})

    def _message(self) -> bytes:
        message = {
            "role": self._role,
            "content": self._text("content") if "content" in self._texts else NULL,
        }
        for name in self._texts:
            message[name] = self._text(name)
        if self._calls:
            calls = [self._calls[at].rendered() for at in sorted(self._calls)]
            message["tool_calls"] = b"[%b]" % b",".join(calls)
            if not any(self._texts.get("content", ())):
                message["content"] = NULL
        return object_of(message)

    def _text(self, name: str) -> bytes:
        return _encode("".join(self._texts.get(name, ())))

    def _delta(self, delta: dict[str, Raw]) -> None:
        for name, raw in delta.items():
            value = bytes(raw)
            if value == NULL:
                continue
            if name in _TEXTS:
                self._texts.setdefault(name, []).append(_decode_text(value))
            elif name == "role":
                self._role = value
            elif name == "tool_calls":
                for call in _decode_objects(value):
                    self._tool_call(call)
            elif value not in _EMPTY:
                raise Unsupported(name)

    def _tool_call(self, call: dict[str, Raw]) -> None:
        index = bytes(call.pop("index", b""))
        if not index.isdigit() or len(index) > 3:
            raise Unsupported("index")
        tool_call = self._calls.get(int(index))
        if tool_call is None:
            tool_call = self._calls[int(index)] = _ToolCall()
        tool_call.add(call)

    def _add_logprobs(self, logprobs: dict[str, Raw]) -> None:
        for name, raw in logprobs.items():
            value = bytes(raw)
            if value != NULL:
                self._logprobs.setdefault(name, []).extend(map(bytes, _decode_list(value)))


class _ToolCall:
    def __init__(self) -> None:
        self._fields: dict[str, bytes] = {}
        self._function = b'""'
        self._arguments: list[str] = []

    def add(self, call: dict[str, Raw]) -> None:
        function: dict[str, Raw] = {}
        for name, raw in call.items():
            value = bytes(raw)
            if value in _EMPTY:
                continue
            if name == "function":
                function = _decode(value)
            elif name in _TOOL_CALL_FIELDS:
                self._fields[name] = value
            else:
                raise Unsupported(name)
        for name, raw in function.items():
            value = bytes(raw)
            if value in _EMPTY:
                continue
            if name == "arguments":
                self._arguments.append(_decode_text(value))
            elif name == "name":
                self._function = value
            else:
                raise Unsupported(name)

    def rendered(self) -> bytes:
        function = {"name": self._function, "arguments": _encode("".join(self._arguments))}
        return object_of({**self._fields, "function": object_of(function)})
