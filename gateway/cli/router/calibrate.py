"""`sluice calibrate`: weights refitted on one's own log, installed only where they beat prompt length."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import numpy as np

from gateway.cli.router.dataset import BadLine, LabelledPrompt, draw, folds, load
from gateway.cli.router.evaluation import length
from gateway.cli.router.fit import again, fit
from gateway.cli.router.metrics import SAMPLES, Apgr, bootstrap, measure
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump, shipped

FEWEST: Final = 100
"""Prompts that a log must have."""

SURE: Final = 0.95
"""The part of the bootstrap samples in which the new weights must beat prompt length."""

_FOLDS: Final = 5
_BAD_LOG: Final = 2


class Comparison(NamedTuple):
    """Both orders measured on rows that the weights had not seen, and how often ours was the better one."""

    ours: Apgr
    length: Apgr
    ahead: float


def run(log: Path, install: Path | None, out: TextIO, err: TextIO) -> int:
    """Print the verdict, and write the weights if it is good: 0; else 1. A log that cannot be read is 2."""
    try:
        rows = draw(load(log))
    except BadLine as error:
        print(f"sluice calibrate: {error}", file=err)
        return _BAD_LOG
    problem = _too_little(rows)
    if problem:
        print(f"sluice calibrate: {problem}", file=err)
        return 1
    verdict = judge(rows)
    print(f"{len(rows)} prompts, each scored by weights that had not seen it", file=out)
    print(f"calibrated      APGR {verdict.ours}", file=out)
    print(f"prompt length   APGR {verdict.length}", file=out)
    print(f"better than prompt length in {verdict.ahead:.0%} of {SAMPLES} bootstrap samples", file=out)
    if verdict.ahead < SURE:
        print(f"sluice calibrate: not installed: it takes {SURE:.0%}; a longer log may do", file=err)
        return 1
    if install is not None:
        install.write_bytes(dump(fit(rows, again(shipped()), _provenance(log, rows, verdict))))
        print(f"installed: {install}", file=out)
    return 0


def _too_little(rows: Sequence[LabelledPrompt]) -> str:
    if len(rows) < FEWEST:
        return f"{len(rows)} prompts are too few; {FEWEST} are the least"
    if sum(row.gain for row in rows) <= 0:
        return "the strong model is not better than the cheap one on this log: there is nothing to route for"
    return ""


def judge(rows: Sequence[LabelledPrompt]) -> Comparison:
    """Five folds: every row is scored by weights that learned from the other four."""
    ours: list[float] = []
    lengths: list[float] = []
    gains: list[float] = []
    for known, rest in folds(rows, _FOLDS):
        if not known or not rest:
            continue
        scorer = PromptScorer(fit(known, again(shipped()), {}))
        ours += [scorer.score(row.prompt) for row in rest]
        lengths += length(rest)
        gains += [row.gain for row in rest]
    first, second = bootstrap([ours, lengths], gains)
    return Comparison(measure(ours, gains), measure(lengths, gains), float(np.mean(first > second)))


def _provenance(
    log: Path, rows: Sequence[LabelledPrompt], verdict: Comparison
) -> dict[str, str | int | float]:
    return {
        "source": log.name,
        "log_sha256": hashlib.sha256(log.read_bytes()).hexdigest(),
        "recipe": "ridge of the gain towards the shipped weights; words and pairs; sluice calibrate",
        "rows": len(rows),
        "apgr": round(verdict.ours.apgr, 4),
        "apgr_of_prompt_length": round(verdict.length.apgr, 4),
    }
