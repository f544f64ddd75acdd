"""Virtual token counters: the tokens that each key used recently, decaying by half in each half-life.

The fair queueing is VTC (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024). Charges are
stored as if made at a single moment, the epoch: a charge at `t` weighs 2 ** ((t - epoch) / half-life). All
counters then decay together without being touched, and compare directly.
"""

from collections.abc import Iterable
from typing import Final

HALF_LIFE_S: Final = 60.0
CREDIT_RETAINED: Final = 0.95
"""A key that was idle starts at no less than this part of the smallest counter of the active keys."""
_MAX_HALF_LIVES: Final = 64.0  # after these the epoch moves on, long before a float overflows
_NEGLIGIBLE: Final = 0.001  # tokens; a smaller counter is dropped


class VirtualTokenCounter:
    """Counters by key, in tokens of the epoch. `weight(now)` converts today's tokens into them."""

    __slots__ = ("_counters", "_credits", "_epoch", "_unsettled")

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._credits: dict[str, float] = {}  # of keys that have entered
        self._unsettled: dict[str, float] = {}  # the part of each counter that is still an estimate
        self._epoch = 0.0

    def of(self, key: str) -> float:
        """The counter of a key; 0 if it was never charged."""
        return self._counters.get(key, 0.0)

    def weight(self, at: float) -> float:
        """What one token charged at `at` adds to a counter."""
        half_lives = (at - self._epoch) / HALF_LIFE_S
        if half_lives > _MAX_HALF_LIVES:
            self._move_epoch(at, half_lives)
            return 1.0
        weight: float = 2.0**half_lives
        return weight

    def charge(self, key: str, tokens: float, at: float) -> None:
        """Charge the tokens that a call is expected to use."""
        weighted = tokens * self.weight(at)  # first: it may move the epoch, and the counters with it
        self._counters[key] = self._counters.get(key, 0.0) + weighted
        self._unsettled[key] = self._unsettled.get(key, 0.0) + weighted

    def settle(self, key: str, tokens: float, used: float, at: float) -> None:
        """Correct a charge of `tokens` made at `at` to the tokens `used`."""
        weight = self.weight(at)
        self._counters[key] = self._counters.get(key, 0.0) + (used - tokens) * weight
        self._unsettled[key] = self._unsettled.get(key, 0.0) - tokens * weight

    def entering(self, key: str, rivals: Iterable[str]) -> float:
        """The counter with which a key would become active beside its rivals."""
        return self._entering(key, rivals)[0]

    def enter(self, key: str, rivals: Iterable[str]) -> None:
        """Make a key active beside its rivals, with a bounded credit for its idle time.

        VTC lifts the key to the smallest counter of its rivals or, without any, of the key that left last. A
        key with an occasional call then takes turns with a flood as an equal; with a credit its few calls go
        first. In return, a key that comes back with a flood can monopolise the queue for at most
        HALF_LIFE_S * log2(2 - CREDIT_RETAINED), 4 s.
        """
        self._counters[key], self._credits[key] = self._entering(key, rivals)

    def _entering(self, key: str, rivals: Iterable[str]) -> tuple[float, float]:
        # Without the rivals' own credits, or each key would get more than the one before. And without the
        # estimates of calls in flight, which may turn out much too high.
        lowest = min(
            (self.of(rival) - self._unsettled.get(rival, 0.0) + self._credits[rival] for rival in rivals),
            default=0.0,
        )
        level = max(self.of(key), lowest)
        counter = max(self.of(key), CREDIT_RETAINED * level)
        return counter, level - counter

    def _move_epoch(self, now: float, half_lives: float) -> None:
        shrink = 2.0**-half_lives  # 0.0 after a very long time
        self._epoch = now
        self._credits = {key: credit * shrink for key, credit in self._credits.items()}
        self._unsettled = {key: tokens * shrink for key, tokens in self._unsettled.items()}
        self._counters = {
            key: smaller for key, counter in self._counters.items() if (smaller := counter * shrink) > _NEGLIGIBLE
        }
