"""An online A/B test of merge modes: the incumbent and a challenger alternate while there is load.

A window is scored by the calls done per second and per call present. By Little's law (L = X * W) that is the
inverse of the mean time of a call. Where callers return as soon as they are served, it measures throughput;
where they arrive at their own pace, it still identifies the better mode, which throughput could not.

The windows alternate in the order ABBA ABBA, which cancels a drifting load. An experiment ends as soon as the
mean gain of the pairs differs from the threshold by more than its standard error, and early if the challenger
builds a backlog or fails more calls.

A trial must cost the callers little, from its first moment on. While the challenger takes over and while it is
measured, what it did since is compared with the incumbent after every call, and it goes as soon as it is clearly
worse: the less has been seen, the worse it must be. It also goes when more calls than a small number were slower
than nearly all of the incumbent's. A rejection of this kind may be a hiccup, so the trial is repeated.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

MergeMode = Literal["off", "lockstep", "greedy"]
OFF: Final = "off"  # nothing is merged
LOCKSTEP: Final = "lockstep"  # fewer batches, which wait for callers that were just answered together
GREEDY: Final = "greedy"  # a free slot takes the calls that are waiting

MIN_LOAD: Final = 3
"""Calls present below which no experiment runs: with `max_inflight: 2` nobody waits then."""
COOLDOWN_S: Final = 30.0
"""Time under load between experiments. It doubles after a round without a winner ..."""
MAX_COOLDOWN_S: Final = 480.0
"""... up to this, and is cut short when the load over a COOLDOWN_S has halved or doubled."""
WINDOW_S: Final = 0.5
MAX_WINDOW_S: Final = 10.0
"""A longer window means that the load comes and goes, or that calls are too slow to experiment with."""
_IDLE_S: Final = 1.0  # a longer gap between arrivals is no time under load
_MIN_CALLS: Final = 30
_MIN_CALLS_PER_LOAD: Final = 6
"""A window has at least _MIN_CALLS calls, and this many per call present at its start, because batches are
answered in bursts."""
_MIN_GAIN: Final = 0.03  # logarithmic gain for which a challenger replaces the incumbent
_MIN_MERGE_GAIN: Final = 0.01  # logarithmic gain of merging below which `off` replaces it
_FIRST_MIN_PAIRS: Final = 4  # fewest pairs in the first experiment, whose verdict matters most
_MAX_PAIRS: Final = 8  # after which the mean alone decides
_MIN_STDERR: Final = 0.1  # divided by the pairs: the least standard error, because a few may agree by chance
RETRY_S: Final = 10.0
"""Time under load until a challenger that was stopped early is tried again ..."""
_RETRIES: Final = 1
"""... as often as this."""
_WORSE: Final = 0.12  # logarithmic loss at which a challenger is stopped, however much was seen of it ...
_DOUBT: Final = 0.22  # ... and this much more, divided by the calls done per call present
_BURST: Final = 0.5  # calls per call present that may be owed where batches end in bursts
_MIN_ROUND: Final = 12  # calls that count as one per call present where fewer are present
_BLOCK_ROUNDS: Final = 4  # after which older calls are forgotten, so that a later loss shows
_HOPELESS: Final = math.log(0.5)  # logarithmic loss that is no hiccup
_SLOW_FACTOR: Final = 1.2  # a call slower than this times the incumbent's p99 is slow ...
_SLOW_S: Final = 0.05  # ... and the challenger may have as many as the incumbent serves in this time
_MIN_SLOW: Final = 8
_MAX_TIMES: Final = 4096  # the incumbent's calls whose times are kept
_OVERLOAD_FACTOR: Final = 1.25  # backlog relative to the incumbent's peak at which the challenger is stopped
_INSTANT_S: Final = 1e-6
_FAILURE_MARGIN: Final = 0.1  # difference of the failure ratios that decides regardless of speed


class Learned(NamedTuple):
    """What experiments have found: the best mode, the gain of merging, the load, and the cooldown reached."""

    mode: MergeMode
    gain: float
    load: float
    cooldown: float


class MergeExperiment:
    """`incumbent` is the best mode so far, at first the first of `modes`; `current` is the mode to use now.

    `gain` is what the last experiment with `off` found for merging: 0.2 is a fifth faster.
    """

    __slots__ = (
        "_area",
        "_block_area",
        "_block_calls",
        "_block_failed",
        "_calls",
        "_challenger",
        "_check_at",
        "_cooldown",
        "_experiments",
        "_incumbent_peak",
        "_last_arrival",
        "_least_loss",
        "_load",
        "_load_before",
        "_load_samples",
        "_load_sum",
        "_loaded_s",
        "_modes",
        "_needed",
        "_outcomes",
        "_reference",
        "_retries",
        "_running",
        "_scores",
        "_skip",
        "_slow",
        "_slow_allowed",
        "_slow_from",
        "_switched_at",
        "_times",
        "_updated_at",
        "_window_start",
        "current",
        "gain",
        "incumbent",
    )

    def __init__(self, modes: Sequence[MergeMode], learned: Learned | None = None) -> None:
        """`learned` is what an earlier run found; the first experiment then waits for its cooldown."""
        self._modes = modes
        self.incumbent = self.current = self._challenger = modes[0]
        self.gain = 0.0
        self._running = False
        self._experiments = 0  # since the incumbent won; the challengers take turns
        self._cooldown = 0.0
        self._loaded_s = 0.0  # time under load since the last experiment
        self._last_arrival = -math.inf
        # The load is a mean over many arrivals: a single call may arrive when all others were just answered.
        self._check_at = 0.0
        self._load_sum = self._load_samples = 0
        self._load_before = 0.0  # at the last experiment
        self._scores: list[float] = []
        self._outcomes: dict[MergeMode, list[int]] = {}  # in this experiment: calls served, and failed
        self._incumbent_peak = 0  # most calls present under the incumbent
        self._skip = 0  # calls still to end that began under the previous mode
        self._window_start = self._updated_at = self._area = 0.0
        self._load = self._calls = self._needed = 0
        self._switched_at = 0.0
        # Since the challenger took over, or for the last few rounds of it.
        self._block_area = 0.0
        self._block_calls = self._block_failed = 0
        self._least_loss = math.inf  # in this block: right after a burst of answers it is exact
        self._reference = 0.0  # the incumbent's last score
        self._times: list[float] = []  # of the incumbent's calls in this experiment
        self._slow_from = math.inf  # seconds from which on a call is slow
        self._slow = self._slow_allowed = 0
        self._retries = 0  # of the present challenger
        if learned is not None and learned.mode in modes:
            self.incumbent = self.current = self._challenger = modes[modes.index(learned.mode)]
            self.gain, self._load_before = learned.gain, learned.load
            self._cooldown = min(max(learned.cooldown, COOLDOWN_S), MAX_COOLDOWN_S)
            self._check_at = COOLDOWN_S

    def arrived(self, load: int, now: float) -> MergeMode:
        """Count an arrival, with which `load` calls are present. Returns the mode to use."""
        if self._running:
            area = (load - 1) * (now - self._updated_at)
            self._area += area
            self._block_area += area
            self._updated_at, self._load = now, load
            if self.current == self.incumbent:
                self._incumbent_peak = max(self._incumbent_peak, load)
            elif load > _OVERLOAD_FACTOR * self._incumbent_peak + MIN_LOAD:
                self._stop_early(now)
        elif load >= MIN_LOAD:
            if now - self._last_arrival < _IDLE_S:
                self._loaded_s += now - self._last_arrival
            self._last_arrival = now
            self._load_sum += load
            self._load_samples += 1
            if self._loaded_s >= self._check_at and self._is_due():
                self._start(load, now)
        return self.current

    def done(self, calls: int, now: float, seconds: float = 0.0, *, served: bool = True, settled: bool = True) -> None:
        """Count calls that ended, each `seconds` after it came.

        `served` is whether they got an answer, `settled` whether the mode is wholly in use, and not on its way.
        """
        if not self._running:
            return
        area = self._load * (now - self._updated_at)
        self._area += area
        self._block_area += area
        self._block_calls += calls
        self._block_failed += calls * (not served)
        self._updated_at = now
        self._load = max(0, self._load - calls)
        trial = self.current != self.incumbent
        if trial:
            self._slow += calls * (seconds > self._slow_from)
            if self._clearly_worse() or now - self._switched_at > 2 * MAX_WINDOW_S:
                self._stop_early(now)
                return
        if self._skip > 0:
            self._skip = self._skip - calls if settled else max(self._skip, self._load)
            if self._skip <= 0:
                self._start_window(now)
            return
        if not trial and len(self._times) < _MAX_TIMES:
            self._times.append(seconds)
        self._calls += calls
        self._outcomes[self.current][not served] += calls
        elapsed = now - self._window_start
        if elapsed >= WINDOW_S and self._calls >= self._needed:
            self._end_window(elapsed, now)
        elif trial and elapsed > MAX_WINDOW_S:
            self._stop_early(now)
        elif elapsed > MAX_WINDOW_S:
            self._end()

    def learned(self) -> Learned | None:
        """What the next run may start from; None before the first verdict."""
        if not self._cooldown:
            return None
        return Learned(self.incumbent, self.gain, self._load_before, self._cooldown)

    def view(self) -> dict[str, object]:
        """Return `merge_mode` and, if `off` is one of the modes, the `gain` of merging."""
        return {"merge_mode": self.incumbent} | ({"gain": round(self.gain, 3)} if OFF in self._modes else {})

    def _is_due(self) -> bool:
        """Whether to start an experiment: after the cooldown, or when the load has halved or doubled."""
        load, before = self._load_sum / self._load_samples, self._load_before
        self._check_at += COOLDOWN_S
        self._load_sum = self._load_samples = 0
        if self._loaded_s < self._cooldown and before / 2 < load < before * 2:
            return False
        self._load_before = load
        return True

    def _start(self, load: int, now: float) -> None:
        self._running, self._load, self._incumbent_peak = True, load, load
        # Not merging comes first: until it has been tried, merging may do harm.
        challengers = sorted((mode for mode in self._modes if mode != self.incumbent), key=lambda mode: mode != OFF)
        self._challenger = challengers[self._experiments % len(challengers)]
        self._scores.clear()
        self._times.clear()
        self._outcomes = {self.incumbent: [0, 0], self._challenger: [0, 0]}
        self._switch(self.incumbent, now)

    def _switch(self, mode: MergeMode, now: float) -> None:
        """Use this mode from now on; calls in flight still count for the previous one."""
        changed = mode != self.current
        self._skip = self._load if changed or not self._scores else 0
        self.current = mode
        if changed:
            self._switched_at, self._slow = now, 0
        self._start_window(now)

    def _start_window(self, now: float) -> None:
        self._window_start = self._updated_at = now
        self._area = 0.0
        self._calls = 0
        self._start_block()
        self._needed = max(_MIN_CALLS, _MIN_CALLS_PER_LOAD * self._load)

    def _score(self) -> float:
        return math.log(self._calls / max(self._area, _INSTANT_S))

    def _start_block(self) -> None:
        self._block_area = 0.0
        self._block_calls = self._block_failed = 0
        self._least_loss = math.inf

    def _loss(self) -> float:
        """Logarithmic loss of the challenger in the present block."""
        return self._reference - math.log(max(self._block_calls, 1) / max(self._block_area, _INSTANT_S))

    def _clearly_worse(self) -> bool:
        """Whether what the challenger did so far is enough to reject it."""
        rounds = self._block_calls / max(self._load + 1, _MIN_ROUND)
        if rounds < 1.0:
            return False
        incumbent_fails = self._failure_ratio(self.incumbent)
        doubt = _DOUBT / rounds
        if self._block_failed > (incumbent_fails + _FAILURE_MARGIN + doubt) * self._block_calls:
            return True
        if incumbent_fails > _FAILURE_MARGIN:
            return False  # it may be faster only because it fails
        loss = self._loss()
        if rounds >= 2.0:
            self._least_loss = min(loss, self._least_loss)
        if self._skip <= 0 or self.incumbent != OFF:
            loss -= math.log1p(_BURST / rounds)
        if loss > _WORSE / 2 and self._slow > self._slow_allowed:
            return True
        # As long as no caller notices, a moment's hiccup of the machine is no reason.
        seen_long = self._updated_at - self._switched_at >= WINDOW_S
        if loss > _WORSE + doubt and seen_long:
            return True
        if rounds > _BLOCK_ROUNDS and seen_long:
            self._start_block()
        return False

    def _stop_early(self, now: float) -> None:
        """Reject the challenger before its window is over; the first time it may be tried once more."""
        loss = self._least_loss
        if loss == math.inf and self._block_calls:
            loss = self._loss()
        if self._skip <= 0 and loss < math.inf:
            self._record_gain(min(0.0, -loss))
        hopeless = math.inf > loss > -_HOPELESS or now - self._switched_at > MAX_WINDOW_S
        if hopeless or self._retries == _RETRIES:
            self._decide(better=False)
        else:
            self._retries += 1
            self._running, self.current = False, self.incumbent
            self._wait(RETRY_S)

    def _end_window(self, elapsed: float, now: float) -> None:
        if self.current == self.incumbent and self._area < MIN_LOAD / 2 * elapsed:
            self._end()  # the load is gone
            return
        self._scores.append(self._score())
        if self.current == self.incumbent:
            self._reference = self._scores[-1]
            self._times.sort()
            self._slow_from = _SLOW_FACTOR * self._times[int(0.99 * len(self._times))]
            self._slow_allowed = max(_MIN_SLOW, int(_SLOW_S * self._calls / elapsed))
        better = self._verdict()
        if better is None:
            self._switch(self._challenger if len(self._scores) % 4 in (1, 2) else self.incumbent, now)
        else:
            self._decide(better=better)

    def _verdict(self) -> bool | None:
        """Whether the challenger is better; None if that is not clear yet."""
        scores = self._scores
        pairs = len(scores) // 2
        if len(scores) % 2:
            return None
        excess = self._failure_ratio(self._challenger) - self._failure_ratio(self.incumbent)
        if abs(excess) > _FAILURE_MARGIN:
            return excess < 0.0
        # The challenger's first two windows are adjacent, so a single hiccup of the machine spoils both.
        if pairs < (2 if self._cooldown else _FIRST_MIN_PAIRS):
            return None
        gains = [(scores[at + 1] - scores[at]) * (1.0 if at % 4 == 0 else -1.0) for at in range(0, len(scores), 2)]
        mean = math.fsum(gains) / pairs
        stderr = math.sqrt(math.fsum((gain - mean) ** 2 for gain in gains) / (pairs - 1) / pairs)
        threshold = -_MIN_MERGE_GAIN if self._challenger == OFF else _MIN_GAIN
        if abs(mean - threshold) < max(stderr, _MIN_STDERR / pairs) and pairs < _MAX_PAIRS:
            return None
        self._record_gain(mean)
        return mean >= threshold

    def _failure_ratio(self, mode: MergeMode) -> float:
        served, failed = self._outcomes[mode]
        return failed / (served + failed)

    def _record_gain(self, gain: float) -> None:
        """Record the challenger's logarithmic gain over the incumbent."""
        if self._challenger == OFF or self.incumbent == OFF:
            self.gain = math.exp(gain if self.incumbent == OFF else -gain) - 1.0

    def _decide(self, *, better: bool) -> None:
        """End the experiment with a verdict."""
        self._retries = 0
        if better:
            self._cooldown, self._experiments = COOLDOWN_S, 0
            self.incumbent = self._challenger
        elif (self._experiments + 1) % (len(self._modes) - 1) == 0:  # each challenger was tried as often
            self._cooldown = min(2 * self._cooldown, MAX_COOLDOWN_S)
        self._end()

    def _end(self) -> None:
        """End the experiment, with a verdict or without."""
        if self._scores:
            self._experiments += 1
        self._running, self.current = False, self.incumbent
        self._cooldown = max(self._cooldown, COOLDOWN_S)
        self._wait(COOLDOWN_S)

    def _wait(self, seconds: float) -> None:
        """Decide after these seconds under load whether another experiment is due."""
        self._times.clear()
        self._loaded_s = 0.0
        self._check_at, self._load_sum, self._load_samples = seconds, 0, 0
