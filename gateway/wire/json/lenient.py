"""Makes readable what the JSON readers of Python and JavaScript take and ours does not.

Lone surrogates (half an emoji, from a text that was cut by UTF-16 units), a byte-order mark, and NaN and
Infinity, which Python writes. The copy is only read: what passes on is the original. Positions are the same.
"""

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

BOM: Final = b"\xef\xbb\xbf"

# A pair of surrogates, a lone one (the group), or any other escape.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_NUMBER: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![0-9A-Za-z.+-])(NaN|-?Infinity)(?![0-9A-Za-z.])', re.DOTALL)
_NUMBERS: Final = {b"NaN": b"0.0", b"Infinity": b"0.000000", b"-Infinity": b"-0.000000"}
_MOST: Final = 500_000
"""Escapes or strings up to which a text is worth it: the work stays within a fraction of a second."""


def readable(text: bytes, *, numbers: bool = True) -> bytes | None:
    """A copy of the same length without these; None if there is nothing to replace.

    A request is read without `numbers`: engines may fail on them.
    """
    copy = text
    if numbers and copy.startswith(BOM):
        copy = b"   " + copy[len(BOM) :]
    if (b"\\ud" in copy or b"\\uD" in copy) and copy.count(b"\\") <= _MOST:
        copy = _ESCAPE.sub(lambda match: match[0] if match[1] is None else rb"\ufffd", copy)
    if numbers and (b"NaN" in copy or b"Infinity" in copy) and copy.count(b'"') <= _MOST:
        copy = _NUMBER.sub(lambda match: match[0] if match[1] is None else _NUMBERS[match[1]], copy)
    return None if copy == text else copy


def decode(decoder: Callable[[bytes], T], text: bytes, *, numbers: bool = True) -> T:
    """What the decoder reads in a text that it has refused as malformed; raises as it does."""
    copy = readable(text, numbers=numbers)
    if copy is None:
        raise msgspec.DecodeError("JSON is malformed")
    return decoder(copy)
