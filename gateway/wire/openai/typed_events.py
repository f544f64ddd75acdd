"""Reads a stream of typed events in passing: responses, messages, images, speech and transcripts.

Events pass as they came, those of unknown types too, except for the value of `model` in the object that describes
the answer. What can only harm clients is dropped: events without a JSON object as data, `id:` and `retry:` fields,
and everything after the last event. The first error event is not passed on but held for the caller.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gateway.core.stream import StreamReader
from gateway.core.tokens import TokenUsage
from gateway.wire.json import lenient, members, splice
from gateway.wire.openai import sse, usage
from gateway.wire.openai.chunks import InvalidChunk
from gateway.wire.openai.output_estimate import SAMPLE_EVERY, OutputCounted, OutputEstimate
from gateway.wire.openai.peek import NO_ERROR, NULL

_PING: Final = "ping"
"""The type of an event that only keeps a connection open."""


class Description(msgspec.Struct, gc=False):
    """What is read of the object that describes an answer, or a change of it: a response, a message, its delta."""

    id: Any = None
    model: Any = None
    usage: msgspec.Raw = NULL
    status: Any = None
    incomplete_details: Any = None
    stop_reason: Any = None


class EventTypes(NamedTuple):
    """What the types of a wire's events mean.

    `output`: a piece of the answer. `last`: one of these ends a complete stream. `failed`: so does one of these, and
    the answer has failed. `describing`: the member that holds the description of the answer. `finish` reads
    OpenAI's `finish_reason` from it; an empty text is none. `marker`: `[DONE]` ends a complete stream too.
    """

    output: frozenset[str]
    last: frozenset[str]
    failed: frozenset[str] = frozenset()
    describing: Mapping[str, str] = {}
    finish: Callable[[Description], str] = lambda description: ""
    marker: bool = False


class _OutputEvent(msgspec.Struct, gc=False):
    type: Any = None
    error: msgspec.Raw = NULL


class _Event(_OutputEvent, gc=False):
    usage: msgspec.Raw = NULL
    response: msgspec.Raw = NULL
    message: msgspec.Raw = NULL
    delta: msgspec.Raw = NULL


_decode_output = msgspec.json.Decoder(_OutputEvent).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_description = msgspec.json.Decoder(Description).decode


class TypedEventReader(OutputCounted):
    """A sans-IO filter: feed pieces of bytes, get the bytes to pass on; attributes summarise the stream.

    `begun` is set by the first event that is neither comment, ping nor error, `done` by the last event of a complete
    stream, `failed` if that event tells of a failure, `error` by an error event; nothing passes after `done` or
    `error`.
    """

    __slots__ = (
        "_events",
        "_free",
        "_name",
        "_prefix",
        "_prefix_type",
        "_reported",
        "_reported_at",
        "_types",
        "answer_id",
        "begun",
        "done",
        "error",
        "failed",
        "finish",
    )

    def __init__(self, types: EventTypes, encoded_name: bytes, *, free: bool = False) -> None:
        """`encoded_name` is the model that was asked for as a JSON string, quotes included.

        `free`: the stream shows an answer that is paid for; its usage is nothing, whatever it reports.
        """
        self._types = types
        self._name = encoded_name
        self._events = sse.EventSplitter()
        self._output = OutputEstimate()
        # The last output event up to its JSON, and its type: most events of a stream begin the same.
        self._prefix = b""
        self._prefix_type = ""
        self.answer_id = ""
        self.begun = False
        self.done = False
        self.failed = False
        self.error: bytes | None = None
        self.finish = ""
        self._reported: TokenUsage | None = TokenUsage() if free else None
        self._reported_at = 0  # output events before the last report
        self._free = free

    def complete(self, choices: int) -> bool:
        """Whether the last event has arrived."""
        return self.done

    @property
    def tokens(self) -> TokenUsage | None:
        """The usage that the upstream reported; output that it sent since then is estimated."""
        reported = self._reported
        if reported is None or self._free or self._output.chunks <= self._reported_at:
            return reported
        return reported._replace(output=max(reported.output, self.generated))

    def feed(self, piece: bytes) -> bytes:
        """The bytes to pass on for this piece, possibly none. Raises EventTooLarge or InvalidChunk."""
        prefix = self._prefix
        if prefix and piece.startswith(prefix) and piece.endswith(b"}\n\n") and self._is_similar(piece, len(prefix)):
            return piece
        events = self._events.feed(piece)
        if len(events) == 1:
            return self._pass(events[0])
        return b"".join(map(self._pass, events))

    def end(self) -> bytes:
        """The upstream has ended: the remaining bytes to pass on."""
        return b"".join(map(self._pass, self._events.end()))

    def _is_similar(self, piece: bytes, start: int) -> bool:
        """The fast path of nearly every event: one line of data, of the same type as before."""
        output, last = self._output, len(piece) - 2
        if self._events.rest or output.chunks % SAMPLE_EVERY == 0 or piece.find(b"\n", start) < last or b"\r" in piece:
            return False
        try:
            event = _decode_output(piece[start:last])
        except (msgspec.DecodeError, RecursionError):
            return False
        if event.type != self._prefix_type or event.error is not NULL:
            return False
        output.chunks += 1
        output.size += last - start
        return True

    def _pass(self, event: bytes) -> bytes:
        if self.done or self.error is not None:
            return b""
        kept, data, name, dropped = _fields(event)
        if data == b"[DONE]" and self._types.marker:
            self.begun = self.done = True
            return event
        if not data.startswith(b"{"):  # nothing that a client could parse
            comments = [line for line in kept if line.startswith(b":")]
            return b"\n".join([*comments, b"", b""]) if comments else b""
        passed = self._read(data, name)
        if passed is data and not dropped:
            if self._prefix_type and event.endswith(b"data: " + data + b"\n\n"):
                self._prefix = event[: -len(data) - 2]
            return event
        # JSON strings contain no line end, so one line is equivalent.
        return b"\n".join([*kept, b"data: " + passed.replace(b"\n", b" "), b"", b""]) if passed else b""

    def _read(self, data: bytes, name: str) -> bytes:
        """The JSON of one event with the public model name; empty for an error."""
        event = _decoded(data)
        kind = event.type if isinstance(event.type, str) else name
        self._prefix, self._prefix_type = b"", ""
        if kind == "error" or (event.error is not NULL and bytes(event.error) not in NO_ERROR):
            self.error = data
            return b""
        self.begun = self.begun or kind != _PING
        types = self._types
        if kind in types.output:
            self._output.add(data, 1, finishing=False)
            self._prefix_type = kind
            return data
        self._add_usage(event.usage)
        self.done = kind in types.last or kind in types.failed
        self.failed = kind in types.failed
        member = types.describing.get(kind)
        return data if member is None else self._describe(data, member, getattr(event, member))

    def _describe(self, data: bytes, member: str, value: msgspec.Raw) -> bytes:
        """The JSON with the public model name in this member, after reading what it says."""
        try:
            description = _decode_description(value)
        except (msgspec.DecodeError, RecursionError):
            return data
        if isinstance(description.id, str):
            self.answer_id = self.answer_id or description.id
        self._add_usage(description.usage)
        self.finish = self._types.finish(description) or self.finish
        if not isinstance(description.model, str):
            return data
        place = next(one for one in members.members(data) if one.called(member))
        text = data[place.value : place.end]
        return data[: place.value] + splice.replace(text, splice.model_spans(text), self._name) + data[place.end :]

    def _add_usage(self, block: msgspec.Raw) -> None:
        """Take over reported counts. A wire that reports several times reports totals, which only grow."""
        if self._free or block is NULL or (reported := usage.tokens(block)) is None:
            return
        self._reported = reported if self._reported is None else usage.grown(self._reported, reported)
        self._reported_at = self._output.chunks


def typed_reader(types: EventTypes, *, free: bool = False) -> Callable[[str, bytes, bool], StreamReader]:
    """What makes the readers of an endpoint whose events have these types."""
    return lambda public_model, encoded_name, strip_usage: TypedEventReader(types, encoded_name, free=free)


def _fields(event: bytes) -> tuple[list[bytes], bytes, str, bool]:
    """The comment and `event` lines, the data, the event's name, and whether there were other fields."""
    kept, data, name, dropped = [], [], "", False
    for line in event.splitlines():
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif line and field in (b"", b"event"):
            kept.append(line)
            name = value.strip().decode("utf-8", "replace") if field else name
        elif line:
            dropped = True
    return kept, b"\n".join(data).strip(), name, dropped


def _decoded(data: bytes) -> _Event:
    try:
        return _decode_event(data)
    except RecursionError:
        raise InvalidChunk from None
    except msgspec.DecodeError:
        copy = lenient.readable(data)
    if copy is None:
        raise InvalidChunk
    return _decoded(copy)
