"""Spill-over: a call that has waited long enough for its upstream moves to another that takes it at once."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.core.errors import QUEUE_FULL, Rejection

MOVED: Final = Rejection(QUEUE_FULL, "Another upstream takes this call.")
"""Sentinel from the queue to the retry layer, never sent: the call goes to the first of `call.routing.candidates`."""
_RETRY_RATIO: Final = 0.25
"""Pause between two checks, as a part of the first wait."""
_MIN_PAUSE_S: Final = 0.02

SpillCheck = Callable[[Call, float], bool]
"""Whether another upstream takes the call now; if so, its candidate is first in `call.routing.candidates`."""


class SpillTimer:
    """Timer of a waiting call: `try_spill(now)` runs after `after_s`, then repeatedly until it is True."""

    __slots__ = ("_clock", "_pause_s", "_timer", "_try_spill")

    def __init__(self, after_s: float, try_spill: Callable[[float], bool], clock: Clock) -> None:
        self._try_spill = try_spill
        self._clock = clock
        self._pause_s = max(_MIN_PAUSE_S, _RETRY_RATIO * after_s)
        self._timer = asyncio.get_running_loop().call_later(after_s, self._ring)

    def _ring(self) -> None:
        if not self._try_spill(self._clock()):
            self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._ring)

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()
