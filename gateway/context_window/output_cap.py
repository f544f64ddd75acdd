"""The point at which a stream has exceeded its output cap so far that it is cut.

An engine that ignores the cap generates until the client leaves, holding a slot and costing money. The limit
is generous because tokens are only estimated, and some scripts use three times as many bytes per token as
English: a stream within its cap must never be cut.
"""

import math
from typing import Final

FACTOR: Final = 4
ALLOWANCE: Final = 256
"""Tokens that any stream may generate in addition, whatever its cap."""


THOUGHTS: Final = 32 * 1024
"""Tokens of reasoning that any stream may generate in addition: many providers do not count them in the cap."""


def exceeded(limit: float, generated: int, thoughts: int) -> bool:
    """Whether a stream with so many output tokens, reasoning included, is cut at this limit."""
    return generated - thoughts > limit or thoughts > limit + THOUGHTS


def limit(cap: int | None) -> float:
    """Return the output tokens at which a stream is cut; infinite if the client set no cap (None)."""
    return math.inf if cap is None else cap * FACTOR + ALLOWANCE
