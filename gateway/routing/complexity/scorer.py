"""Scores a prompt: the expected gain in correct answers of the strong model over the cheap one."""

from bisect import bisect_left, bisect_right
from math import sqrt
from operator import mul, sub
from typing import Final, NamedTuple

from gateway.routing.complexity.features import NAMES, Prompt, PromptReading, grams, read
from gateway.routing.complexity.weights import Weights

MAX_WORD_EFFECT: Final = 0.25
"""Bound on the effect of all words on a score, in either direction."""


_ROUNDED: Final = 1e-6
"""More than rounding takes from the percentiles of a file."""


class Reason(NamedTuple):
    """A feature, or a word in quotes, and its effect on the score relative to an average prompt."""

    name: str
    added: float


class PromptScorer:
    """Scores prompts with one set of weights."""

    __slots__ = ("_added", "_bias", "_dense", "_grams", "_means", "_squares", "_starts", "weights")

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._dense = tuple(weights.dense.values())
        self._means = tuple(weights.means.values())
        self._bias = weights.bias - sum(map(mul, self._dense, self._means))
        self._grams = {
            tuple(gram.split(" ")) if " " in gram else gram: number for number, gram in enumerate(weights.grams, 1)
        }
        self._added, self._squares = zip((0.0, 0.0), *weights.grams.values(), strict=True)
        self._starts = [start for start, _ in weights.table]

    def score(self, prompt: Prompt) -> float:
        """Return the raw score, which orders prompts."""
        return self.score_reading(read(prompt))

    def score_reading(self, reading: PromptReading) -> float:
        """Return the raw score of a prompt that has been read."""
        score: float = self._bias + sum(map(mul, self._dense, reading.dense))
        if not self._grams:
            return score
        return score + min(max(self._words(reading), -MAX_WORD_EFFECT), MAX_WORD_EFFECT)

    def _words(self, reading: PromptReading) -> float:
        numbers = {*filter(None, map(self._grams.get, grams(reading.words)))}
        size = sum(map(self._squares.__getitem__, numbers))
        return sum(map(self._added.__getitem__, numbers)) / sqrt(size) if size else 0.0

    def gain(self, score: float) -> float:
        """Return the calibrated gain at a score: the strong model's lead in correct answers, as a share."""
        at = bisect_right(self._starts, score) - 1
        return self.weights.table[max(at, 0)][1]

    def percentile(self, score: float) -> int:
        """Return the percentage of the prompts behind the percentiles that have a lower score."""
        return min(bisect_left(self.weights.percentiles, score - _ROUNDED), 100)

    def names(self, reading: PromptReading, up: bool, limit: int = 3) -> list[str]:
        """Return the dense features with the largest effect in one direction, strongest first. Cheap."""
        added = list(map(mul, self._dense, map(sub, reading.dense, self._means)))
        order = sorted(range(len(added)), key=added.__getitem__, reverse=up)
        return [NAMES[at] for at in order[:limit] if (added[at] > 0.0) is up and added[at]]

    def reasons(self, prompt: Prompt, limit: int = 5) -> list[Reason]:
        """Return the features and words with the largest effect, strongest first; far slower than `score`."""
        reading = read(prompt)
        added = [
            Reason(name, weight * (value - mean))
            for name, weight, value, mean in zip(NAMES, self._dense, reading.dense, self._means, strict=True)
        ]
        numbers = {gram: self._grams.get(gram, 0) for gram in grams(reading.words)}
        size = sqrt(sum(self._squares[number] for number in numbers.values())) or 1.0
        added += [
            Reason(f'"{gram if isinstance(gram, str) else " ".join(gram)}"', self._added[number] / size)
            for gram, number in numbers.items()
        ]
        return sorted((reason for reason in added if reason.added), key=lambda r: -abs(r.added))[:limit]
