"""Fits the weights: ridge regression of the gain towards a prior, then isotonic calibration.

The dense features shrink towards a prior: weights written by hand for the shipped file, the shipped file for
an operator's log. A weight never gets a sign against sense: proofs, code and formulas never lower a score.
Words start at zero and are divided by the length of their vector, so they matter only with many labels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.cli.router.dataset import LabelledPrompt, folds
from gateway.routing.complexity.features import NAMES, Prompt, PromptReading, grams, read
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import PERCENTS, Weights

BY_HAND: Final[Mapping[str, float]] = dict.fromkeys(NAMES, 0.0) | {
    "length": 0.08,
    "proof words": 0.07,
    "building words": 0.07,
    "analysis words": 0.04,
    "mathematics words": 0.0075,
    "science words": 0.0075,
    "code words": 0.07,
    "simple-task words": -0.02,
    "fact questions": -0.02,
    "mathematical marks": 0.004,
    "code marks": 0.0075,
    "turns": 0.005,
    "context": 0.003,
    "tools": 0.02,
    "output cap": 0.003,
}
"""The prior weight of each feature: 0.1 is ten right answers in a hundred."""

_NEGATIVE: Final = frozenset({"simple-task words", "fact questions"})
_SIGNS: Final = np.array([-1.0 if name in _NEGATIVE else 1.0 for name in NAMES])
"""The sign that a weight may have, however the labels are."""

SPREAD: Final = 0.003
SPREAD_AGAIN: Final = 0.03
_GRAMS: Final = 0.12
"""Standard deviations of the prior, which bound how far labels move a weight: little by other people's models
and prompts, far by an operator's own. `_GRAMS` is for a word vector of length 1."""

_NOISE: Final = 0.2
"""Variance of a gain around its expectation; 0.21 to 0.32 in RouteLLM's tables."""

_MAX_GRAMS: Final = 8000
_MAX_ROWS: Final = 6000
_FOLDS: Final = 5
_FLOOR: Final = 0.1
_SWEEPS: Final = 200
Floats = NDArray[np.float64]


class Prior(NamedTuple):
    """The dense weights before any labels, their spread, and whether words are learned too."""

    dense: Mapping[str, float]
    spread: float
    grams: bool


SHIPPED: Final = Prior(BY_HAND, SPREAD, grams=False)
"""The prior of the shipped weights, without words, which do not transfer to other people's prompts."""


def again(weights: Weights) -> Prior:
    """Return the prior for a refit on an operator's traffic."""
    return Prior(weights.dense, SPREAD_AGAIN, grams=True)


def fit(
    rows: Sequence[LabelledPrompt],
    prior: Prior,
    provenance: Mapping[str, str | int | float],
    first: Sequence[Prompt] = (),
) -> Weights:
    """Fit weights; the calibration comes from the scores of held-out rows.

    The percentiles, with which a route begins, are those of the prompts `first`, or of the held-out rows.
    """
    rows = rows[:_MAX_ROWS] if prior.grams else rows
    readings = {id(row): read(row.prompt) for row in rows}
    scores: list[float] = []
    gains: list[float] = []
    for training, held_out in folds(rows, _FOLDS):
        if training and held_out:
            scorer = PromptScorer(_solve(training, readings, prior, {}))
            scores += [scorer.score(row.prompt) for row in held_out]
            gains += [row.gain for row in held_out]
    weights = _solve(rows, readings, prior, dict(provenance))
    scorer = PromptScorer(weights)
    started = [scorer.score(prompt) for prompt in first] or scores
    return Weights(
        weights.provenance,
        weights.bias,
        weights.dense,
        weights.means,
        weights.grams,
        isotonic(scores, gains),
        [_short(score) for score in np.quantile(started, np.linspace(0, 1, PERCENTS))],
    )


def fit_order(rows: Sequence[LabelledPrompt], prior: Prior) -> Weights:
    """Fit weights that only order prompts, without calibration and percentiles: six times as fast."""
    rows = rows[:_MAX_ROWS] if prior.grams else rows
    return _solve(rows, {id(row): read(row.prompt) for row in rows}, prior, {})


