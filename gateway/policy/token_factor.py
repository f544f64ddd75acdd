"""Tokens from counts of characters, with factors learned per model from what its upstream reports.

The first weights are a least-squares fit of the relative error over texts in 12 languages, code and JSON,
with o200k and Qwen3. One constant cannot serve two tokenizers, so each class has a factor of its own. These
learn by normalised least mean squares in log space: a call's error is laid to the classes by their share in
its estimate.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import Final

FITTED: Final = (4.0, 0.205, 1.3, 0.31, 0.32, 0.73, 0.75, 0.7, 0.5, 2.0, 800.0)
"""Tokens per turn, plain character, digit, punctuation mark, narrow, Hangul, Han, kana, wide and astral
character, and per image, sound or file."""

CLASSES: Final = len(FITTED)

NARROWEST: Final = 0.25
WIDEST: Final = 4.0
"""A factor stays between these."""

_ABSURD: Final = 16.0
"""A report this many times off tells of the upstream's counting, not of the text."""

_STEP: Final = math.log(2.0)
_SLOWEST: Final = 0.05


class TokenFactors:
    """What one model's tokenizer makes of each class."""

    __slots__ = ("_seen", "weights")

    def __init__(self) -> None:
        self.weights: list[float] = list(FITTED)
        self._seen = 0

    def tokens(self, counts: Sequence[int]) -> float:
        """Expected tokens of this much of each class; what is beyond the classes is not counted."""
        tokens: float = sum(map(mul, counts, self.weights))
        return tokens

    def learn(self, counts: Sequence[int], actual: int) -> None:
        """The upstream counted `actual` tokens. What cannot be true is ignored, one step is at most a halving
        or doubling, the first reports weigh most."""
        parts: list[float] = list(map(mul, counts, self.weights))
        expected = sum(parts)
        if expected <= 0.0 or not expected / _ABSURD <= actual <= expected * _ABSURD:
            return
        error = min(max(math.log(actual / expected), -_STEP), _STEP)
        self._seen += 1
        rate = max(_SLOWEST, 0.5 / self._seen)
        # A class's share is its part of the estimate, and moves by rate * error * share / sum(share ** 2).
        move = rate * error * expected / sum(map(mul, parts, parts))
        for at, part in enumerate(parts):
            if part:  # most texts have few classes
                weight, first = self.weights[at] * math.exp(move * part), FITTED[at]
                self.weights[at] = min(max(weight, first * NARROWEST), first * WIDEST)
