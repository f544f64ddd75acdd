"""The evaluation protocol: which router is trained and measured on which rows; no row is on both sides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from gateway.cli.router.dataset import FUSION, GSM8K, MMLU, LabelledPrompt, Table, draw
from gateway.cli.router.fit import BY_HAND, SHIPPED, Prior, again, fit_order
from gateway.cli.router.metrics import Apgr, bootstrap, curve, interval, measure, measure_chance
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import Weights

LABELS: Final[Mapping[str, int]] = {MMLU: 1500, GSM8K: 300, FUSION: 1500}
"""Labels of a table itself, by its source, for the rows `calibrated`."""

PER_SOURCE: Final = 1500
"""Rows of each source that the shipped recipe learns from, so that no table outweighs the others."""

SPREADS: Final = (0.001, 0.003, 0.01, 0.03)
"""How far labels may move the weights written by hand: the strengths that are compared."""

DRAWS: Final = 10

Scores = Callable[[Sequence[LabelledPrompt]], Sequence[float]]
Baselines = Sequence[tuple[str, Scores]]


class EvaluationRow(NamedTuple):
    """A router, its training labels, and its figures.

    `lead` is the interval of its APGR less that of prompt length; `near95` the strong share needed for 95 %
    of the strong model's accuracy; `draws` are the APGRs of the same recipe with other draws of the labels.
    """

    router: str
    labels: str
    measured: Apgr
    near95: float
    lead: tuple[float, float] | None = None
    draws: Sequence[float] = ()


class Strength(NamedTuple):
    """A spread of the prior, the APGR on each table trained without it, and the smallest lead over length."""

    spread: float
    apgr: Sequence[float]
    worst: float


def length(rows: Sequence[LabelledPrompt]) -> list[float]:
    """Score by prompt length: the baseline to beat."""
    return [float(len(row.prompt.text)) for row in rows]


def scores_of(weights: Weights) -> Scores:
    """Return the production scorer with these weights."""
    scorer = PromptScorer(weights)
    return lambda rows: [scorer.score(row.prompt) for row in rows]


def training_rows(tables: Sequence[Table]) -> list[LabelledPrompt]:
    """Return what the shipped recipe learns from: as many rows of each source, drawn by their hash."""
    sources = [table.source for table in tables]
    return draw(
        [row for table in tables for row in draw(table.rows, "train:")[: PER_SOURCE // sources.count(table.source)]]
    )


def without(tables: Sequence[Table], source: str, prior: Prior = SHIPPED) -> Weights:
    """Return the weights of the shipped recipe, trained without the tables of this source."""
    return fit_order(training_rows([table for table in tables if table.source != source]), prior)


def transfer_apgr(table: Table, tables: Sequence[Table], prior: Prior = SHIPPED) -> float:
    """Return the APGR on a table of the shipped recipe trained without it."""
    return _apgr(scores_of(without(tables, table.source, prior)), table.rows)


def strengths(tables: Sequence[Table]) -> Iterator[Strength]:
    """Compare how far labels may move the weights. What ships is the best on its worst table."""
    lengths = [_apgr(length, table.rows) for table in tables]
    for spread in SPREADS:
        apgr = [transfer_apgr(table, tables, Prior(BY_HAND, spread, grams=False)) for table in tables]
        yield Strength(spread, apgr, min(np.subtract(apgr, lengths)))


def evaluate(table: Table, tables: Sequence[Table], baselines: Baselines) -> Iterator[EvaluationRow]:
    """Evaluate on one table: routers without a label of it on all rows, a calibrated one on the others."""
    default = without(tables, table.source)
    gains = [row.gain for row in table.rows]
    chance = measure_chance(gains)
    yield EvaluationRow("random", "none", chance, _wanted(table.rows))
    for name, scores in (("prompt length", length), *baselines):
        yield _line(name, "none", scores, table.rows)
    yield _line("shipped recipe", "other tables", scores_of(default), table.rows)
    labels = LABELS[table.source]

    def calibrated(drawn: Sequence[LabelledPrompt]) -> Scores:
        return scores_of(fit_order(drawn, again(default)))

    training, rest = _split(table.rows, labels, "")
    draws = _draws(table.rows, labels, calibrated)
    yield _line("calibrated", f"{labels:,} of it", calibrated(training), rest, draws)


def _split(rows: Sequence[LabelledPrompt], labels: int, salt: str) -> tuple[list[LabelledPrompt], list[LabelledPrompt]]:
    drawn = draw(rows, salt)
    return drawn[:labels], drawn[labels:]


def _draws(
    rows: Sequence[LabelledPrompt], labels: int, learn: Callable[[Sequence[LabelledPrompt]], Scores]
) -> list[float]:
    areas = []
    for salt in range(DRAWS):
        training, rest = _split(rows, labels, f"{salt}:")
        areas.append(_apgr(learn(training), rest))
    return areas


def _apgr(scores: Scores, rows: Sequence[LabelledPrompt]) -> float:
    return curve(scores(rows), [row.gain for row in rows]).apgr


def _wanted(rows: Sequence[LabelledPrompt]) -> float:
    """Return the PGR at 95 % of the strong model's accuracy; for random orders that is the share too."""
    weak, strong = (float(np.mean(ok)) for ok in zip(*[(row.weak, row.strong) for row in rows], strict=True))
    return min(max((0.95 * strong - weak) / (strong - weak), 0.0), 1.0) if strong > weak else 1.0


def _line(
    router: str,
    labels: str,
    scores: Scores,
    rows: Sequence[LabelledPrompt],
    draws: Sequence[float] = (),
) -> EvaluationRow:
    gains = [row.gain for row in rows]
    own = scores(rows)
    near95 = curve(own, gains).cpt(_wanted(rows))
    lead = None
    if scores is not length:
        ours, theirs = bootstrap([own, length(rows)], gains)
        lead = interval(ours - theirs)
    return EvaluationRow(router, labels, measure(own, gains), near95, lead, draws)