def _solve(
    rows: Sequence[LabelledPrompt],
    readings: Mapping[int, PromptReading],
    prior: Prior,
    provenance: dict[str, str | int | float],
) -> Weights:
    """Solve for the weights, without calibration. Means are taken out table by table."""
    read_rows = [readings[id(row)] for row in rows]
    dense = np.array([reading.dense for reading in read_rows])
    gains = np.array([row.gain for row in rows])
    means, mean_gain = dense.mean(0), gains.mean()
    tables = np.unique([row.table for row in rows], return_inverse=True)[1]
    dense, gains = _centred(dense, tables), _centred(gains, tables)
    vocabulary, rarity, words = _words(read_rows) if prior.grams else ([], np.zeros(0), np.zeros((len(rows), 0)))
    word_means = words.mean(0)
    words = words - word_means
    given = np.column_stack([gains, dense])
    if vocabulary:  # in the dual, because there are fewer rows than words
        kernel = _GRAMS**2 * words @ words.T + _NOISE * np.eye(len(rows))
        dual = np.linalg.solve(kernel, given)
    else:
        dual = given / _NOISE
    precision = np.eye(len(NAMES)) / prior.spread**2
    learned = _signed(
        dense.T @ dual[:, 1:] + precision,
        dense.T @ dual[:, 0] + precision @ np.array([prior.dense[name] for name in NAMES]),
    )
    word_weights = _GRAMS**2 * words.T @ (dual[:, 0] - dual[:, 1:] @ learned)
    return Weights(
        provenance,
        _short(mean_gain - word_weights @ word_means),
        dict(zip(NAMES, map(_short, learned), strict=True)),
        dict(zip(NAMES, map(_short, means), strict=True)),
        {
            word: (_short(weight * rare), _short(rare**2))
            for word, weight, rare in zip(vocabulary, word_weights, rarity, strict=True)
        },
        [(0.0, 0.0)],
        [],
    )


def _centred(values: Floats, tables: NDArray[np.intp]) -> Floats:
    """Subtract from each row the mean of its table."""
    counts = np.bincount(tables).astype(float)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, tables, values)
    centred: Floats = values - (sums.T / counts).T[tables]
    return centred


def _signed(matrix: Floats, vector: Floats) -> Floats:
    """Minimise a quadratic form over weights with sensible signs, by coordinate descent."""
    weights = np.zeros(len(vector))
    for _ in range(_SWEEPS):
        for at, sign in enumerate(_SIGNS):
            free = weights[at] + (vector[at] - matrix[at] @ weights) / matrix[at, at]
            weights[at] = sign * max(sign * free, 0.0)
    return weights


def _words(readings: Sequence[PromptReading]) -> tuple[list[str], Floats, Floats]:
    """Return the words and pairs found in at least two rows, their rarity, and the rows as unit vectors."""
    sets = [{_joined(gram) for gram in grams(reading.words)} for reading in readings]
    common = Counter(gram for row in sets for gram in sorted(row)).most_common(_MAX_GRAMS)
    vocabulary = [gram for gram, rows in common if rows > 1]
    rarity = np.array([np.log(len(sets) / rows) + _FLOOR for _, rows in common if rows > 1])
    column = {gram: at for at, gram in enumerate(vocabulary)}
    table = np.zeros((len(sets), len(vocabulary)))
    for row, gramset in zip(table, sets, strict=True):
        row[[column[gram] for gram in gramset if gram in column]] = 1.0
    table *= rarity
    sizes = np.sqrt((table**2).sum(1, keepdims=True))
    return vocabulary, rarity, np.divide(table, sizes, out=table, where=sizes > 0)


def _joined(gram: str | tuple[str, str]) -> str:
    return gram if isinstance(gram, str) else " ".join(gram)


def isotonic(scores: Sequence[float], gains: Sequence[float]) -> list[tuple[float, float]]:
    """Return the expected gain from each score on: isotonic regression (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []  # first score, mean gain, rows
    for score, equal in groupby(sorted(zip(scores, gains, strict=True)), key=itemgetter(0)):
        tied = [gain for _, gain in equal]
        block = (score, sum(tied) / len(tied), len(tied))
        while blocks and blocks[-1][1] >= block[1]:
            first, mean, rows = blocks.pop()
            count = rows + block[2]
            block = (first, (mean * rows + block[1] * block[2]) / count, count)
        blocks.append(block)
    return [(_short(first), _short(mean)) for first, mean, _ in blocks]


def _short(value: float | np.floating) -> float:
    """Round to six digits: precise enough, and identical on every machine."""
    return float(f"{value:.6g}") + 0.0  # no negative zero
