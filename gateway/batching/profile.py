"""Calls of similar cost: their tuner, their merge experiment, and the mode in use."""

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import LOCKSTEP, MIN_LOAD, OFF, Learned, MergeExperiment, MergeMode
from gateway.batching.tuner import BatchTuner


class BatchProfile:
    """All calls of one model, endpoint, output limit and first upstream, whose costs are similar.

    `modes` are the merge modes to choose from; the first is used until another is known to be better. `load`
    is the number of calls present. `learned` is what an earlier run found out.
    """

    __slots__ = ("_experiment", "_mode", "limits", "load", "modes", "tuner", "upstream")

    def __init__(
        self,
        upstream: str,
        limits: BatchLimits,
        modes: tuple[MergeMode, ...],
        learned: Learned | None = None,
    ) -> None:
        self.upstream = upstream
        self.limits = limits
        self.modes = modes
        self.tuner = BatchTuner(limits.max_size, limits.max_inflight)
        self._experiment = MergeExperiment(modes, learned) if len(modes) > 1 else None
        self._mode = modes[0] if self._experiment is None else self._experiment.current
        self.load = 0

    def arrived(self, now: float) -> bool:
        """Count a call that arrives. Returns whether to merge it if it would have to wait."""
        self.load += 1
        tuner = self.tuner
        mode = self._experiment.arrived(self.load, now) if self._experiment is not None else self.modes[0]
        if mode != self._mode:
            self._switch(mode)
        lockstep = mode == LOCKSTEP and self.load >= MIN_LOAD
        if lockstep is not tuner.lockstep:
            tuner.set_lockstep(lockstep)
        return mode != OFF or (tuner.ramping and tuner.widening)

    def done(self, now: float, seconds: float = 0.0, *, served: bool = True) -> None:
        """Count a call that ended after `seconds`; `served` is whether it got an answer."""
        self.load -= 1
        if self._experiment is not None:
            self._experiment.done(1, now, seconds, served=served, settled=not self.tuner.ramping)

    def learned(self) -> Learned | None:
        """What the next run may start from; None if no experiment has ended."""
        return None if self._experiment is None else self._experiment.learned()

    def view(self) -> dict[str, object]:
        """Return the tuner's and the experiment's state for /admin/upstreams."""
        return self.tuner.view() | (self._experiment.view() if self._experiment is not None else {})

    def _switch(self, mode: MergeMode) -> None:
        """Change to this mode gradually; but back to `off`, which needs nobody else, at once."""
        before, self._mode = self._mode, mode
        if before == OFF:
            self.tuner.set_lockstep(mode == LOCKSTEP and self.load >= MIN_LOAD)
            self.tuner.narrow(self.load)
        elif mode == OFF:
            if self._experiment is not None and self._experiment.incumbent != OFF:
                self.tuner.widen(self.load)
            else:
                self.tuner.release(self.load)


ProfileKey = tuple[str, str, int, str]
"""Model, endpoint, output limit and first upstream."""
BatchProfiles = dict[ProfileKey, BatchProfile]
