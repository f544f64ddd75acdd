"""How many tokens a stream has generated, where its upstream does not tell: cheap first, exact second.

Most engines send one token a chunk, so chunks are counted. Some send many in one; these show by the length of
their text, which is what chunks have beyond the JSON around it. That JSON is measured in few chunks only, and
the bytes of all of them are added up.
"""

import re

_TEXTS = re.compile(
    rb'"(?:content|reasoning|reasoning_content|refusal|arguments|text)"[ ]?:[ ]?"([^"\\]*(?:\\.[^"\\]*)*)"',
    re.DOTALL,
)
EVERY = 32
"""So many chunks share one look at where their text is."""

_ONE_TOKEN = 8
"""Bytes of text that a chunk of one token may have: English has 4 to 5 a token, Korean in UTF-8 about 6."""

_PER_TOKEN = 4
"""Bytes of text a token, for what is beyond that."""


class OutputEstimate:
    """Counts the chunks of one stream that have choices.

    A reader in a hurry adds a chunk of one choice to `chunks` and its bytes to `size` itself, and calls `add`
    only where `chunks` is a multiple of `EVERY`.
    """

    __slots__ = ("_around", "_beside", "_looks", "_opened", "chunks", "size")

    def __init__(self) -> None:
        self.chunks = 0
        self.size = 0
        self._beside = 0  # choices beyond the first of a chunk
        self._looks = 0  # chunks that were measured ...
        self._around = 0  # ... and the bytes in them that are no text
        self._opened = False

    def add(self, data: bytes, choices: int, *, finishing: bool) -> None:
        """One chunk's JSON. The first one and those that finish count only with text in them: most of them
        bring but a role or a reason."""
        opening, self._opened = not self._opened, True
        due = self.chunks % EVERY == 0
        if opening or finishing or due:
            texts = _TEXTS.findall(data)
            if (opening or finishing) and not any(texts):
                return
            if due:
                self._looks += 1
                self._around += len(data) - sum(map(_length, texts))
        self.chunks += 1
        self.size += len(data)
        self._beside += choices - 1

    @property
    def tokens(self) -> int:
        """Tokens so far, of all choices."""
        if self.chunks == 0:
            return 0
        counted = self.chunks + self._beside
        beyond = max(0, self._text() - counted * _ONE_TOKEN)
        return counted + -(-beyond // _PER_TOKEN)

    @property
    def least(self) -> int:
        """Tokens that there are at least, near enough: neither many chunks with little text make them, nor
        much text in few chunks, which may be long words."""
        if self.chunks == 0:
            return 0
        return min(self.chunks + self._beside, self._text() // _PER_TOKEN)

    def _text(self) -> int:
        return self.size - self.chunks * self._around // self._looks


def _length(text: bytes) -> int:
    """Bytes in UTF-8, near enough: an escaped character is mostly one of three."""
    return len(text) - 3 * text.count(b"\\u")
