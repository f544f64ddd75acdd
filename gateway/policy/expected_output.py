"""How long the answers to one key and model are: a high quantile of them, in constant memory."""

import math
from typing import Final

QUANTILE: Final = 0.9
"""The share of answers that are to be no longer than expected."""

_LONGEST: Final = 10**6
_SLOWEST: Final = 0.1


class ExpectedOutput:
    """The 90th percentile of output tokens, recent answers counting most.

    Stochastic approximation in log space (Robbins and Monro, 1951): an answer that is longer raises the
    estimate by 0.9 steps, another one lowers it by 0.1; at rest one in ten is longer.
    """

    __slots__ = ("_log", "_seen", "tokens")

    def __init__(self) -> None:
        self._log = 0.0
        self._seen = 0
        self.tokens = 1
        """So many tokens at most are to be expected; at least 1."""

    def learn(self, tokens: float) -> None:
        """An answer had this many tokens."""
        seen = math.log(min(max(tokens, 1.0), _LONGEST))
        self._seen += 1
        if self._seen == 1:
            self._log = seen
        else:
            step = max(_SLOWEST, 1.0 / self._seen)
            self._log += step * (QUANTILE if seen > self._log else QUANTILE - 1.0)
            self._log = min(max(self._log, 0.0), math.log(_LONGEST))
        self.tokens = math.ceil(math.exp(self._log))
