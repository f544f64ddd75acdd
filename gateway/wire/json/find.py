"""`bytes.find` and `bytes.count` for a member's name in a JSON text, faster in large texts.

Searching for a single byte runs at memory speed, searching for several does not: jumping from quote to quote
skips large strings (images, long documents) quickly.
"""

from typing import Final

_LARGE: Final = 4 * 1024
_PER_QUOTE: Final = 1024
"""Bytes searched per quote visited. Visiting a quote costs as much as searching a quarter of them."""
_FEW: Final = 16


def find(text: bytes, name: bytes, start: int = 0) -> int:
    """The next position of `name`, which begins with a quote; below 0 if there is none."""
    if len(text) > _LARGE:
        for _ in range((len(text) - start) // _PER_QUOTE):
            start = text.find(b'"', start)
            if start < 0 or text.startswith(name, start):
                return start
            start += 1
    return text.find(name, start)


def count(text: bytes, name: bytes) -> int:
    """The number of occurrences of `name`, which begins with a quote and does not overlap itself."""
    if len(text) <= _LARGE:
        return text.count(name)
    at = -1
    most = max(_FEW, len(text) // _PER_QUOTE)
    for number in range(most):
        at = find(text, name, at + 1)
        if at < 0:
            return number
    return most + text.count(name, at + 1)
