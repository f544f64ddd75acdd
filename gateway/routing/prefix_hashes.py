"""Chained hashes of a request's prefixes that an engine may still cache from an earlier request.

A conversation's next turn contains all of its last one, so its prefixes end at message boundaries. A prompt
has no boundaries; its prefixes end every BLOCK bytes, like the blocks of an engine's prefix cache.

The hashes are Python's: 64 bits, salted per process, so that clients cannot aim at collisions.
"""

import re
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from gateway.core.request_fields import ABSENT, RequestFields

MIN_LENGTH: Final = 512
"""Bytes below which a prefix is not tracked: a few blocks of an engine's cache."""
BLOCK: Final = 1024
_MAX_PREFIXES: Final = 64
"""Number of prefixes per request; the longest ones are used."""

_INSTRUCTIONS = re.compile(rb'\{\s*"role"\s*:\s*"(?:system|developer)"')


class PrefixHashes(NamedTuple):
    """The hash and the end of each prefix, shortest first, and the request's length in bytes."""

    hashes: list[int]
    ends: list[int]
    length: int


NONE: Final = PrefixHashes([], [], 1)


_decode = msgspec.json.Decoder(list[Raw]).decode


def prefix_hashes(fields: RequestFields | None, owner: str) -> PrefixHashes:
    """Return the prefixes worth tracking. Prefixes of different owners never match.

    Most engines render tools before the messages, so tools belong to every prefix. Instructions before the
    first message may be common to all conversations, and are no prefix by themselves.
    """
    if fields is None:
        return NONE
    messages, prompt, tools = bytes(fields.messages), bytes(fields.prompt), bytes(fields.tools)
    if len(messages) + len(prompt) + len(tools) < MIN_LENGTH:
        return NONE
    chat = fields.messages is not ABSENT
    try:
        pieces = list(map(bytes, _decode(messages))) if chat else _blocks(prompt)
    except (msgspec.DecodeError, RecursionError):
        return NONE
    chain, end, past_instructions = hash((owner, tools)), len(tools), not chat
    hashes, ends = [], []
    for piece in pieces:
        chain = hash((chain, piece))
        end += len(piece)
        past_instructions = past_instructions or _INSTRUCTIONS.match(piece) is None
        if past_instructions and end >= MIN_LENGTH:
            hashes.append(chain)
            ends.append(end)
    return PrefixHashes(hashes[-_MAX_PREFIXES:], ends[-_MAX_PREFIXES:], end) if hashes else NONE


def _blocks(prompt: bytes) -> list[bytes]:
    """Split a prompt into blocks of BLOCK bytes; the last, incomplete one is dropped because it may grow."""
    return [prompt[at : at + BLOCK] for at in range(0, len(prompt) - BLOCK + 1, BLOCK)]
