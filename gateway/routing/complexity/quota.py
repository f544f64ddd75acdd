"""Which calls are among the hardest: a quantile of the route's own recent scores, and a purse of dollars.

No score is hard in itself. How scores are spread differs from one workload to the next, so a fixed border
would send nearly everything one way.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

REMEMBERED: Final = 1024
"""Scores that make the quantile."""

_STRIDE: Final = 37
"""Shares no factor with the number of percentiles, so that what goes first is spread over all of them."""

_HORIZON: Final = 3600.0


class ScoreWindow:
    """The scores of a route's last calls; at first those that came with the weights, one less each call."""

    __slots__ = ("_first", "_order", "_sorted", "_ties")

    def __init__(self, percentiles: Sequence[float]) -> None:
        size = len(percentiles)
        self._first = size
        self._order = deque([percentiles[at * _STRIDE % size] for at in range(size)])
        self._sorted = sorted(self._order)
        self._ties = 0.0

    def add(self, score: float) -> None:
        """One more call."""
        insort(self._sorted, score)
        self._order.append(score)
        if self._first or len(self._order) > REMEMBERED:
            self._first -= bool(self._first)
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]

    def is_hard(self, score: float, share: float) -> bool:
        """Whether the score is in the highest `share` (0 to 1) of the last calls.

        Equal scores on the border are let through in turn, as many as the share has room for.
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


class Purse:
    """Dollars that may be spent on strong answers beyond what cheap ones cost, at a steady rate.

    Money is nano-dollars, time monotonic seconds. What is saved is bounded by an hour's allowance. Offers
    fade by the same hour, and tell which share of them the rate pays for.
    """

    __slots__ = (
        "_at",
        "_bought",
        "_bought_count",
        "_offered",
        "_offered_count",
        "_per_second",
        "_saved",
        "_since",
    )

    def __init__(self, usd_per_day: int, now: float) -> None:
        self._per_second = usd_per_day / 86_400
        self._saved = self._per_second * _HORIZON
        self._since = self._at = now
        self._offered = self._offered_count = 0.0
        self._bought = self._bought_count = 0.0

    def share(self, extra: int, now: float) -> float:
        """The share of calls that can be strong, now that one came whose strong answer costs `extra` more."""
        self._pass(now)
        self._offered += extra
        self._offered_count += 1.0
        if self._saved < extra:
            return 0.0
        # Hard prompts are long ones: what has been bought costs more than the average offer.
        dearer = 1.0
        if self._bought_count and self._offered:
            dearer = (self._bought / self._bought_count) / (self._offered / self._offered_count)
        seconds = max(min(now - self._since, _HORIZON), 1.0)
        wanted = self._offered / seconds * dearer
        return min(self._per_second / wanted, 1.0) if wanted else 1.0

    def pay(self, extra: int) -> None:
        """A strong answer was chosen."""
        self._saved -= extra
        self._bought += extra
        self._bought_count += 1.0

    def _pass(self, now: float) -> None:
        passed = max(now - self._at, 0.0)
        self._at = now
        self._saved = min(self._saved + passed * self._per_second, self._per_second * _HORIZON)
        kept = max(1.0 - passed / _HORIZON, 0.0)
        self._offered *= kept
        self._offered_count *= kept
        self._bought *= kept
        self._bought_count *= kept
