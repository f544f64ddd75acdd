"""Fitting weights: ridge regression of the gain towards a prior, then isotonic calibration.

The dense part is drawn towards what is known already: signs written by hand for the shipped weights, the
shipped weights for an operator's own. Words start at zero and are divided by the length of their vector, so
they matter only where labels are many. Solved in the dual, as there are fewer rows than words.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.cli.router.dataset import LabelledPrompt, folds
from gateway.routing.complexity.features import NAMES, PromptReading, grams, read
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import PERCENTS, Weights

BY_HAND: Final[Mapping[str, float]] = dict.fromkeys(NAMES, 0.0) | {
    "length": 0.06,
    "reasoning words": 0.05,
    "building words": 0.05,
    "analysis words": 0.05,
    "simple-task words": -0.05,
    "turns": 0.02,
    "context": 0.01,
    "tools": 0.03,
    "output cap": 0.01,
}
"""What a feature is worth before any label is seen: ten right answers in a hundred are 0.1."""

_DENSE: Final = 0.015
_DENSE_AGAIN: Final = 0.01
_GRAMS: Final = 0.12
"""How far labels may move a weight: standard deviations of the prior. Those of the words are for a vector of
length 1; the second is for a prior that was itself measured."""

_NOISE: Final = 0.2
"""Variance of a gain about its expectation; that of RouteLLM's tables is 0.21 to 0.32."""

_MOST_GRAMS: Final = 8000
_MOST_ROWS: Final = 6000
_FOLDS: Final = 5
_FLOOR: Final = 0.1
Floats = NDArray[np.float64]


class Prior(NamedTuple):
    """What is believed before the labels, and whether words are learned beside it."""

    dense: Mapping[str, float]
    spread: float
    grams: bool


SHIPPED: Final = Prior(BY_HAND, _DENSE, grams=False)
"""Of the shipped weights: words do not carry over to other people's prompts, so none are learned."""


def again(weights: Weights) -> Prior:
    """To refit on the labels of one's own traffic."""
    return Prior(weights.dense, _DENSE_AGAIN, grams=True)


def fit(rows: Sequence[LabelledPrompt], prior: Prior, provenance: Mapping[str, str | int | float]) -> Weights:
    """Weights with calibration and percentiles from scores of rows that each time were held out."""
    rows = rows[:_MOST_ROWS] if prior.grams else rows
    readings = {id(row): read(row.prompt) for row in rows}
    scores: list[float] = []
    gains: list[float] = []
    for known, held in folds(rows, _FOLDS):
        if known and held:
            scorer = PromptScorer(_solve(known, readings, prior, {}))
            scores += [scorer.score(row.prompt) for row in held]
            gains += [row.gain for row in held]
    weights = _solve(rows, readings, prior, dict(provenance))
    return Weights(
        weights.provenance,
        weights.bias,
        weights.dense,
        weights.means,
        weights.grams,
        isotonic(scores, gains),
        [_short(one) for one in np.quantile(scores, np.linspace(0, 1, PERCENTS))],
    )


def _solve(
    rows: Sequence[LabelledPrompt],
    readings: Mapping[int, PromptReading],
    prior: Prior,
    provenance: dict[str, str | int | float],
) -> Weights:
    """The weights alone."""
    read_rows = [readings[id(row)] for row in rows]
    dense = np.array([reading.dense for reading in read_rows])
    means = dense.mean(0)
    dense = dense - means
    believed = np.array([prior.dense[name] for name in NAMES])
    gains = np.array([row.gain for row in rows])
    vocabulary, rarity, words = (
        _words(read_rows) if prior.grams else ([], np.zeros(0), np.zeros((len(rows), 0)))
    )
    usual = words.mean(0)
    words = words - usual
    if prior.grams:
        kernel = prior.spread**2 * dense @ dense.T + _GRAMS**2 * words @ words.T
        pull = np.linalg.solve(kernel + _NOISE * np.eye(len(rows)), gains - gains.mean() - dense @ believed)
        learned = believed + prior.spread**2 * dense.T @ pull
        spoken = _GRAMS**2 * words.T @ pull
    else:
        gram = dense.T @ dense + np.eye(len(NAMES)) * _NOISE / prior.spread**2
        learned = believed + np.linalg.solve(gram, dense.T @ (gains - gains.mean() - dense @ believed))
        spoken = np.zeros(0)
    return Weights(
        provenance,
        _short(gains.mean() - spoken @ usual),
        dict(zip(NAMES, map(_short, learned), strict=True)),
        dict(zip(NAMES, map(_short, means), strict=True)),
        {
            word: (_short(weight * rare), _short(rare**2))
            for word, weight, rare in zip(vocabulary, spoken, rarity, strict=True)
        },
        [(0.0, 0.0)],
        [],
    )


def _words(readings: Sequence[PromptReading]) -> tuple[list[str], Floats, Floats]:
    """Words and pairs that stand in two rows at least, how rare they are, and the rows as unit vectors."""
    sets = [{_joined(gram) for gram in grams(reading.words)} for reading in readings]
    common = Counter(gram for row in sets for gram in sorted(row)).most_common(_MOST_GRAMS)
    vocabulary = [gram for gram, rows in common if rows > 1]
    rarity = np.array([np.log(len(sets) / rows) + _FLOOR for _, rows in common if rows > 1])
    place = {gram: at for at, gram in enumerate(vocabulary)}
    table = np.zeros((len(sets), len(vocabulary)))
    for row, gramset in zip(table, sets, strict=True):
        row[[place[gram] for gram in gramset if gram in place]] = 1.0
    table *= rarity
    sizes = np.sqrt((table**2).sum(1, keepdims=True))
    return vocabulary, rarity, np.divide(table, sizes, out=table, where=sizes > 0)


def _joined(gram: str | tuple[str, str]) -> str:
    return gram if isinstance(gram, str) else " ".join(gram)


def isotonic(scores: Sequence[float], gains: Sequence[float]) -> list[tuple[float, float]]:
    """From each score on, the gain to expect: the best rising steps (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []  # first score, mean gain, rows
    for score, equal in groupby(sorted(zip(scores, gains, strict=True)), key=itemgetter(0)):
        told = [gain for _, gain in equal]
        block = (score, sum(told) / len(told), len(told))
        while blocks and blocks[-1][1] >= block[1]:
            first, mean, rows = blocks.pop()
            count = rows + block[2]
            block = (first, (mean * rows + block[1] * block[2]) / count, count)
        blocks.append(block)
    return [(_short(first), _short(mean)) for first, mean, _ in blocks]


def _short(value: float | np.floating) -> float:
    """Six digits: enough to score by, and the same on every machine."""
    return float(f"{value:.6g}")
