"""Decompresses answers of upstreams that ignore `accept-encoding: identity`. Bounded in size.

The bytes decide, not the label: a plain body may be called gzip, `identity`, `none` or `utf-8`, and a
compressed one may have no label at all.
"""

import zlib
from collections.abc import Iterator
from typing import Final

# zlib's window bits: 31 reads a gzip wrapper, 15 a zlib wrapper, -15 a stream without one.
_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15
_GZIP: Final = b"\x1f\x8b"
_MOST_LAYERS: Final = 2
_PIECE: Final = 64 * 1024
_PLAIN: Final = (b"{", b"[", b'"', b"<", b"\xef\xbb\xbf")
"""Beginnings of bodies that are not compressed, whatever their label."""
_NEUTRAL: Final = frozenset(["", "identity", "none", "null", "utf-8", "utf8", "binary", "8bit", "7bit", "plain"])
_KNOWN: Final = frozenset(["gzip", "x-gzip", "deflate", "zlib"])


class DecodedTooLarge(Exception):
    """The plain bytes are more than the limit."""


def labels(coding: str) -> frozenset[str]:
    """The codings in a Content-Encoding header, without those that mean nothing."""
    return frozenset(name.strip().lower() for name in coding.split(",")) - _NEUTRAL


def window_bits(head: bytes, names: frozenset[str]) -> int | None:
    """How zlib reads data that begins with these bytes and has these labels; None for plain data."""
    if head.startswith(_GZIP):
        return _GZIP_BITS
    if not names & _KNOWN or head.lstrip(b" \t\r\n").startswith(_PLAIN):
        return None
    if len(head) > 1 and head[0] & 0x0F == 8 and (head[0] << 8 | head[1]) % 31 == 0:
        return _ZLIB_BITS
    return _RAW_BITS if "deflate" in names else None


def decoded(body: bytes, coding: str, limit: int) -> bytes | None:
    """The plain bytes; None for an unknown coding or damaged data.

    Raises DecodedTooLarge if they are more than `limit`.
    """
    names = labels(coding)
    for _ in range(_MOST_LAYERS if "," in coding else 1):
        bits = window_bits(body, names)
        if bits is None:
            break
        decoder = zlib.decompressobj(bits)
        try:
            plain = decoder.decompress(body, limit + 1)
        except zlib.error:
            return None
        if len(plain) > limit:
            raise DecodedTooLarge
        if not decoder.eof or decoder.unused_data:
            return None
        body, names = plain, names - _KNOWN
    return None if names and not body.lstrip(b" \t\r\n").startswith(_PLAIN) else body


class Inflater:
    """Decompresses a stream piece by piece. `ended`: nothing is missing at its end."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._decoder = zlib.decompressobj(bits)

    @property
    def ended(self) -> bool:
        """Whether the compressed data is complete."""
        return self._decoder.eof

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The plain bytes, in pieces of bounded size. Raises zlib.error for damaged data."""
        plain = b""
        while piece or len(plain) == _PIECE:
            if self._decoder.eof:
                self._decoder = zlib.decompressobj(self._bits)
            plain = self._decoder.decompress(piece, _PIECE)
            if plain:
                yield plain
            piece = self._decoder.unconsumed_tail or self._decoder.unused_data
