"""Bodies of calls, kept only where the config asks for it: bounded, in memory, masked before anybody sees them."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from gateway.core.units import MASK
from gateway.wire.http.redaction import mask_keys

LONGEST_BODY: Final = 256 * 1024
"""Bytes kept of a request's body, and of its answer."""


class Bodies(Struct, eq=False):
    """A request as its client sent it, and the answer as the client got it; longer ones are cut."""

    request: bytes
    pieces: list[bytes]
    answered: int = 0
    """Bytes of the answer, those cut off included."""
    request_cut: bool = False

    @classmethod
    def of(cls, request: bytes) -> "Bodies":
        """The bodies of a call that has no answer yet."""
        if len(request) <= LONGEST_BODY:
            return cls(request, [])
        return cls(request[:LONGEST_BODY], [], request_cut=True)

    def answer(self, piece: bytes) -> None:
        """Keep a piece of the answer, as far as there is room."""
        room = LONGEST_BODY - self.answered
        self.answered += len(piece)
        if room > 0:
            self.pieces.append(piece if len(piece) <= room else piece[:room])

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.request) + min(self.answered, LONGEST_BODY) + 128 * len(self.pieces)


class BodyMask:
    """Masks the config's own secrets, and whatever looks like a key."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = sorted({text for text in secrets if len(text) >= 4}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def __call__(self, text: str) -> str:
        """`text` with `***` in place of each secret."""
        return mask_keys(self._secrets.sub(MASK, text))
