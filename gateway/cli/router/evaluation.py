"""The measurements: who is trained on what, and measured on which rows. No row ever stands on both sides."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from gateway.cli.router import answer_regression as cascade
from gateway.cli.router.dataset import LabelledPrompt, draw, folds
from gateway.cli.router.fit import SHIPPED, again, fit
from gateway.cli.router.metrics import Apgr, curve, measure
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import Weights

MMLU_LABELS: Final = 1500
GSM8K_LABELS: Final = 300
DRAWS: Final = 10
_FOLDS: Final = 5

Scores = Callable[[Sequence[LabelledPrompt]], Sequence[float]]
Baselines = Sequence[tuple[str, Scores]]


class EvaluationRow(NamedTuple):
    """A router, what it learned from, and its figures.

    `near95` is the strong share that 95 % of the strong model's accuracy needs, `draws` the APGRs of the same
    recipe with other draws of the labels.
    """

    router: str
    labels: str
    measured: Apgr
    near95: float
    draws: Sequence[float] = ()


def length(rows: Sequence[LabelledPrompt]) -> list[float]:
    """The router to beat: longer prompts go to the strong model."""
    return [float(len(row.prompt.text)) for row in rows]


def chance(rows: Sequence[LabelledPrompt]) -> list[float]:
    """A fixed random order."""
    return [float(one) for one in np.random.default_rng(0).random(len(rows))]


def scores_of(weights: Weights) -> Scores:
    """The scorer that serves calls, with these weights."""
    scorer = PromptScorer(weights)
    return lambda rows: [scorer.score(row.prompt) for row in rows]


def held_out(of: Sequence[LabelledPrompt], other: Sequence[LabelledPrompt]) -> float:
    """APGR on one table of the shipped recipe, trained on the other alone."""
    scores = scores_of(fit(other, SHIPPED, {}))(of)
    return curve(scores, [row.gain for row in of]).apgr


def mmlu(
    rows: Sequence[LabelledPrompt], other: Sequence[LabelledPrompt], baselines: Baselines
) -> Iterator[EvaluationRow]:
    """1,500 labels drawn by sha256 of the prompt, all others measured."""
    default = fit(other, SHIPPED, {})
    known, rest = _split(rows, MMLU_LABELS, "")
    yield from _outsiders(rest, baselines)
    yield _line("shipped recipe", "GSM8K only", scores_of(default)(rest), rest)
    yield _line(
        "calibrated",
        f"{MMLU_LABELS:,} of MMLU",
        scores_of(fit(known, again(default), {}))(rest),
        rest,
        _draws(rows, MMLU_LABELS, lambda known: scores_of(fit(known, again(default), {}))),
    )


def gsm8k(
    rows: Sequence[LabelledPrompt], other: Sequence[LabelledPrompt], baselines: Baselines
) -> Iterator[EvaluationRow]:
    """All rows for what needs no label of them; 300 labels, five folds, and the cascade."""
    default = fit(other, SHIPPED, {})
    scorer = PromptScorer(default)
    yield from _outsiders(rows, baselines)
    yield _line("shipped recipe", "MMLU only", scores_of(default)(rows), rows)
    known, rest = _split(rows, GSM8K_LABELS, "")

    def calibrated(known: Sequence[LabelledPrompt]) -> Scores:
        return scores_of(fit(known, again(default), {}))

    def checked(known: Sequence[LabelledPrompt]) -> Scores:
        return cascade.learn(known, scorer)

    for name, learn in (("calibrated", calibrated), ("cascade", checked)):
        draws = _draws(rows, GSM8K_LABELS, learn)
        yield _line(name, f"{GSM8K_LABELS} of GSM8K", learn(known)(rest), rest, draws)
        order, folded = _folded(rows, learn)
        yield _line(name, "GSM8K, 5 folds", order, folded)


def _outsiders(rows: Sequence[LabelledPrompt], baselines: Baselines) -> Iterator[EvaluationRow]:
    for name, scores in (("random", chance), ("prompt length", length), *baselines):
        yield _line(name, "none", scores(rows), rows)


def _split(
    rows: Sequence[LabelledPrompt], labels: int, salt: str
) -> tuple[list[LabelledPrompt], list[LabelledPrompt]]:
    drawn = draw(rows, salt)
    return drawn[:labels], drawn[labels:]


def _draws(
    rows: Sequence[LabelledPrompt], labels: int, learn: Callable[[Sequence[LabelledPrompt]], Scores]
) -> list[float]:
    areas = []
    for salt in range(DRAWS):
        known, rest = _split(rows, labels, f"{salt}:")
        areas.append(curve(learn(known)(rest), [row.gain for row in rest]).apgr)
    return areas


def _folded(
    rows: Sequence[LabelledPrompt], learn: Callable[[Sequence[LabelledPrompt]], Scores]
) -> tuple[list[float], list[LabelledPrompt]]:
    """Every row's place among its own fold, by what the other folds taught."""
    order: list[float] = []
    folded: list[LabelledPrompt] = []
    for known, rest in folds(rows, _FOLDS):
        scores = np.asarray(learn(known)(rest))
        order += [float(one) for one in (np.argsort(np.argsort(scores, kind="stable")) + 0.5) / len(rest)]
        folded += rest
    return order, folded


def _line(
    router: str,
    labels: str,
    scores: Sequence[float],
    rows: Sequence[LabelledPrompt],
    draws: Sequence[float] = (),
) -> EvaluationRow:
    gains = [row.gain for row in rows]
    weak, strong = (float(np.mean(ok)) for ok in zip(*[(row.weak, row.strong) for row in rows], strict=True))
    wanted = (0.95 * strong - weak) / (strong - weak)
    return EvaluationRow(router, labels, measure(scores, gains), curve(scores, gains).cpt(wanted), draws)
