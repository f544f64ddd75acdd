"""The beginnings of a request that an engine may still hold from an earlier one, as chained hashes.

A conversation's next turn contains the whole of its last one, so a beginning ends where a message does. A
prompt has no such joints; its beginnings end every BLOCK bytes, as an engine's own prefix cache has blocks.

The hashes are Python's own: 64 bits, salted for each process, so nobody outside can aim at another's.
"""

import re
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import CHAT, COMPLETIONS

SHORTEST: Final = 512
"""Bytes below which a beginning is not worth to be remembered: a few blocks of an engine's cache."""
BLOCK: Final = 1024
_MOST: Final = 64
"""Beginnings of one request at most, the longest ones."""

_ABSENT: Final = Raw(b"")
_INSTRUCTS = re.compile(rb'\{\s*"role"\s*:\s*"(?:system|developer)"')


class PrefixHashes(NamedTuple):
    """Shortest first: their hashes, and where each ends. `whole` is the length of all, in bytes."""

    hashes: list[int]
    ends: list[int]
    whole: int


NONE: Final = PrefixHashes([], [], 1)


class _Request(Struct, gc=False):
    messages: list[Raw] | None = None
    prompt: Raw = _ABSENT
    tools: Raw = _ABSENT


_decode = msgspec.json.Decoder(_Request).decode


def prefix_hashes(body: bytes, endpoint: str, owner: str) -> PrefixHashes:
    """Those that are worth it. Those of two owners never meet.

    Tools stand before the messages for most engines, so they belong to every beginning. What all
    conversations may share, the instructions before the first message, is no beginning by itself.
    """
    if endpoint not in (CHAT, COMPLETIONS) or len(body) < SHORTEST:
        return NONE
    try:
        seen = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return NONE
    chat = endpoint == CHAT
    pieces = list(map(bytes, seen.messages or ())) if chat else _blocks(bytes(seen.prompt))
    tools = bytes(seen.tools)
    chain, end, begun = hash((owner, tools)), len(tools), not chat
    hashes, ends = [], []
    for piece in pieces:
        chain = hash((chain, piece))
        end += len(piece)
        begun = begun or _INSTRUCTS.match(piece) is None
        if begun and end >= SHORTEST:
            hashes.append(chain)
            ends.append(end)
    return PrefixHashes(hashes[-_MOST:], ends[-_MOST:], end) if hashes else NONE


def _blocks(prompt: bytes) -> list[bytes]:
    """A text or a list in blocks of BLOCK bytes; only whole ones, for the last one grows."""
    return [prompt[at : at + BLOCK] for at in range(0, len(prompt) - BLOCK + 1, BLOCK)]
