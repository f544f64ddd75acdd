"""Chained hashes of a request's prefixes that an engine may still cache from an earlier request.

A conversation's next turn contains all of its last one, so its prefixes end at message boundaries. A prompt
has no boundaries; its prefixes end every BLOCK bytes, like the blocks of an engine's prefix cache.

The hashes are Python's: 64 bits, salted per process, so that clients cannot aim at collisions.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from msgspec import Raw

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.wire.request_body import turns_of

MIN_LENGTH: Final = 512
"""Bytes below which a prefix is not tracked: a few blocks of an engine's cache."""
BLOCK: Final = 1024
_MAX_PREFIXES: Final = 64
"""Number of prefixes per request; the longest ones are used."""


class PrefixHashes(NamedTuple):
    """The hash and the end of each prefix, shortest first, and the request's length in bytes."""

    hashes: list[int]
    ends: list[int]
    length: int


NONE: Final = PrefixHashes([], [], 1)


_INSTRUCTIONS: Final = (b'"system"', b'"developer"')
_NONE: Final = Raw(b"null")
_SAMPLED: Final = 16 * 1024
"""Bytes of a value from which only samples of it are hashed: equal samples and lengths mean equal texts here."""
_SAMPLE: Final = 1024
_SAMPLES: Final = 8


def prefix_hashes(fields: RequestFields | None, owner: str) -> PrefixHashes:
    """Return the prefixes worth tracking. Prefixes of different owners never match.

    Most engines render tools before the messages, so tools belong to every prefix. Instructions before the
    first message may be common to all conversations, and are no prefix by themselves.
    """
    if fields is None:
        return NONE
    tools, length = fields.tools, len(memoryview(fields.tools))
    size = len(memoryview(fields.messages)) + len(memoryview(fields.prompt)) + length
    if size < MIN_LENGTH:
        return NONE
    chain = hash((owner, _hash(tools)))
    hashes, ends = [], []
    if fields.messages is ABSENT:
        for block in _blocks(bytes(fields.prompt)):
            chain = hash((chain, block))
            length += len(block)
            hashes.append(chain)
            ends.append(length)
    else:
        past_instructions = False
        for turn in turns_of(fields):
            chain = hash((chain, *[(name, _hash(value)) for name, value in turn.items()]))
            length += sum([len(memoryview(value)) for value in turn.values()])
            past_instructions = past_instructions or bytes(turn.get("role", _NONE)) not in _INSTRUCTIONS
            if past_instructions:
                hashes.append(chain)
                ends.append(length)
    first = bisect_left(ends, MIN_LENGTH)
    hashes, ends = hashes[first:][-_MAX_PREFIXES:], ends[first:][-_MAX_PREFIXES:]
    return PrefixHashes(hashes, ends, length) if hashes else NONE


def _hash(value: Raw) -> int:
    view = memoryview(value)
    length = len(view)
    if length <= _SAMPLED:
        return hash(bytes(view))
    step = (length - _SAMPLE) // (_SAMPLES - 1)
    return hash((length, *[bytes(view[at * step : at * step + _SAMPLE]) for at in range(_SAMPLES)]))


def _blocks(prompt: bytes) -> list[bytes]:
    """Split a prompt into blocks of BLOCK bytes; the last, incomplete one is dropped because it may grow."""
    return [prompt[at : at + BLOCK] for at in range(0, len(prompt) - BLOCK + 1, BLOCK)]
