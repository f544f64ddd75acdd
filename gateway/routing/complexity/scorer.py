"""The score of a prompt: how much more often the strong model would be right than the cheap one."""

from bisect import bisect_right
from math import fsum, sqrt
from operator import mul, sub
from typing import Final, NamedTuple

from gateway.routing.complexity.features import NAMES, Prompt, PromptReading, grams, read
from gateway.routing.complexity.weights import Weights

GRAMS_MOST: Final = 0.25
"""All words together move a score by at most this, either way."""


class Reason(NamedTuple):
    """A feature, or a word in quotes, and what it added to the score compared with an average prompt."""

    name: str
    added: float


class PromptScorer:
    """One set of weights, ready to score."""

    __slots__ = ("_added", "_bias", "_dense", "_grams", "_means", "_squares", "_starts", "weights")

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._dense = tuple(weights.dense.values())
        self._means = tuple(weights.means.values())
        self._bias = weights.bias - sum(map(mul, self._dense, self._means))
        self._grams = {
            tuple(gram.split(" ")) if " " in gram else gram: number
            for number, gram in enumerate(weights.grams, 1)
        }
        self._added, self._squares = zip((0.0, 0.0), *weights.grams.values(), strict=True)
        self._starts = [start for start, _ in weights.table]

    def score(self, prompt: Prompt) -> float:
        """The raw score; it orders prompts."""
        return self.judge(read(prompt))

    def judge(self, reading: PromptReading) -> float:
        """The raw score of a prompt that was read."""
        score: float = self._bias + sum(map(mul, self._dense, reading.dense))
        if not self._grams:
            return score
        return score + min(max(self._words(reading), -GRAMS_MOST), GRAMS_MOST)

    def _words(self, reading: PromptReading) -> float:
        found = {*filter(None, map(self._grams.get, grams(reading.words)))}
        size = fsum(map(self._squares.__getitem__, found))  # exact, so that a set's order does not matter
        return fsum(map(self._added.__getitem__, found)) / sqrt(size) if size else 0.0

    def gain(self, score: float) -> float:
        """The calibrated gain at a score: what share more of the answers the strong model has right."""
        at = bisect_right(self._starts, score) - 1
        return self.weights.table[max(at, 0)][1]

    def percentile(self, score: float) -> int:
        """The percentage of the training prompts that score lower."""
        return min(bisect_right(self.weights.percentiles, score), 100)

    def names(self, reading: PromptReading, up: bool, most: int = 3) -> list[str]:
        """The dense features that moved the score most in one direction, strongest first. Cheap."""
        added = list(map(mul, self._dense, map(sub, reading.dense, self._means)))
        order = sorted(range(len(added)), key=added.__getitem__, reverse=up)
        return [NAMES[at] for at in order[:most] if (added[at] > 0.0) is up and added[at]]

    def reasons(self, prompt: Prompt, most: int = 5) -> list[Reason]:
        """What moved the score most, strongest first. For people; far slower than `score`."""
        reading = read(prompt)
        added = [
            Reason(name, weight * (value - mean))
            for name, weight, value, mean in zip(NAMES, self._dense, reading.dense, self._means, strict=True)
        ]
        found = {gram: self._grams.get(gram, 0) for gram in grams(reading.words)}
        size = sqrt(sum(self._squares[number] for number in found.values())) or 1.0
        added += [
            Reason(f'"{gram if isinstance(gram, str) else " ".join(gram)}"', self._added[number] / size)
            for gram, number in found.items()
        ]
        return sorted((one for one in added if one.added), key=lambda one: -abs(one.added))[:most]
