"""A call that has waited long enough for its own upstream looks for another one that takes it at once."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.core.errors import QUEUE_FULL, Rejection

MOVED: Final = Rejection(QUEUE_FULL, "Another upstream takes this call.")
"""What the queue tells the attempts when a call leaves it for the first of `call.order`; it is never sent."""
_AGAIN: Final = 0.25
"""It looks again after this part of the first wait ..."""
_SOONEST_S: Final = 0.02
"""... and not more often than so."""

Moves = Callable[[Call, float], bool]
"""Whether another upstream takes the call now; `call.order` then begins with it."""


class SpillTimer:
    """Timer of one waiting call: `look(now)` is asked after `after_s`, and again until it says True."""

    __slots__ = ("_clock", "_look", "_pause_s", "_timer")

    def __init__(self, after_s: float, look: Callable[[float], bool], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._pause_s = max(_SOONEST_S, _AGAIN * after_s)
        self._timer = asyncio.get_running_loop().call_later(after_s, self._ring)

    def _ring(self) -> None:
        if not self._look(self._clock()):
            self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._ring)

    def cancel(self) -> None:
        """It waits no longer."""
        self._timer.cancel()
