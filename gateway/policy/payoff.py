"""Which of two ways serves calls faster, found out by using both in turn while there is load.

Spells are compared by calls done per second and per call present. By Little's law (L = X * W) that is one
over the mean time of a call: where callers come back as soon as they are served, it is what is done per
second; where they come at their own pace, it still tells the better way, which the rate alone could not.

The order of the spells is ABBA ABBA, which cancels a load that drifts. A verdict is given as soon as the mean
of the pairs is clear of the threshold by its standard error.
"""

import math
from typing import Final

LOAD: Final = 4
"""Fewer calls present than this are not worth a trial."""
REST_S: Final = 30.0
"""From a verdict to the next trial, and twice as long each time that one has found the same ..."""
LONGEST_REST_S: Final = 480.0
"""... up to this; under half or twice the load it has to be found out anew."""
SPELL_S: Final = 0.5
LONGEST_S: Final = 10.0
"""A spell that takes longer tells of a load that comes and goes, or of calls too slow to try things with."""
_CALLS: Final = 30
_TURNS: Final = 6
"""A spell has at least so many calls, and so many for each that was present when it began: answers of batches
come in bursts."""
_ENOUGH: Final = 0.03  # what is gained has to be so much (in logarithms) before the other way is taken
_KEEP: Final = 0.01  # and less than this before it is left again
_PAIRS: Final = 8  # after so many the mean alone decides
_DOUBT: Final = 0.1  # over the number of pairs it is the least error: a few may agree by chance


class Trial:
    """Begins with the plain way. `other` is whether to take the other way now, `chosen` what is best so far.

    `gain` is what the last trial has found for the other way: 0.2 is a fifth faster.
    """

    __slots__ = (
        "_area", "_begun", "_calls", "_last", "_load", "_needed", "_over_at", "_rest", "_scores", "_skip",
        "_tried_at", "_trying", "chosen", "gain", "other",
    )  # fmt: skip

    def __init__(self) -> None:
        self.other = self.chosen = False
        self.gain = 0.0
        self._trying = False
        self._over_at = -math.inf  # the last trial; none before
        self._rest = REST_S
        self._tried_at = 0  # calls that were present when it began
        self._scores: list[float] = []
        self._skip = 0  # calls still to end that belong to the spell before
        self._begun = self._last = self._area = 0.0
        self._load = self._calls = self._needed = 0

    def arrived(self, load: int, now: float) -> bool:
        """A call has come; `load` are present with it. The way to take, `other`."""
        if self._trying:
            self._area += (load - 1) * (now - self._last)
            self._last, self._load = now, load
        elif load >= LOAD and now >= self._over_at + REST_S and self._is_time(load, now):
            self._trying, self._load, self._tried_at = True, load, load
            self._scores.clear()
            self._turn(self.chosen, now)
        return self.other

    def done(self, calls: int, now: float) -> None:
        """So many calls are over."""
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
        spent = now - self._begun
        if spent >= SPELL_S and self._calls >= self._needed:
            self._over(spent, now)
        elif spent > LONGEST_S:
            self._give_up(now)

    def _turn(self, other: bool, now: float) -> None:
        """Take this way from now on; what is under way still belongs to the one before."""
        self._skip = self._load if other != self.other or not self._scores else 0
        self.other = other
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._begun = self._last = now
        self._area = 0.0
        self._calls = 0
        self._needed = max(_CALLS, _TURNS * self._load)

    def _over(self, spent: float, now: float) -> None:
        """A spell is over."""
        if self._area < LOAD / 2 * spent:
            self._give_up(now)
            return
        self._scores.append(math.log(self._calls / self._area))
        verdict = self._verdict()
        if verdict is None:
            self._turn(self.chosen != (len(self._scores) % 4 in (1, 2)), now)
        else:
            self._rest = min(2 * self._rest, LONGEST_REST_S) if verdict == self.chosen else REST_S
            self.chosen = verdict
            self._give_up(now)

    def _is_time(self, load: int, now: float) -> bool:
        return now >= self._over_at + self._rest or not self._tried_at / 2 < load < self._tried_at * 2

    def _give_up(self, now: float) -> None:
        self._trying, self.other, self._over_at = False, self.chosen, now

    def _verdict(self) -> bool | None:
        """Whether the other way is better; None: not known yet."""
        scores = self._scores
        pairs = len(scores) // 2
        if len(scores) % 2 or pairs < 2:
            return None
        sign = -1.0 if self.chosen else 1.0
        gains = [
            sign * (scores[at + 1] - scores[at]) * (1.0 if at % 4 == 0 else -1.0)
            for at in range(0, len(scores), 2)
        ]
        mean = math.fsum(gains) / pairs
        spread = math.sqrt(math.fsum((gain - mean) ** 2 for gain in gains) / (pairs - 1) / pairs)
        doubt = max(spread, _DOUBT / pairs)
        threshold = _KEEP if self.chosen else _ENOUGH
        if abs(mean - threshold) < doubt and pairs < _PAIRS:
            return None
        self.gain = math.exp(mean) - 1.0
        return mean >= threshold


class Payoff:
    """Of one kind of calls: does merging pay? Begins with not merging."""

    __slots__ = ("_trial",)

    def __init__(self) -> None:
        self._trial = Trial()

    def merging(self, load: int, now: float) -> bool:
        """Whether a call that arrives now may be merged. `load`: calls that wait or are under way, it too."""
        return self._trial.arrived(load, now)

    def done(self, calls: int, now: float) -> None:
        """So many calls are over, merged or not."""
        self._trial.done(calls, now)

    def view(self) -> dict[str, float | bool]:
        """For /admin/upstreams: `merging` (the verdict) and `gain` (of merging, 0.2 is a fifth faster)."""
        return {"merging": self._trial.chosen, "gain": round(self._trial.gain, 3)}
