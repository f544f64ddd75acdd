"""How many tokens a call will take, before it is sent: the input from its weight, the output from its cap, or
from what this key's answers of this model have been like."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil
from operator import mul
from typing import Final

from gateway.core.call import TokenEstimate, TokenUsage

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
_SLOWEST_MEAN: Final = 0.05


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
        rate = max(_SLOWEST_MEAN, 0.5 / self._seen)
        # A class's share is its part of the estimate, and moves by rate * error * share / sum(share ** 2).
        move = rate * error * expected / sum(map(mul, parts, parts))
        for at, part in enumerate(parts):
            if part:  # most texts have few classes
                weight, first = self.weights[at] * math.exp(move * part), FITTED[at]
                self.weights[at] = min(max(weight, first * NARROWEST), first * WIDEST)


RequestCaps = tuple[int | None, int]
"""Output tokens at most, of all choices together (None: no cap), and the number of choices."""

Exact = Callable[[bytes, str], int | None]
"""Input tokens of a body for a model, counted; None where it cannot tell."""

FIRST_GUESS: Final = 256
"""Output tokens of an answer without a cap while nothing has been learned."""


class Estimator:
    """Learns per model as sent upstream, and per key; both are closed sets, so memory is bounded."""

    def __init__(self, exact: Exact | None = None) -> None:
        self._exact = exact
        self._factors: defaultdict[str, TokenFactors] = defaultdict(TokenFactors)
        self._outputs: dict[tuple[str, str], ExpectedOutput] = {}

    def estimate(
        self, weight: Sequence[int], caps: RequestCaps, model: str, key: str, body: bytes = b""
    ) -> TokenEstimate:
        """What the call will take.

        `weight` counts by the classes of `token_factor.FITTED`, and last the tokens that the client has
        counted out itself. Only an exact counter looks at `body`.
        """
        counted = self._exact(body, model) if self._exact is not None else None
        if counted is None:
            counted = ceil(self._factors[model].tokens(weight)) + weight[-1]
        cap, choices = caps
        if cap is not None:
            return TokenEstimate(counted, cap, True, choices, weight)
        expected = self._outputs.get((key, model))
        each = expected.tokens if expected is not None else FIRST_GUESS
        return TokenEstimate(counted, each * choices, False, choices, weight)

    def learn(self, estimate: TokenEstimate, model: str, key: str, tokens: TokenUsage) -> None:
        """The call took `tokens`, as its upstream counted them. How long answers are is learned from those
        without a cap only.
        """
        weight = estimate.weight
        if len(weight) > CLASSES:
            self._factors[model].learn(weight[:CLASSES], tokens.input - weight[CLASSES])
        if not estimate.capped and tokens.output > 0:
            expected = self._outputs.setdefault((key, model), ExpectedOutput())
            expected.learn(tokens.output / estimate.choices)
