"""Which calls go to the strong tier: a quantile of the route's recent scores, and a budget in dollars.

No score is hard by itself. Score distributions differ between workloads, so a fixed threshold would send
nearly everything to one tier.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

WINDOW: Final = 1024
"""Number of scores behind the quantile."""

_STRIDE: Final = 37
"""Coprime to the number of percentiles, so that the initial scores are replaced evenly."""

_HORIZON: Final = 3600.0


class ScoreWindow:
    """The scores of a route's last calls; starts with the weights' percentiles, which calls replace."""

    __slots__ = ("_initial", "_order", "_sorted", "_ties")

    def __init__(self, percentiles: Sequence[float]) -> None:
        size = len(percentiles)
        self._initial = size
        self._order = deque([percentiles[at * _STRIDE % size] for at in range(size)])
        self._sorted = sorted(self._order)
        self._ties = 0.0

    def add(self, score: float) -> None:
        """Add the score of a call."""
        insort(self._sorted, score)
        self._order.append(score)
        if self._initial or len(self._order) > WINDOW:
            self._initial -= bool(self._initial)
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]

    def is_hard(self, score: float, share: float) -> bool:
        """Return whether the score is in the highest `share` (0 to 1) of the last calls.

        Of equal scores on the border, as many are admitted as the share has room for.
        """
        if share >= 1.0:
            return True
        size = len(self._sorted)
        above = size - bisect_right(self._sorted, score)
        equal = size - above - bisect_left(self._sorted, score)
        room = share * size - above
        if room <= 0.0:
            return False
        if room >= equal:
            return True
        self._ties += room / equal
        if self._ties < 1.0:
            return False
        self._ties -= 1.0
        return True


class DollarBucket:
    """A token bucket in dollars for the extra cost of strong answers.

    Money is in nano-dollars, time in monotonic seconds. The bucket holds an hour's allowance. Demand fades
    over the same hour, and determines the share of calls that the rate pays for.
    """

    __slots__ = (
        "_balance",
        "_bought",
        "_bought_count",
        "_offered",
        "_offered_count",
        "_per_second",
        "_started",
        "_updated",
    )

    def __init__(self, usd_per_day: int, now: float) -> None:
        self._per_second = usd_per_day / 86_400
        self._balance = self._per_second * _HORIZON
        self._started = self._updated = now
        self._offered = self._offered_count = 0.0
        self._bought = self._bought_count = 0.0

    def share(self, extra: int, now: float) -> float:
        """Return the affordable share of strong calls after one whose strong answer costs `extra` more."""
        self._refill(now)
        self._offered += extra
        self._offered_count += 1.0
        if self._balance < extra:
            return 0.0
        # Hard prompts are long: the bought answers cost more than the average one.
        price_ratio = 1.0
        if self._bought_count and self._offered:
            price_ratio = (self._bought / self._bought_count) / (self._offered / self._offered_count)
        seconds = max(min(now - self._started, _HORIZON), 1.0)
        demand = self._offered / seconds * price_ratio
        return min(self._per_second / demand, 1.0) if demand else 1.0

    def pay(self, extra: int) -> None:
        """Pay for a strong answer."""
        self._balance -= extra
        self._bought += extra
        self._bought_count += 1.0

    def _refill(self, now: float) -> None:
        passed = max(now - self._updated, 0.0)
        self._updated = now
        self._balance = min(self._balance + passed * self._per_second, self._per_second * _HORIZON)
        fade = max(1.0 - passed / _HORIZON, 0.0)
        self._offered *= fade
        self._offered_count *= fade
        self._bought *= fade
        self._bought_count *= fade
