"""Calls that cost alike, what has been learned of them, and the way that they take now."""

from typing import Final

from gateway.call import EMBEDDINGS
from gateway.policy.batch import Bounds
from gateway.policy.batch_tuning import Tuning
from gateway.policy.ways import AT_ONCE, LOAD, SINGLE, TOGETHER, Way, Ways

_OF_LISTS: Final[tuple[Way, ...]] = (TOGETHER, AT_ONCE)
_OF_GENERATION: Final[tuple[Way, ...]] = (SINGLE, TOGETHER, AT_ONCE)


class Kind:
    """All calls of one model, endpoint, size of answer and first upstream: they cost alike."""

    __slots__ = ("_ways", "bounds", "load", "tuning", "upstream")

    def __init__(self, upstream: str, bounds: Bounds, endpoint: str) -> None:
        self.upstream = upstream
        self.bounds = bounds
        self.tuning = Tuning(bounds.max_size, bounds.max_inflight)
        # Of lists of inputs every engine gets more done; of generation it depends. Who asks for a window has
        # fewer calls in mind, not faster ones.
        ways = _OF_LISTS if endpoint == EMBEDDINGS else _OF_GENERATION
        self._ways = Ways(ways) if bounds.policy == "eager" else None
        self.load = 0

    def come(self, now: float) -> bool:
        """A call is there. Whether it is to be merged where it would have to wait."""
        self.load += 1
        way = self._ways.arrived(self.load, now) if self._ways is not None else AT_ONCE
        self.tuning.together(way == TOGETHER and self.load >= LOAD)
        return way != SINGLE

    def gone(self, now: float) -> None:
        """It is over."""
        self.load -= 1
        if self._ways is not None:
            self._ways.done(1, now)

    def view(self) -> dict[str, object]:
        """For /admin/upstreams."""
        return self.tuning.view() | (self._ways.view() if self._ways is not None else {})


Kinds = dict[tuple[str, str, int, str], Kind]
"""By model, endpoint, size of answer and first upstream."""
