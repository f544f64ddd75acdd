"""Read a stream of chat or completion chunks while it passes, and put the public model name into it.

Events pass whole and unchanged but for the value of `model`. Dropped are what can only hurt clients: events
whose data is no JSON object (keep-alives of some vendors), `id:` and `retry:` fields, and whatever follows
`[DONE]`. Comments pass. The first error event is not passed on; it is kept for the caller to judge.
"""

import re

import msgspec

from gateway.call import Tokens
from gateway.wire import openai, splice, sse

# Lines of an event, the first without its end. `id` and `retry` are of no use to any OpenAI client, and make
# some of them choke on the comments that follow.
_DATA = re.compile(rb"(?:\A|(?<=[\r\n]))data(?::[ ]?([^\r\n]*))?(?=[\r\n])")
_DATA_LINE = re.compile(rb"(?<=[\r\n])data(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_UNWANTED = re.compile(rb"(?:\A|(?<=[\r\n]))(?:id|retry)(?::[^\r\n]*)?(?:\r\n|\r|\n)")
_COMMENT = re.compile(rb"(?:\A|(?<=[\r\n])):[^\r\n]*(?:\r\n|\r|\n)")


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
        "_public",
        "_seen",
        "_swapped",
        "begun",
        "complete",
        "done",
        "error",
        "tokens",
    )

    def __init__(self, public_model: str, encoded_name: bytes) -> None:
        """`encoded_name` is `public_model` as a JSON string, quotes included."""
        self._public = public_model
        self._name = encoded_name
        self._events = sse.EventSplitter()
        self._seen = b""  # the beginning of the last spliced event, up to the end of its model value ...
        self._swapped = b""  # ... and what it was replaced with: most streams repeat it in every event
        self.done = False
        self.begun = False
        self.complete = False
        self.error: bytes | None = None
        self.tokens: Tokens | None = None

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
        # More than one line, or a second `model`, in whichever spelling.
        if event.find(b"\n", known) < len(event) - 2 or b"\r" in event or b"\\u006" in event:
            return None
        if event.find(b'"model"', known) >= 0:
            return None
        try:
            chunk = openai.decode_answer(event[6:-2])
        except (msgspec.DecodeError, RecursionError):
            return None
        if chunk.error is not openai.NULL or chunk.object == "error":
            return None
        choices = chunk.choices
        if (
            chunk.usage is not openai.NULL
            or not choices
            or choices[-1].finish_reason is not None
            or choices[1:]
        ):
            self._note(chunk)
        return self._swapped + event[known:]

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
        if passed == data or not passed:
            return event if passed else b""
        if len(lines) > 1:  # a value may hold no line end, so one line says the same
            rest = _DATA_LINE.sub(b"", event[lines[0].end() :])
            return event[: lines[0].start()] + b"data: " + passed.replace(b"\n", b" ") + rest
        return event[: lines[0].start(1)] + passed + event[lines[0].end(1) :]

    def _chunk(self, data: bytes) -> bytes:
        """The JSON of one chunk, with the public name in it; nothing for an error."""
        chunk = openai.peek_answer(data)
        if chunk is None:
            raise InvalidChunk
        if openai.is_error(chunk):
            self.error = data
            self._seen = b""
            return b""
        self.begun = True
        self._note(chunk)
        if not isinstance(chunk.model, str):
            return data
        spans = splice.model_spans(data)
        if len(spans) == 1:
            start, end = spans[0]
            self._seen = b"data: " + data[:end]
            self._swapped = b"data: " + data[:start] + self._name
        return splice.replace(data, spans, self._name)

    def _note(self, chunk: openai.Answer) -> None:
        for choice in chunk.choices or ():
            if choice.finish_reason is not None:
                self.complete = True
        if chunk.usage is not openai.NULL:
            self.tokens = openai.tokens(chunk.usage) or self.tokens
