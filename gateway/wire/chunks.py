"""Read a stream of chat or completion chunks while it passes, and put the public model name into it.

Events pass whole and unchanged but for the value of `model`. Dropped are what can only hurt clients: events
whose data is no JSON object (keep-alives of some vendors), `id:` and `retry:` fields, and whatever follows
`[DONE]`. Comments pass. The first error event is not passed on; it is kept for the caller to judge.
"""

from gateway.wire import openai, splice, sse


class InvalidChunk(Exception):
    """An event's data begins like a JSON object and is not one."""


class ChunkReader:
    """Sans-IO: feed pieces of bytes, get the bytes to pass on; the attributes tell what has been seen.

    `begun` is set by the first event that is neither comment nor error, `complete` by a finish_reason or
    `[DONE]`, `error` by an error event, after which nothing is passed on any more.
    """

    __slots__ = (
        "_done",
        "_events",
        "_name",
        "_public",
        "_seen",
        "_swapped",
        "begun",
        "complete",
        "error",
        "usage",
    )

    def __init__(self, public_model: str, encoded_name: bytes) -> None:
        """`encoded_name` is `public_model` as a JSON string, quotes included."""
        self._public = public_model
        self._name = encoded_name
        self._events = sse.EventSplitter()
        self._seen = b""  # the beginning of the last spliced event, up to the end of its model value ...
        self._swapped = b""  # ... and what it was replaced with: most streams repeat it in every event
        self._done = False
        self.begun = False
        self.complete = False
        self.error: bytes | None = None
        self.usage: openai.Usage | None = None

    def feed(self, piece: bytes) -> bytes:
        """Bytes to pass on for this piece, maybe none. Raises EventTooLarge or InvalidChunk."""
        events = self._events.feed(piece)
        if len(events) == 1:
            return self._pass(events[0])
        return b"".join(map(self._pass, events))

    def end(self) -> bytes:
        """The upstream has ended: what was still held back and is whole."""
        return b"".join(map(self._pass, self._events.end()))

    def _pass(self, event: bytes) -> bytes:
        if self._done or self.error is not None:
            return b""
        if event[:7] == b"data: {" and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
            return self._chunk(event, event[6:-2])
        return self._unusual(event)

    def _unusual(self, event: bytes) -> bytes:
        """Any event that is not exactly one `data: {...}` line."""
        fields = [line.partition(b":") for line in sse.lines(event)]
        data = b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data").strip()
        if data == b"[DONE]":
            self.begun = self.complete = self._done = True
            return event
        kept = [name + colon + value for name, colon, value in fields if name not in (b"id", b"retry")]
        if data.startswith(b"{"):
            if len(kept) < len(fields):
                event = b"\n".join(kept) + b"\n\n"
            return self._chunk(event, data)
        if any(name for name, _, _ in fields):  # not only comments, and nothing in it for a client to parse
            comments = [line for line in kept if line.startswith(b":")]
            return b"\n".join(comments) + b"\n\n" if comments else b""
        return event

    def _chunk(self, event: bytes, data: bytes) -> bytes:
        chunk = openai.peek_answer(data)
        if chunk is None:
            raise InvalidChunk
        if openai.is_error(chunk):
            self.error = data
            return b""
        self.begun = True
        if chunk.choices and not self.complete:
            for choice in chunk.choices:
                self.complete = self.complete or choice.finish_reason is not None
        if chunk.usage is not None:
            self.usage = chunk.usage
        if not isinstance(chunk.model, str) or chunk.model == self._public:
            return event
        return self._spliced(event, data)

    def _spliced(self, event: bytes, data: bytes) -> bytes:
        known = len(self._seen)
        if known and event.startswith(self._seen) and event.find(b'"model"', known) < 0:
            return self._swapped + event[known:]
        offset = event.find(data)
        if offset < 0:  # data over several lines: the JSON has line ends where values may not, so join them
            event, offset = b"data: " + data.replace(b"\n", b" ") + b"\n\n", 6
            data = event[6:-2]
        spans = splice.model_spans(data)
        spliced = event[:offset] + splice.replace(data, spans, self._name) + event[offset + len(data) :]
        if len(spans) == 1:
            start, end = spans[0]
            self._seen = event[: offset + end]
            self._swapped = event[: offset + start] + self._name
        return spliced
