"""How many tokens an item of a list may be: good enough to share out a sum, and to bound a batch."""

from typing import Final

_BEYOND_ASCII: Final = bytes(range(0x80, 0x100))
_TOKEN: Final = 12


def size(text: bytes) -> int:
    """The size of a JSON text in twelfths of a token: four bytes of ASCII make one, or three of others."""
    if text.isascii() and b"\\u" not in text:
        return 3 * len(text)
    # An escape stands for a character beyond ASCII as a rule, which has half as many bytes.
    wide = 3 * text.count(b"\\u")
    beyond = len(text) - len(text.translate(None, _BEYOND_ASCII))
    plain = len(text) - 2 * wide - beyond
    return 3 * plain + 4 * (wide + beyond)


def weigh(text: bytes) -> int:
    """Tokens of a JSON text, estimated. At least 1."""
    return size(text) // _TOKEN or 1


def weigh_ids(listed: bytes) -> int:
    """Tokens of a JSON list of ids that is not empty."""
    return listed.count(b",") + 1
