"""Which of a few ways serves calls fastest, found out by using two of them in turn while there is load.

Spells are compared by calls done per second and per call present. By Little's law (L = X * W) that is one
over the mean time of a call: where callers come back as soon as they are served, it is what is done per
second; where they come at their own pace, it still tells the better way, which the rate alone could not.

The order of the spells is ABBA ABBA, which cancels a load that drifts. A verdict is given as soon as the mean
of the pairs is clear of the threshold by its standard error; at once, where calls pile up or fail.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

MergeMode = Literal["off", "lockstep", "greedy"]
OFF: Final = "off"  # nothing is merged
LOCKSTEP: Final = "lockstep"  # fewer batches, that wait for those who were just answered together
GREEDY: Final = "greedy"  # a free slot takes who is there

LOAD: Final = 3
"""Fewer calls present than this are not worth a trial: nobody waits as long as `max_inflight` is 2."""
COOLDOWN_S: Final = 30.0
"""Time under load from a verdict to the next trial, twice as long when all rivals have changed nothing ..."""
LONGEST_COOLDOWN_S: Final = 480.0
"""... up to this; but no longer than until for a REST_S the load was half or twice what it had been."""
WINDOW_S: Final = 0.5
LONGEST_S: Final = 10.0
"""A spell that takes longer tells of a load that comes and goes, or of calls too slow to try things with."""
_BREAK_S: Final = 1.0  # without a call is no time under load
_CALLS: Final = 30
_TURNS: Final = 6
"""A spell has at least so many calls, and so many for each that was present when it began: answers of batches
come in bursts."""
_ENOUGH: Final = 0.03  # what is gained has to be so much (in logarithms) before another way is taken
_KEEP: Final = 0.01  # and merging less than this before it is left again
_FIRST_PAIRS: Final = 4  # so many at least in the first trial, by whose verdict most is done
_PAIRS: Final = 8  # after so many the mean alone decides
_MIN_STDERR: Final = 0.1  # over the number of pairs it is the least error: a few may agree by chance
_EARLY_STOP: Final = math.log(0.5)  # a spell in which calls take twice as long is cut short
_OVERLOAD_FACTOR: Final = 1.25  # times as many calls as were ever present before: this way cannot keep up
_INSTANT_S: Final = 1e-6
_FAIL: Final = 0.1  # of all calls: a way that fails so many more is fast for nothing


class MergeExperiment:
    """`chosen` is the best so far, `now` what to take at the moment. Begins with the first.

    `gain` is what the last trial with SINGLE has found for merging: 0.2 is a fifth faster.
    """

    __slots__ = (
        "_area",
        "_begun",
        "_calls",
        "_challenger",
        "_ends",
        "_last",
        "_load",
        "_loads",
        "_look_at",
        "_met",
        "_needed",
        "_peak",
        "_rest",
        "_rested",
        "_scores",
        "_seen",
        "_skip",
        "_tried_at",
        "_trying",
        "_turns",
        "_ways",
        "gain",
        "incumbent",
        "now",
    )  # fmt: skip

    def __init__(self, ways: Sequence[MergeMode]) -> None:
        self._ways = ways
        self.incumbent = self.now = self._challenger = ways[0]
        self.gain = 0.0
        self._trying = False
        self._turns = 0  # trials in which a rival was used: they take turns
        self._rest = 0.0
        self._rested = 0.0  # time under load since the last trial
        self._seen = -math.inf  # the last call that came
        # A single call may come when all others have just been answered: the load is a mean over many.
        self._look_at = 0.0
        self._loads = self._met = 0
        self._tried_at = 0.0
        self._scores: list[float] = []
        self._ends: dict[MergeMode, list[int]] = {}  # in this trial: calls that were served, and not
        self._peak = 0  # most calls that were present with the chosen way
        self._skip = 0  # calls still to end that belong to the spell before
        self._begun = self._last = self._area = 0.0
        self._load = self._calls = self._needed = 0

    def arrived(self, load: int, now: float) -> MergeMode:
        """A call has come; `load` are present with it. The way to take."""
        if self._trying:
            self._area += (load - 1) * (now - self._last)
            self._last, self._load = now, load
            if self.now == self.incumbent:
                self._peak = max(self._peak, load)
            elif load > _OVERLOAD_FACTOR * self._peak + LOAD:
                self._give_up()
        elif load >= LOAD:
            if now - self._seen < _BREAK_S:
                self._rested += now - self._seen
            self._seen = now
            self._loads += load
            self._met += 1
            if self._rested >= self._look_at and self._is_time():
                self._try(load, now)
        return self.now

    def done(self, calls: int, now: float, *, served: bool = True) -> None:
        """So many calls are over; `served` tells whether they have got an answer."""
        if not self._trying:
            return
        self._area += self._load * (now - self._last)
        self._last = now
        self._load = max(0, self._load - calls)
        if self._skip > 0:
            self._skip -= calls
            if self._skip <= 0:
                self._begin(now)
            return
        self._calls += calls
        self._ends[self.now][not served] += calls
        spent = now - self._begun
        if spent >= WINDOW_S and self._calls >= self._needed:
            self._over(spent, now)
        elif self.now != self.incumbent and (spent > LONGEST_S or self._hopeless(spent)):
            self._give_up()
        elif spent > LONGEST_S:
            self._end()

    def view(self) -> dict[str, object]:
        """For /admin/upstreams: `way`, and of those that may be single the `gain` of merging."""
        return {"merge_mode": self.incumbent} | ({"gain": round(self.gain, 3)} if OFF in self._ways else {})

    def _try(self, load: int, now: float) -> None:
        self._trying, self._load, self._peak = True, load, load
        rivals = [way for way in self._ways if way != self.incumbent]
        self._challenger = rivals[self._turns % len(rivals)]
        self._scores.clear()
        self._ends = {self.incumbent: [0, 0], self._challenger: [0, 0]}
        self._turn(self.incumbent, now)

    def _turn(self, way: MergeMode, now: float) -> None:
        """Take this way from now on; what is under way still belongs to the one before."""
        self._skip = self._load if way != self.now or not self._scores else 0
        self.now = way
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._begun = self._last = now
        self._area = 0.0
        self._calls = 0
        self._needed = max(_CALLS, _TURNS * self._load)

    def _score(self) -> float:
        return math.log(self._calls / max(self._area, _INSTANT_S))

    def _hopeless(self, spent: float) -> bool:
        """Whether a third of a spell has told enough of the rival."""
        if spent < WINDOW_S or self._calls < self._needed / 3:
            return False
        return self._score() < self._scores[-1] + _EARLY_STOP

    def _give_up(self) -> None:
        """This spell of the rival has gone on for too long."""
        if self._calls:
            self._note_gain(min(0.0, self._score() - self._scores[-1]))
        self._decide(better=False)

    def _over(self, spent: float, now: float) -> None:
        """A spell is over."""
        if self.now == self.incumbent and self._area < LOAD / 2 * spent:
            self._end()
            return
        self._scores.append(self._score())
        better = self._verdict()
        if better is None:
            self._turn(self._challenger if len(self._scores) % 4 in (1, 2) else self.incumbent, now)
        else:
            self._decide(better=better)

    def _decide(self, *, better: bool) -> None:
        """The trial is over: whether the rival is better."""
        if better:
            self._rest, self._turns = COOLDOWN_S, 0
            self.incumbent = self._challenger
        elif (self._turns + 1) % (len(self._ways) - 1) == 0:  # each rival has been tried as often
            self._rest = min(2 * self._rest, LONGEST_COOLDOWN_S)
        self._end()

    def _is_time(self) -> bool:
        load, before = self._loads / self._met, self._tried_at
        self._look_at += COOLDOWN_S
        self._loads = self._met = 0
        if self._rested < self._rest and before / 2 < load < before * 2:
            return False
        self._tried_at = load
        return True

    def _end(self) -> None:
        """The trial is over, with a verdict or without."""
        if self._scores:
            self._turns += 1
        self._trying, self.now, self._rested = False, self.incumbent, 0.0
        self._look_at, self._loads, self._met = COOLDOWN_S, 0, 0
        self._rest = max(self._rest, COOLDOWN_S)

    def _verdict(self) -> bool | None:
        """Whether the rival is better; None: not known yet."""
        scores = self._scores
        pairs = len(scores) // 2
        if len(scores) % 2:
            return None
        more = self._failed(self._challenger) - self._failed(self.incumbent)
        if abs(more) > _FAIL:
            return more < 0.0
        # The rival's first two spells follow each other: one hiccup of the machine spoils both.
        if pairs < (2 if self._rest else _FIRST_PAIRS):
            return None
        gains = [
            (scores[at + 1] - scores[at]) * (1.0 if at % 4 == 0 else -1.0) for at in range(0, len(scores), 2)
        ]
        mean = math.fsum(gains) / pairs
        spread = math.sqrt(math.fsum((gain - mean) ** 2 for gain in gains) / (pairs - 1) / pairs)
        doubt = max(spread, _MIN_STDERR / pairs)
        threshold = -_KEEP if self._challenger == OFF else _ENOUGH
        if abs(mean - threshold) < doubt and pairs < _PAIRS:
            return None
        self._note_gain(mean)
        return mean >= threshold

    def _failed(self, way: MergeMode) -> float:
        """The part of its calls that were not served."""
        served, not_served = self._ends[way]
        return not_served / (served + not_served)

    def _note_gain(self, gain: float) -> None:
        """The rival has gained so much, in logarithms."""
        if self._challenger == OFF or self.incumbent == OFF:
            self.gain = math.exp(gain if self.incumbent == OFF else -gain) - 1.0
