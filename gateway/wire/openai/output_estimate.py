"""Estimates the tokens of a stream whose upstream does not report usage; cheap rather than exact.

Most engines send one token per chunk, so chunks are counted. Engines that send several per chunk show by the
length of the text: the bytes of a chunk beyond the JSON around it. That JSON is measured in a sample of the
chunks, and the bytes of all chunks are summed.
"""

import re

_TEXTS = re.compile(
    rb'"(content|reasoning|reasoning_content|reasoning_text|thinking|thought|refusal|arguments|text|delta|partial_json)"'
    rb'[ ]?:[ ]?"([^"\\]*(?:\\.[^"\\]*)*)"',
    re.DOTALL,
)
_THOUGHTS = frozenset((b"reasoning", b"reasoning_content", b"reasoning_text", b"thinking", b"thought"))
# Around thoughts that are a `text`: OpenRouter's `reasoning_details`, Mistral's `"type": "thinking"`.
_AROUND_THOUGHTS = re.compile(rb'"(?:reasoning\w*|thinking\w*|thoughts?)"(?![ ]?:[ ]?(?:null|""|\[\]))')
SAMPLE_EVERY = 32
"""One chunk in this many is measured."""

_ONE_TOKEN = 8
"""Bytes of text in a chunk that still count as one token: English has 4 to 5, Korean in UTF-8 about 6."""

_PER_TOKEN = 4
"""Bytes of text per token beyond that."""


class OutputEstimate:
    """Counts the chunks of one stream that have choices.

    On the hot path a reader adds a chunk of one choice to `chunks` and its bytes to `size` itself, and calls
    `add` only when `chunks` is a multiple of `SAMPLE_EVERY`.
    """

    __slots__ = (
        "_extra_choices",
        "_opened",
        "_overhead",
        "_samples",
        "_texts",
        "_thoughts",
        "chunks",
        "size",
    )

    def __init__(self) -> None:
        self.chunks = 0
        self.size = 0
        self._extra_choices = 0  # beyond the first of each chunk
        self._samples = 0  # measured chunks
        self._overhead = 0  # bytes in them that are not text
        self._texts = 0  # bytes of text in them
        self._thoughts = 0  # of these, of reasoning
        self._opened = False

    def add(self, data: bytes, choices: int, *, finishing: bool) -> None:
        """Count one chunk's JSON. The first chunk and finishing ones count only if they have text: most carry
        only a role or a finish_reason.
        """
        opening, self._opened = not self._opened, True
        due = self.chunks % SAMPLE_EVERY == 0
        if opening or finishing or due:
            texts = [(name, text) for name, text in _TEXTS.findall(data) if text]
            if (opening or finishing) and not texts:
                return
            if due:
                length = sum(_length(text) for _, text in texts)
                self._samples += 1
                self._overhead += len(data) - length
                self._texts += length
                self._thoughts += _thoughts(data, texts)
        self.chunks += 1
        self.size += len(data)
        self._extra_choices += choices - 1

    @property
    def tokens(self) -> int:
        """Estimated tokens so far, over all choices."""
        if self.chunks == 0:
            return 0
        counted = self.chunks + self._extra_choices
        beyond = max(0, self._text() - counted * _ONE_TOKEN)
        return counted + -(-beyond // _PER_TOKEN)

    @property
    def least(self) -> int:
        """A lower estimate: neither many chunks with little text nor much text in few chunks raises it."""
        if self.chunks == 0:
            return 0
        return min(self.chunks + self._extra_choices, self._text() // _PER_TOKEN)

    @property
    def least_thoughts(self) -> int:
        """The part of `least` that is reasoning, by its share of the text in the measured chunks."""
        return self.least * self._thoughts // self._texts if self._thoughts else 0

    def _text(self) -> int:
        """Estimated bytes of text in all chunks."""
        return self.size - self.chunks * self._overhead // self._samples


def _thoughts(data: bytes, texts: list[tuple[bytes, bytes]]) -> int:
    """Bytes of reasoning among the texts of a chunk."""
    around = _AROUND_THOUGHTS.search(data) is not None
    return sum(_length(text) for name, text in texts if name in _THOUGHTS or (around and name == b"text"))


def _length(text: bytes) -> int:
    """Approximate length in UTF-8: most escaped characters have three bytes."""
    return len(text) - 3 * text.count(b"\\u")


class OutputCounted:
    """What a reader of a stream says of its estimated output."""

    __slots__ = ("_output",)

    _output: OutputEstimate

    @property
    def generated(self) -> int:
        """Estimated output tokens so far, to charge if the stream does not report `tokens`."""
        return self._output.tokens

    @property
    def generated_at_least(self) -> int:
        """A lower estimate of the output tokens so far."""
        return self._output.least

    @property
    def thoughts_at_least(self) -> int:
        """The part of `generated_at_least` that is reasoning."""
        return self._output.least_thoughts
