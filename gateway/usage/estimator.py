"""Estimates a call's tokens before it is sent: the input from its text weight, the output from its cap or
from the key's earlier answers of the model."""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from math import ceil
from operator import mul
from typing import Final

from gateway.core.tokens import OutputCaps, TokenEstimate, TokenUsage

QUANTILE: Final = 0.9
"""Share of answers that should be no longer than expected."""

_MAX_TOKENS: Final = 10**6
_MIN_STEP: Final = 0.1


class ExpectedOutput:
    """Running 90th percentile of output tokens; recent answers weigh most.

    Stochastic approximation in log space (Robbins and Monro, 1951): a longer answer raises the estimate by
    0.9 steps, a shorter one lowers it by 0.1, so that in equilibrium one answer in ten is longer.
    """

    __slots__ = ("_log", "answers", "tokens")

    def __init__(self) -> None:
        self._log = 0.0
        self.answers = 0
        self.tokens = 1
        """The expected maximum; at least 1."""

    def learn(self, tokens: float) -> None:
        """Update with one answer's output tokens."""
        observed = math.log(min(max(tokens, 1.0), _MAX_TOKENS))
        self.answers += 1
        if self.answers == 1:
            self._log = observed
        else:
            step = max(_MIN_STEP, 1.0 / self.answers)
            self._log += step * (QUANTILE if observed > self._log else QUANTILE - 1.0)
            self._log = min(max(self._log, 0.0), math.log(_MAX_TOKENS))
        self.tokens = math.ceil(math.exp(self._log))


FITTED: Final = (4.0, 0.205, 1.3, 0.31, 0.32, 0.73, 0.75, 0.7, 0.5, 2.0, 800.0)
"""Tokens per turn, per plain, digit, punctuation, narrow, Hangul, Han, kana, wide and astral character, and
per image, sound or file."""

CLASSES: Final = len(FITTED)

MIN_FACTOR: Final = 0.25
MAX_FACTOR: Final = 4.0
"""Bounds of a class's factor, relative to FITTED."""

_IMPLAUSIBLE: Final = 16.0
"""Counts off by more than this factor are ignored: they reflect the upstream's counting, not the text."""

_MAX_LOG_ERROR: Final = math.log(2.0)
_MIN_RATE: Final = 0.05


class TokenFactors:
    """Tokens per character of each class for one model's tokenizer."""

    __slots__ = ("_reports", "weights")

    def __init__(self) -> None:
        self.weights: list[float] = list(FITTED)
        self._reports = 0

    def tokens(self, counts: Sequence[int]) -> float:
        """Return the expected tokens of these counts by class; further entries of `counts` are ignored."""
        tokens: float = sum(map(mul, counts, self.weights))
        return tokens

    def learn(self, counts: Sequence[int], actual: int) -> None:
        """Update with the upstream's count of one text.

        Implausible counts are ignored, one step at most halves or doubles, and the first reports weigh most.
        """
        parts: list[float] = list(map(mul, counts, self.weights))
        expected = sum(parts)
        if expected <= 0.0 or not expected / _IMPLAUSIBLE <= actual <= expected * _IMPLAUSIBLE:
            return
        error = min(max(math.log(actual / expected), -_MAX_LOG_ERROR), _MAX_LOG_ERROR)
        self._reports += 1
        rate = max(_MIN_RATE, 0.5 / self._reports)
        # A class with this share of the estimate moves by rate * error * share / sum(share ** 2).
        move = rate * error * expected / sum(map(mul, parts, parts))
        for at, part in enumerate(parts):
            if part:  # most texts have few classes
                weight, first = self.weights[at] * math.exp(move * part), FITTED[at]
                self.weights[at] = min(max(weight, first * MIN_FACTOR), first * MAX_FACTOR)


Exact = Callable[[bytes, str], int | None]
"""Counts the input tokens of a body for a model; None if it cannot."""

FIRST_GUESS: Final = 256
"""Expected output tokens without a cap before anything has been learned."""


class Estimator:
    """Learns per upstream model and per key: both come from the config, so memory is bounded."""

    def __init__(self, exact: Exact | None = None) -> None:
        self._exact = exact
        self._factors: defaultdict[str, TokenFactors] = defaultdict(TokenFactors)
        self._outputs: dict[tuple[str, str], ExpectedOutput] = {}

    def retain(self, models: Container[str], keys: Container[str] | None) -> None:
        """Forget what was learned of all other models and keys; of no key if `keys` is None."""
        self._factors = defaultdict(
            TokenFactors, {model: factors for model, factors in self._factors.items() if model in models}
        )
        self._outputs = {
            (key, model): output
            for (key, model), output in self._outputs.items()
            if (keys is None or key in keys) and model in models
        }

    def estimate(
        self, weight: Sequence[int], caps: OutputCaps, model: str, key: str, body: bytes = b""
    ) -> TokenEstimate:
        """Return the estimate of a call.

        `weight` has one count per class of `FITTED`, then the number of token ids sent by the client. Only
        an exact counter reads `body`.
        """
        counted = self._exact(body, model) if self._exact is not None else None
        if counted is None:
            counted = ceil(self._factors[model].tokens(weight)) + weight[-1]
        cap, choices = caps.output, caps.choices
        if cap is not None:
            return TokenEstimate(counted, cap, True, choices, weight)
        expected = self._outputs.get((key, model))
        each = expected.tokens if expected is not None else FIRST_GUESS
        return TokenEstimate(counted, each * choices, False, choices, weight)

    def learn(self, estimate: TokenEstimate, model: str, key: str, tokens: TokenUsage) -> None:
        """Update with the upstream's count; output lengths are learned only from calls without a cap."""
        weight = estimate.weight
        if len(weight) > CLASSES:
            self._factors[model].learn(weight[:CLASSES], tokens.input - weight[CLASSES])
        if not estimate.capped and tokens.output > 0:
            expected = self._outputs.setdefault((key, model), ExpectedOutput())
            expected.learn(tokens.output / estimate.choices)
