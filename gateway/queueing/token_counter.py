"""How many tokens each key has had of late: virtual counters that decay by half in each half-life.

Charges are kept as if made at one moment, the epoch: a charge at `t` weighs 2 ** ((t - epoch) / half-life).
All counters then decay together without being touched, and compare as they are.
"""

from collections.abc import Iterable
from typing import Final

HALF_LIFE_S: Final = 60.0
CREDIT_RETAINED: Final = 0.95
"""A key that was idle begins at no less than this part of the smallest counter of those that are not."""
_HIGHEST: Final = 64.0  # half-lives after which the epoch moves on, long before a float overflows
_NOTHING: Final = 0.001  # tokens; a counter below it is forgotten


class VirtualTokenCounter:
    """Counters by key, in tokens of the epoch. `weight(now)` turns today's tokens into such ones."""

    __slots__ = ("_counters", "_credits", "_epoch", "_open")

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._credits: dict[str, float] = {}  # of those that have entered
        self._open: dict[str, float] = {}  # of the counters, what is only expected yet
        self._epoch = 0.0

    def of(self, key: str) -> float:
        """The counter of a key; one that never had anything has 0."""
        return self._counters.get(key, 0.0)

    def weight(self, at: float) -> float:
        """What one token that is charged at `at` counts."""
        half_lives = (at - self._epoch) / HALF_LIFE_S
        if half_lives > _HIGHEST:
            self._move_epoch(at, half_lives)
            return 1.0
        weight: float = 2.0**half_lives
        return weight

    def charge(self, key: str, tokens: float, at: float) -> None:
        """Count tokens that a call is expected to take."""
        weighed = tokens * self.weight(at)  # first: it may move the epoch, and the counters with it
        self._counters[key] = self._counters.get(key, 0.0) + weighed
        self._open[key] = self._open.get(key, 0.0) + weighed

    def settle(self, key: str, tokens: float, used: float, at: float) -> None:
        """A call that was charged `tokens` at `at` has taken `used`: exactly the difference goes."""
        weight = self.weight(at)
        self._counters[key] = self._counters.get(key, 0.0) + (used - tokens) * weight
        self._open[key] = self._open.get(key, 0.0) - tokens * weight

    def entering(self, key: str, others: Iterable[str]) -> float:
        """The counter with which a key would join others."""
        return self._entering(key, others)[0]

    def enter(self, key: str, others: Iterable[str]) -> None:
        """The key begins to have calls beside the others: idle time has earned it a bounded credit.

        VTC (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024) lifts it to the smallest
        counter of the others or, where there are none, of the one that left last. Then a key that calls now
        and then takes turns with a flood as if it were one; with a credit its few calls go first. In return a
        key that comes back with a flood of its own can have the line to itself for at most
        HALF_LIFE_S * log2(2 - CREDIT_KEPT), 4 s.
        """
        self._counters[key], self._credits[key] = self._entering(key, others)

    def _entering(self, key: str, others: Iterable[str]) -> tuple[float, float]:
        # Without the credits that they have themselves; else each would get more than the one before. And
        # without what is expected of their calls under way: that may come to much less.
        lowest = min(
            (self.of(other) - self._open.get(other, 0.0) + self._credits[other] for other in others),
            default=0.0,
        )
        level = max(self.of(key), lowest)
        counter = max(self.of(key), CREDIT_RETAINED * level)
        return counter, level - counter

    def _move_epoch(self, now: float, half_lives: float) -> None:
        shrink = 2.0**-half_lives  # 0.0 after a very long time
        self._epoch = now
        self._credits = {key: credit * shrink for key, credit in self._credits.items()}
        self._open = {key: tokens * shrink for key, tokens in self._open.items()}
        self._counters = {
            key: smaller
            for key, counter in self._counters.items()
            if (smaller := counter * shrink) > _NOTHING
        }
