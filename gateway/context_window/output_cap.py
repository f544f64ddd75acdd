"""When a stream has gone on so far beyond the cap on its output that it will not end by itself.

An engine that forgets its cap generates until the client leaves, and holds a slot and costs money so long.
Its tokens are only estimated, and some scripts have three times the bytes for a token that English has: a
stream that keeps to its cap must never be cut for being counted badly.
"""

import math
from typing import Final

TIMES: Final = 4
BESIDE: Final = 256
"""Tokens that any stream may have beyond that, whatever its cap."""


def most(cap: int | None) -> float:
    """Output tokens at which a stream is cut; None is a client that set no cap."""
    return math.inf if cap is None else cap * TIMES + BESIDE
