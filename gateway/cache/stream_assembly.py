"""One choice of a stream, gathered chunk by chunk."""

from typing import Final

import msgspec
from msgspec import Raw

from gateway.wire.json.members import object_of

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_calls = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode

_NULL: Final = b"null"
_EMPTY: Final = (_NULL, b"[]", b'""')
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_NAMES: Final = ("id", "type", "name")  # of a call of a tool: whole in one chunk


class Unknown(Exception):
    """Something that a whole answer would not tell."""


class StreamedChoice:
    """`add` what each chunk has of it; `rendered` is the choice of the whole answer."""

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._texts: dict[str, list[str]] = {}
        self._role = b'"assistant"'
        self._calls: dict[int, _ToolCall] = {}
        self._logprobs: dict[str, list[bytes]] = {}
        self._ended: dict[str, bytes] = {}
        self.finish = ""
        """How it ended, where it has."""

    def add(self, members: dict[str, Raw]) -> None:
        """A chunk's members, less `index`. Raises Unknown, or DecodeError."""
        for name, raw in members.items():
            value = bytes(raw)
            if name == "delta" and self._chat:
                if value != _NULL:
                    self._delta(_decode(value))
            elif name == "text" and not self._chat:
                self._texts.setdefault(name, []).append(_decode_text(value))
            elif value == _NULL:
                continue
            elif name == "logprobs":
                self._add_logprobs(_decode(value))
            elif name == "finish_reason":
                self.finish = _decode_text(value)
            elif name == "stop_reason":
                self._ended[name] = value
            elif value not in _EMPTY:
                raise Unknown(name)

    def rendered(self, index: int) -> bytes:
        """As JSON."""
        logprobs = _NULL
        if self._logprobs:
            logprobs = object_of({name: b"[%b]" % b",".join(parts) for name, parts in self._logprobs.items()})
        said: dict[str, bytes] = {"message": self._message()}
        if not self._chat:
            said = {"text": self._text("text")}
        end = {"logprobs": logprobs, "finish_reason": _encode(self.finish), **self._ended}
        return object_of({"index": b"%d" % index, **said, **end})

    def _message(self) -> bytes:
        message = {
            "role": self._role,
            "content": self._text("content") if "content" in self._texts else _NULL,
        }
        for name in self._texts:
            message[name] = self._text(name)
        if self._calls:
            calls = [self._calls[at].rendered() for at in sorted(self._calls)]
            message["tool_calls"] = b"[%b]" % b",".join(calls)
            if not any(self._texts.get("content", ())):
                message["content"] = _NULL
        return object_of(message)

    def _text(self, name: str) -> bytes:
        return _encode("".join(self._texts.get(name, ())))

    def _delta(self, delta: dict[str, Raw]) -> None:
        for name, raw in delta.items():
            value = bytes(raw)
            if value == _NULL:
                continue
            if name in _TEXTS:
                self._texts.setdefault(name, []).append(_decode_text(value))
            elif name == "role":
                self._role = value
            elif name == "tool_calls":
                for call in _decode_calls(value):
                    self._tool_call(call)
            elif value not in _EMPTY:
                raise Unknown(name)

    def _tool_call(self, call: dict[str, Raw]) -> None:
        index = bytes(call.pop("index", b""))
        if not index.isdigit() or len(index) > 3:
            raise Unknown("index")
        known = self._calls.get(int(index))
        if known is None:
            known = self._calls[int(index)] = _ToolCall()
        known.add(call)

    def _add_logprobs(self, logprobs: dict[str, Raw]) -> None:
        for name, raw in logprobs.items():
            value = bytes(raw)
            if value != _NULL:
                self._logprobs.setdefault(name, []).extend(bytes(one) for one in _decode_list(value))


class _ToolCall:
    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}
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
            elif name in _NAMES:
                self._names[name] = value
            else:
                raise Unknown(name)
        for name, raw in function.items():
            value = bytes(raw)
            if value in _EMPTY:
                continue
            if name == "arguments":
                self._arguments.append(_decode_text(value))
            elif name == "name":
                self._function = value
            else:
                raise Unknown(name)

    def rendered(self) -> bytes:
        function = {"name": self._function, "arguments": _encode("".join(self._arguments))}
        return object_of({**self._names, "function": object_of(function)})
