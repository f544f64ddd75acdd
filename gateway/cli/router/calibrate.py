"""`sluice calibrate`: refits the weights on an operator's log, and installs them if they are better."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import numpy as np

from gateway.cli.router.dataset import BadLine, LabelledPrompt, draw, folds, load
from gateway.cli.router.evaluation import length
from gateway.cli.router.fit import again, fit, fit_order
from gateway.cli.router.metrics import SAMPLES, Apgr, bootstrap, measure
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import BadWeights, Weights, dump, parse, shipped

MIN_PROMPTS: Final = 100
"""Minimum size of a log."""

CONFIDENCE: Final = 0.95
"""Share of bootstrap samples in which the new weights must beat those in service."""

_FOLDS: Final = 5
_BAD_FILE: Final = 2


class Comparison(NamedTuple):
    """Three routers measured on held-out rows, and the shares of samples in which the calibrated one won."""

    calibrated: Apgr
    in_service: Apgr
    length: Apgr
    beats_service: float
    beats_length: float

    @property
    def good(self) -> bool:
        """Whether the calibrated weights beat those in service, and are no worse than prompt length."""
        return self.beats_service >= CONFIDENCE and self.calibrated.apgr >= self.length.apgr


def run(log: Path, install: Path | None, in_service: Path | None, out: TextIO, err: TextIO) -> int:
    """Compare, and install the weights if they won. Returns 0; 1 if they lost; 2 for an unreadable file."""
    try:
        rows = draw(load(log))
        served = shipped() if in_service is None else parse(in_service.read_bytes())
    except (BadLine, BadWeights) as error:
        where = f"{in_service}: " if isinstance(error, BadWeights) else ""
        print(f"sluice calibrate: {where}{error}", file=err)
        return _BAD_FILE
    problem = _insufficient(rows)
    if problem:
        print(f"sluice calibrate: {problem}", file=err)
        return 1
    comparison = compare(rows, served)
    print(f"{len(rows)} prompts, each scored by weights trained without it", file=out)
    print(f"calibrated          APGR {comparison.calibrated}", file=out)
    print(f"weights in service  APGR {comparison.in_service}", file=out)
    print(f"prompt length       APGR {comparison.length}", file=out)
    print(
        f"better than the weights in service in {comparison.beats_service:.0%}, than prompt length in "
        f"{comparison.beats_length:.0%} of {SAMPLES} bootstrap samples",
        file=out,
    )
    if not comparison.good:
        print(
            f"sluice calibrate: not installed: they must beat the weights in service in {CONFIDENCE:.0%} "
            "and be no worse than prompt length; a longer log may help",
            file=err,
        )
        return 1
    if install is not None:
        install.write_bytes(dump(fit(rows, again(shipped()), _provenance(log, rows, comparison))))
        print(f"installed: {install}", file=out)
    return 0


def _insufficient(rows: Sequence[LabelledPrompt]) -> str:
    if len(rows) < MIN_PROMPTS:
        return f"{len(rows)} prompts are too few; at least {MIN_PROMPTS} are needed"
    if sum(row.gain for row in rows) <= 0:
        return "the strong model is no better than the cheap one on this log: there is nothing to route for"
    return ""


def compare(rows: Sequence[LabelledPrompt], in_service: Weights) -> Comparison:
    """Compare by five-fold cross-validation."""
    served = PromptScorer(in_service)
    scores: list[float] = []
    now: list[float] = []
    lengths: list[float] = []
    gains: list[float] = []
    for training, held_out in folds(rows, _FOLDS):
        if not training or not held_out:
            continue
        scorer = PromptScorer(fit_order(training, again(shipped())))
        scores += [scorer.score(row.prompt) for row in held_out]
        now += [served.score(row.prompt) for row in held_out]
        lengths += length(held_out)
        gains += [row.gain for row in held_out]
    calibrated, by_service, by_length = bootstrap([scores, now, lengths], gains)
    return Comparison(
        measure(scores, gains),
        measure(now, gains),
        measure(lengths, gains),
        float(np.mean(calibrated > by_service)),
        float(np.mean(calibrated > by_length)),
    )


def _provenance(log: Path, rows: Sequence[LabelledPrompt], comparison: Comparison) -> dict[str, str | int | float]:
    return {
        "source": log.name,
        "log_sha256": hashlib.sha256(log.read_bytes()).hexdigest(),
        "recipe": "signed ridge of the gain towards the shipped weights; words and pairs; sluice calibrate",
        "rows": len(rows),
        "apgr": round(comparison.calibrated.apgr, 4),
        "apgr_of_weights_in_service": round(comparison.in_service.apgr, 4),
        "apgr_of_prompt_length": round(comparison.length.apgr, 4),
    }
