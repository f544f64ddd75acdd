"""Undo the compression that some upstreams apply although `identity` was asked for. Bounded."""

import zlib
from typing import Final

# Window bits: 31 reads a gzip wrapper, 15 a zlib one.
_WINDOW: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def decoded(body: bytes, coding: str, limit: int) -> bytes | None:
    """The plain bytes, or None for an unknown coding, damaged data, or more than `limit` bytes."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    window = _WINDOW.get(coding)
    if window is None:
        return None
    decoder = zlib.decompressobj(window)
    try:
        plain = decoder.decompress(body, limit + 1)
    except zlib.error:
        return None
    return plain if decoder.eof and not decoder.unused_data and len(plain) <= limit else None
