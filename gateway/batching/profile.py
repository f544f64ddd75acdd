"""Calls that cost alike, what has been learned of them, and the way that they take now."""

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import LOAD, LOCKSTEP, OFF, MergeExperiment, MergeMode
from gateway.batching.tuner import BatchTuner


class BatchProfile:
    """All calls of one model, endpoint, size of answer and first upstream: they cost alike.

    `ways` are those that may be taken, the first one until another is known to be better.
    """

    __slots__ = ("_tried", "bounds", "load", "tuning", "upstream", "ways")

    def __init__(self, upstream: str, bounds: BatchLimits, ways: tuple[MergeMode, ...]) -> None:
        self.upstream = upstream
        self.bounds = bounds
        self.ways = ways
        self.tuning = BatchTuner(bounds.max_size, bounds.max_inflight)
        self._tried = MergeExperiment(ways) if len(ways) > 1 else None
        self.load = 0

    def come(self, now: float) -> bool:
        """A call is there. Whether it is to be merged where it would have to wait."""
        self.load += 1
        way = self._tried.arrived(self.load, now) if self._tried is not None else self.ways[0]
        together = way == LOCKSTEP and self.load >= LOAD
        if together is not self.tuning.awaits:
            self.tuning.together(together)
        return way != OFF

    def gone(self, now: float, *, served: bool = True) -> None:
        """It is over; `served` tells whether it has got an answer."""
        self.load -= 1
        if self._tried is not None:
            self._tried.done(1, now, served=served)

    def view(self) -> dict[str, object]:
        """For /admin/upstreams."""
        return self.tuning.view() | (self._tried.view() if self._tried is not None else {})


BatchProfiles = dict[tuple[str, str, int, str], BatchProfile]
"""By model, endpoint, size of answer and first upstream."""
