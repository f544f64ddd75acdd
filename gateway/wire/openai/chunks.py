"""Reads a stream of chat or completion chunks in passing and puts the public model name into it.

Events pass unchanged except for the value of `model`. What can only harm clients is dropped: events without a
JSON object as data (some vendors' keep-alives), `id:` and `retry:` fields, and everything after `[DONE]`.
Comments pass. The first error event is not passed on but held for the caller. Usage that the gateway asked
for, and the client did not, is read and removed: the whole chunk if it has no choices, else the member.
"""

import re
from typing import Any, Final

import msgspec

from gateway.core.stream import StreamError
from gateway.core.tokens import TokenUsage
from gateway.wire.json import lenient, members, splice
from gateway.wire.openai import finish_reason, peek, sse, usage
from gateway.wire.openai.output_estimate import SAMPLE_EVERY, OutputCounted, OutputEstimate
from gateway.wire.openai.peek import NULL

# Lines of an event, the first without its end. No OpenAI client uses `id` or `retry`, and some fail on a
# comment after them.
_DATA = re.compile(rb"(?:\A|(?<=[\r\n]))data(?::[ ]?([^\r\n]*))?(?=[\r\n])")
_DATA_LINE = re.compile(rb"(?<=[\r\n])data(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_UNWANTED = re.compile(rb"(?:\A|(?<=[\r\n]))(?:id|retry)(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_COMMENT = re.compile(rb"(?:\A|(?<=[\r\n])):[^\r\n]*(?:\r\n|\r|\n)")
# What `members.cuts` would cut.
_NO_USAGE = re.compile(rb',[ ]?"usage"[ ]?:[ ]?null')


class _IndexedChoice(msgspec.Struct, gc=False):
    index: Any = None
    finish_reason: Any = None


class _IndexedChoices(msgspec.Struct, gc=False):
    choices: list[_IndexedChoice] = []


_decode_indexes = msgspec.json.Decoder(_IndexedChoices).decode
_NONE_ENDED: Final = frozenset[int]()


class InvalidChunk(StreamError):
    """An event whose data begins like a JSON object but is not one."""

    def __init__(self) -> None:
        super().__init__("a malformed event")


class ChunkReader(OutputCounted):
    """A sans-IO filter: feed pieces of bytes, get the bytes to pass on; attributes summarise the stream.

    `begun` is set by the first event that is neither comment nor error, `done` by `[DONE]`, `error` by an
    error event or a choice that failed; nothing passes after `done` or `error`.
    """

    failed = False  # a chunk that tells of a failure is an error
    answer_id = ""  # nobody asks for it again

    __slots__ = (
        "_ended",
        "_events",
        "_found",
        "_name",
        "_prefix",
        "_renamed_prefix",
        "_strip",
        "begun",
        "done",
        "error",
        "finish",
        "tokens",
    )

    def __init__(self, public_model: str, encoded_name: bytes, strip_usage: bool = False) -> None:
        """`encoded_name` is `public_model` as a JSON string, quotes included."""
        self._name = encoded_name
        self._strip = strip_usage
        self._events = sse.EventSplitter()
        self._output = OutputEstimate()
        # The last edited event up to the end of its model value, before and after the edit. Most streams
        # repeat it in every event.
        self._prefix = b""
        self._renamed_prefix = b""
        self.done = False
        self.begun = False
        self._found = False  # `tokens` was found outside of `usage`
        self._ended = _NONE_ENDED  # indexes of the choices with a finish_reason
        self.error: bytes | None = None
        self.finish = ""  # the first finish_reason
        self.tokens: TokenUsage | None = None

    def complete(self, choices: int) -> bool:
        """Whether nothing is missing: `[DONE]` has arrived, or a finish_reason for each of the choices."""
        return self.done or len(self._ended) >= choices

    def feed(self, piece: bytes) -> bytes:
        """The bytes to pass on for this piece, possibly none. Raises EventTooLarge or InvalidChunk."""
        prefix = self._prefix
        if prefix and piece.startswith(prefix) and piece.endswith(b"}\n\n") and not self._events.rest:
            passed = self._pass_similar(piece, prefix)
            if passed is not None:
                return passed
        events = self._events.feed(piece)
        if len(events) == 1:
            return self._pass(events[0])
        return b"".join(map(self._pass, events))

    def _pass_similar(self, event: bytes, prefix: bytes) -> bytes | None:
        """The fast path of nearly every event: one line with the same prefix. None: use the slow path."""
        start = len(prefix)
        last = len(event) - 2
        # More than one line, or a second `model` in any spelling.
        if event.find(b"\n", start) < last or b"\r" in event or b"\\u006" in event:
            return None
        if event.find(b'"model"', start) >= 0:
            return None
        data = event[6:last]
        try:
            chunk = peek.decode_answer(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        if chunk.error is not NULL or chunk.object == "error":
            return None
        choices, output = chunk.choices, self._output
        counted = output.chunks
        if (
            chunk.usage is not NULL
            or choices is None
            or len(choices) != 1
            or choices[0].finish_reason is not None
            or choices[0].error is not NULL
            or counted % SAMPLE_EVERY == 0
        ):
            tail = self._strip_null_usage(event[start:], chunk)
            if tail is None or peek.failed_choice(chunk):
                return None
            self._record(chunk, data)
            return self._renamed_prefix + tail
        output.chunks = counted + 1
        output.size += last - 6
        return self._renamed_prefix + event[start:]

    def _strip_null_usage(self, tail: bytes, chunk: peek.WholeAnswer) -> bytes | None:
        """The rest of an event after the prefix, without a null usage. None: use the slow path."""
        if not self._strip or chunk.usage is NULL:
            return tail
        parts = _NO_USAGE.split(tail)
        # A plainly spelled `usage` that occurs once and is followed by a colon is the chunk's member.
        if len(parts) != 2 or tail.count(b'"usage"') > 1 or b'"usage"' in self._prefix or b"\\u007" in tail:
            return None
        return parts[0] + parts[1]

    def end(self) -> bytes:
        """The upstream has ended: the remaining bytes to pass on."""
        return b"".join(map(self._pass, self._events.end()))

    def _pass(self, event: bytes) -> bytes:
        if self.done or self.error is not None:
            return b""
        if event[:7] == b"data: {" and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
            data = self._chunk(event[6:-2])
            return b"data: " + data + b"\n\n" if data else b""
        return self._unusual(_UNWANTED.sub(b"", event))

    def _unusual(self, event: bytes) -> bytes:
        """Pass an event that is not exactly one `data: {...}` line."""
        lines = list(_DATA.finditer(event))
        data = b"\n".join(line[1] or b"" for line in lines).strip()
        if data == b"[DONE]":
            self.begun = self.done = True
            self._prefix = b""
            return event
        if not data.startswith(b"{"):  # nothing that a client could parse
            comments = b"".join(_COMMENT.findall(event))
            if not comments:
                return b""
            only_comments = not _COMMENT.sub(b"", event).strip(b"\r\n")
            return event if only_comments else comments + b"\n"
        passed = self._chunk(data)
        if passed == data:
            return event
        if not passed:
            comments = b"" if self.error is not None else b"".join(_COMMENT.findall(event))
            return comments and comments + b"\n"
        if len(lines) > 1:  # JSON strings contain no line end, so one line is equivalent
            rest = _DATA_LINE.sub(b"", event[lines[0].end() :])
            return event[: lines[0].start()] + b"data: " + passed.replace(b"\n", b" ") + rest
        return event[: lines[0].start(1)] + passed + event[lines[0].end(1) :]

    def _chunk(self, data: bytes) -> bytes:
        """The JSON of one chunk with the public model name; empty for an error or if nothing is left."""
        chunk = peek.peek_answer(data)
        if chunk is None:
            raise InvalidChunk
        if peek.is_error(chunk) or peek.failed_choice(chunk):
            self.error = data
            self._prefix = b""
            if chunk.usage is not NULL:
                self.tokens = usage.tokens(chunk.usage) or self.tokens
            return b""
        self.begun = True
        self._record(chunk, data)
        edits: list[members.Edit] = []
        if self._strip and chunk.usage is not NULL:
            if not chunk.choices and bytes(chunk.usage) != b"null":
                return b""
            edits = members.cuts(data, "usage")
        if isinstance(chunk.model, str):
            spans = splice.model_spans(data)
            edits += [(start, end, self._name) for start, end in spans if end > start]
            if len(spans) == 1:
                self._learn_prefix(data, spans[0][1], edits)
        return b"".join(members.edited(data, edits)) if edits else data

    def _learn_prefix(self, data: bytes, end: int, edits: list[members.Edit]) -> None:
        """Remember this chunk up to `end`: the next one is likely to begin the same."""
        before = [edit for edit in edits if edit[1] <= end]
        self._prefix = b"data: " + data[:end]
        self._renamed_prefix = b"".join([b"data: ", *members.edited(data[:end], before)])

    def _find_usage(self, chunk: peek.WholeAnswer, data: bytes) -> None:
        """Look for usage outside of `usage` in a last chunk of a choice or of the stream."""
        if self.tokens is not None and not self._found:
            return  # reported by `usage` in an earlier chunk
        if chunk.usage is not NULL and bytes(chunk.usage) != b"null":
            return
        found = usage.elsewhere(data)
        if found is not None:
            # With several choices each has an output of its own.
            several = self.tokens is not None and len(self._ended) > 1 and bool(chunk.choices)
            self.tokens = usage.added(self.tokens, found) if several and self.tokens is not None else found
            self._found = True

    def _record(self, chunk: peek.WholeAnswer, data: bytes) -> None:
        choices = chunk.choices
        if choices:
            finishing = False
            for choice in choices:
                if choice.finish_reason is not None and finish_reason.is_final(choice.finish_reason):
                    finishing = True
                    self.finish = self.finish or str(choice.finish_reason)
            if finishing:
                self._ended |= _ended_choices(data)
                self._find_usage(chunk, data)
            self._output.add(data, len(choices), finishing=finishing)
        else:
            self._find_usage(chunk, data)
        if chunk.usage is not NULL:
            reported = usage.tokens(chunk.usage)
            if reported is not None:
                self.tokens, self._found = reported, False


def _ended_choices(data: bytes) -> set[int]:
    """The indexes of the choices that end with this chunk; a useless index is the place in the list."""
    try:
        choices = _decode_indexes(data).choices
    except msgspec.DecodeError:
        choices = lenient.decode(_decode_indexes, data).choices
    return {
        choice.index if type(choice.index) is int else place
        for place, choice in enumerate(choices)
        if finish_reason.is_final(choice.finish_reason)
    }
