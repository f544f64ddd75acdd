"""Read a stream of chat or completion chunks while it passes, and put the public model name into it.

Events pass whole and unchanged but for the value of `model`. Dropped are what can only hurt clients: events
whose data is no JSON object (keep-alives of some vendors), `id:` and `retry:` fields, and whatever follows
`[DONE]`. Comments pass. The first error event is not passed on; it is kept for the caller to judge. Usage for
which the gateway has asked, not the client, is read and taken out: the whole chunk where it has no choices,
else the member.
"""

import re

import msgspec

from gateway.core.call import TokenUsage
from gateway.wire.json import members, splice
from gateway.wire.openai import peek as openai
from gateway.wire.openai import sse, usage
from gateway.wire.openai.output_estimate import EVERY, OutputEstimate

# Lines of an event, the first without its end. `id` and `retry` are of no use to any OpenAI client, and make
# some of them choke on the comments that follow.
_DATA = re.compile(rb"(?:\A|(?<=[\r\n]))data(?::[ ]?([^\r\n]*))?(?=[\r\n])")
_DATA_LINE = re.compile(rb"(?<=[\r\n])data(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_UNWANTED = re.compile(rb"(?:\A|(?<=[\r\n]))(?:id|retry)(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_COMMENT = re.compile(rb"(?:\A|(?<=[\r\n])):[^\r\n]*(?:\r\n|\r|\n)")
# As `members.cuts` would cut it.
_NO_USAGE = re.compile(rb',[ ]?"usage"[ ]?:[ ]?null')


class InvalidChunk(Exception):
    """An event's data begins like a JSON object and is not one."""


class ChunkReader:
    """Sans-IO: feed pieces of bytes, get the bytes to pass on; the attributes tell what has been seen.

    `begun` is set by the first event that is neither comment nor error, `complete` by a finish_reason or
    `[DONE]`, `done` by the latter alone, `error` by an error event; after those two nothing is passed on.
    """

    __slots__ = (
        "_events",
        "_name",
        "_output",
        "_seen",
        "_strip",
        "_swapped",
        "begun",
        "complete",
        "done",
        "error",
        "finish",
        "tokens",
    )

    def __init__(self, public_model: str, encoded_name: bytes, *, strip_usage: bool = False) -> None:
        """`encoded_name` is `public_model` as a JSON string, quotes included."""
        self._name = encoded_name
        self._strip = strip_usage
        self._events = sse.EventSplitter()
        self._output = OutputEstimate()
        self._seen = b""  # the beginning of the last spliced event, up to the end of its model value ...
        self._swapped = b""  # ... and what it was replaced with: most streams repeat it in every event
        self.done = False
        self.begun = False
        self.complete = False
        self.error: bytes | None = None
        self.finish = ""  # the first finish_reason
        self.tokens: TokenUsage | None = None

    @property
    def generated(self) -> int:
        """Output tokens so far, estimated: what to charge where the stream has not told `tokens`."""
        return self._output.tokens

    @property
    def generated_at_least(self) -> int:
        """The same, estimated from below."""
        return self._output.least

    def feed(self, piece: bytes) -> bytes:
        """Bytes to pass on for this piece, maybe none. Raises EventTooLarge or InvalidChunk."""
        seen = self._seen
        if seen and piece.startswith(seen) and piece.endswith(b"}\n\n") and not self._events.rest:
            passed = self._alike(piece, seen)
            if passed is not None:
                return passed
        events = self._events.feed(piece)
        if len(events) == 1:
            return self._pass(events[0])
        return b"".join(map(self._pass, events))

    def _alike(self, event: bytes, seen: bytes) -> bytes | None:
        """Nearly every event: one line, begun like the one before it. None when it needs a closer look."""
        known = len(seen)
        last = len(event) - 2
        # More than one line, or a second `model`, in whichever spelling.
        if event.find(b"\n", known) < last or b"\r" in event or b"\\u006" in event:
            return None
        if event.find(b'"model"', known) >= 0:
            return None
        data = event[6:last]
        try:
            chunk = openai.decode_answer(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        if chunk.error is not openai.NULL or chunk.object == "error":
            return None
        choices, output = chunk.choices, self._output
        counted = output.chunks
        if (
            chunk.usage is not openai.NULL
            or not choices
            or choices[-1].finish_reason is not None
            or choices[1:]
            or counted % EVERY == 0
        ):
            tail = self._tail(event[known:], chunk)
            if tail is None:
                return None
            self._note(chunk, data)
            return self._swapped + tail
        output.chunks = counted + 1
        output.size += last - 6
        return self._swapped + event[known:]

    def _tail(self, tail: bytes, chunk: openai.WholeAnswer) -> bytes | None:
        """What follows the known beginning, less a usage that is null; None if it needs a closer look."""
        if not self._strip or chunk.usage is openai.NULL:
            return tail
        around = _NO_USAGE.split(tail)
        # A `usage` that is plainly spelled, stands once and is followed by a colon is the chunk's own.
        if len(around) != 2 or tail.count(b'"usage"') > 1 or b'"usage"' in self._seen or b"\\u007" in tail:
            return None
        return around[0] + around[1]

    def end(self) -> bytes:
        """The upstream has ended: what was still held back and is whole."""
        return b"".join(map(self._pass, self._events.end()))

    def _pass(self, event: bytes) -> bytes:
        if self.done or self.error is not None:
            return b""
        if event[:7] == b"data: {" and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
            data = self._chunk(event[6:-2])
            return b"data: " + data + b"\n\n" if data else b""
        return self._unusual(_UNWANTED.sub(b"", event))

    def _unusual(self, event: bytes) -> bytes:
        """Any event that is not exactly one `data: {...}` line."""
        lines = list(_DATA.finditer(event))
        data = b"\n".join(line[1] or b"" for line in lines).strip()
        if data == b"[DONE]":
            self.begun = self.complete = self.done = True
            self._seen = b""
            return event
        if not data.startswith(b"{"):  # nothing in it for a client to parse
            comments = b"".join(_COMMENT.findall(event))
            if not comments:
                return b""
            alone = not _COMMENT.sub(b"", event).strip(b"\r\n")
            return event if alone else comments + b"\n"
        passed = self._chunk(data)
        if passed == data:
            return event
        if not passed:
            comments = b"" if self.error is not None else b"".join(_COMMENT.findall(event))
            return comments and comments + b"\n"
        if len(lines) > 1:  # a value may hold no line end, so one line says the same
            rest = _DATA_LINE.sub(b"", event[lines[0].end() :])
            return event[: lines[0].start()] + b"data: " + passed.replace(b"\n", b" ") + rest
        return event[: lines[0].start(1)] + passed + event[lines[0].end(1) :]

    def _chunk(self, data: bytes) -> bytes:
        """The JSON of one chunk, with the public name in it; nothing for an error or if nothing is left."""
        chunk = openai.peek_answer(data)
        if chunk is None:
            raise InvalidChunk
        if openai.is_error(chunk):
            self.error = data
            self._seen = b""
            if chunk.usage is not openai.NULL:
                self.tokens = usage.tokens(chunk.usage) or self.tokens
            return b""
        self.begun = True
        self._note(chunk, data)
        edits: list[members.Edit] = []
        if self._strip and chunk.usage is not openai.NULL:
            if not chunk.choices and bytes(chunk.usage) != b"null":
                return b""
            edits = members.cuts(data, "usage")
        if isinstance(chunk.model, str):
            spans = splice.model_spans(data)
            edits += [(start, end, self._name) for start, end in spans if end > start]
            if len(spans) == 1:
                self._learn(data, spans[0][1], edits)
        return b"".join(members.edited(data, edits)) if edits else data

    def _learn(self, data: bytes, known: int, edits: list[members.Edit]) -> None:
        """The next chunk is likely to begin as this one does, up to `known`."""
        before = [edit for edit in edits if edit[1] <= known]
        self._seen = b"data: " + data[:known]
        self._swapped = b"".join([b"data: ", *members.edited(data[:known], before)])

    def _note(self, chunk: openai.WholeAnswer, data: bytes) -> None:
        choices = chunk.choices
        if choices:
            finishing = False
            for choice in choices:
                if choice.finish_reason is not None:
                    self.complete = finishing = True
                    self.finish = self.finish or str(choice.finish_reason)
            self._output.add(data, len(choices), finishing=finishing)
        if chunk.usage is not openai.NULL:
            self.tokens = usage.tokens(chunk.usage) or self.tokens
